"""Steps that are alike, or not, of many short kernels, or not."""

from tests.rules.building import timeline
from tests.rules.programs import Program


def steps(kernels=40, runs=3, *, other=False, waits=0, first=None, marked=True):
    """Steps of so many kernels; the host waits so often in each, for the last time at its end, or
    once, after the kernel at the place `first`."""
    program = Program()
    for number in range(6):
        began = program.now
        for place in range(kernels):
            name = f"kernel {place} of {number}" if other else f"kernel {place}"
            program.launches(name, runs=runs, op=20)
            if place == first or (waits and (place + 1) % (kernels // waits) == 0):
                program.waits()
        if marked:
            program.step(number, began)
    return timeline(program.made)


def replayed(graphs=8):
    """Steps that are graphs already, each of a few kernels, from a profiler without their nodes."""
    program = Program()
    for number in range(6):
        began = program.now
        for place in range(graphs):
            program.replays(f"kernel of {place}", runs=3, kernels=5, op=20)
        program.step(number, began)
    return timeline(program.made)


FIRES = {
    "steps that launch the same kernels": steps,
    "without steps, each kernel as often": lambda: steps(marked=False),
    "one wait, at the end of each step": lambda: steps(waits=1),
    "one wait a step, which is not marked": lambda: steps(waits=1, marked=False),
    "few kernels": lambda: steps(kernels=10),
    "one kernel": lambda: steps(kernels=1),
}
SILENT = {
    "other kernels in each step": lambda: steps(other=True),
    "kernels that fill the GPU": lambda: steps(runs=30),
    "waits within the step": lambda: steps(waits=10),
    "one wait within the step": lambda: steps(first=20),
    "a wait after each of the same kernel": lambda: steps(kernels=1, waits=1, marked=False),
    "CUDA graphs already": replayed,
}
