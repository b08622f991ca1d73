"""Weights that are averaged on the CPU, and other copies to the host."""

from tests.rules.building import timeline
from tests.rules.programs import Program


def averages(
    us=200,
    copies=8,
    *,
    every=1,
    size=256 << 10,
    computes="aten::add_",
    kernels=4,
    steps=6,
    between=0,
):
    """Return steps after which tensors are copied one by one, with work on the host after each."""
    program = Program()
    for number in range(steps):
        began = program.now
        program.launches("kernel", runs=500, times=kernels, op=20)
        for _ in range(copies if number % every == 0 else 0):
            program.copies(size, 6, to_host=True)
            if computes:
                program.computes(computes, us)
            else:
                program.works(us)
            program.launches("kernel", runs=2, times=between)
        program.launches("kernel", runs=2)
        program.step(number, began)
    return timeline(program.made)


FIRES = {
    "an average of the weights": averages,
    "every second step": lambda: averages(every=2),
    "small steps": lambda: averages(us=40, kernels=1),
}
SILENT = {
    "Python alone, as a file is written": lambda: averages(computes=""),
    "few copies": lambda: averages(copies=2),
    "once": lambda: averages(every=6),
    "little beside what the GPU does": lambda: averages(us=2, kernels=200),
    "kernels between": lambda: averages(between=1),
    "values that are read one by one": lambda: averages(size=8),
    "copies that nothing is done with": lambda: averages(us=0.5),
}
