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


FIRES = {
    "in each step": lambda: steps(lambda _: True, free=True),
    "cudaFree in each step": lambda: steps(lambda _: True, us=50, free=True),
}
SILENT = {
    "in the first half": lambda: steps(lambda number: number < 3, free=True),
    "never": lambda: steps(lambda _: False),
    "hidden behind long kernels": lambda: steps(lambda _: True, runs=5000, us=10),
}
