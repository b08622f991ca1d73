"""Waits for the GPU, where they cost something and where they do not."""

from tests.rules.building import timeline
from tests.rules.programs import Program


def steps(wait, *, launches=20, runs=100, op=20):
    program = Program()
    for _ in range(8):
        program.works(150)
        program.launches("kernel", runs=runs, times=launches, op=op)
        wait(program)
    program.launches("last", runs=10)
    return timeline(program.made)


def once():
    """The profiler itself waits when it is done."""
    program = Program()
    program.launches("kernel", runs=100, times=50, op=20)
    program.waits()
    return timeline(program.made)


def own_work():
    """After each wait the script computes for 5 ms on the CPU, most likely with what it got."""
    program = Program()
    for _ in range(8):
        program.launches("kernel", runs=4000, times=2)
        program.waits()
        program.computes("aten::sort", 5000)
    program.launches("last", runs=10)
    return timeline(program.made)


def nothing(_):
    """No wait."""


FIRES = {
    ".item() in each step": lambda: steps(Program.item),
    "synchronize() in each step": lambda: steps(Program.waits),
    "after each kernel": lambda: steps(Program.waits, launches=1),
}
SILENT = {
    "no waits": lambda: steps(nothing),
    "a host that is slower than the GPU": lambda: steps(Program.item, runs=5, launches=60, op=60),
    "a GPU with very much to do": lambda: steps(Program.item, runs=2000),
    "at the end": once,
    "long work of the CPU after each": own_work,
}
