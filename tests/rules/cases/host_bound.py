"""What the host does between launches."""

from tests.rules.building import timeline
from tests.rules.programs import Program


def pauses(us, runs=200, *, cpu=False, marked=True):
    program = Program()
    for number in range(5):
        began = program.now
        for _ in range(4):
            if cpu:
                program.computes("aten::sort", us)
            else:
                program.works(us)
            program.launches("kernel", runs=runs)
        if marked:
            program.step(number, began)
    return timeline(program.made)


FIRES = {
    "Python": lambda: pauses(1000),
    "an operator of the CPU": lambda: pauses(1000, cpu=True),
    "not much longer than the GPU": lambda: pauses(300),
}
SILENT = {
    "shorter than what the GPU does": lambda: pauses(150),
    "not long enough": lambda: pauses(202),
    "at the pace of launches": lambda: pauses(60, runs=5),
    "nothing is marked": lambda: pauses(1000, marked=False),
}
