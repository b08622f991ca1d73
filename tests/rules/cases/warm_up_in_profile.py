"""First steps that are longer than the others."""

from tests.rules.building import timeline
from tests.rules.programs import Program


def steps(*lengths):
    program = Program()
    for number, length in enumerate(lengths):
        began = program.now
        program.launches("kernel", runs=10)
        program.works(length)
        program.step(number, began)
    return timeline(program.made)


FIRES = {
    "five times": lambda: steps(5000, 1000, 1000),
    "a second one is longer, too": lambda: steps(5000, 2000, 1000, 1000, 1000),
    "three times": lambda: steps(3010, 998, 1000),
}
SILENT = {
    "twice": lambda: steps(2000, 1000, 1000),
    "a later one": lambda: steps(1000, 5000, 1000),
    "one that comes again": lambda: steps(5000, 1000, 1000, 5000, 1000, 1000),
    "two steps": lambda: steps(5000, 1000),
}
