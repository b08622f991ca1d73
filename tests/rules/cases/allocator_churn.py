"""Allocating and freeing GPU memory at the beginning, and always."""

from tests.rules.building import timeline
from tests.rules.programs import Program


def steps(allocates, *, runs=200, us=300, free=False):
    program = Program()
    for number in range(8):
        if allocates(number):
            program.allocates(us)
        program.launches("kernel", runs=runs, times=4, op=20)
        if free and allocates(number):
            program.allocates(us, free=True)
    program.launches("last", runs=10)
    return timeline(program.made)


def phases():
    """Two phases that allocate next to nothing, with one long release between them."""
    program = Program()
    for number in range(12):
        program.works(600)
        program.allocates(5)
        if number == 8:
            program.allocates(3000, free=True)
        program.launches("kernel", runs=200, times=4, op=20)
        program.waits()
    program.launches("last", runs=10)
    return timeline(program.made)


FIRES = {
    "in each step": lambda: steps(lambda _: True, free=True),
    "cudaFree in each step": lambda: steps(lambda _: True, us=50, free=True),
}
SILENT = {
    "one long call among short ones": phases,
    "in the first half": lambda: steps(lambda number: number < 3, free=True),
    "never": lambda: steps(lambda _: False),
    "hidden behind long kernels": lambda: steps(lambda _: True, runs=5000, us=10),
}
