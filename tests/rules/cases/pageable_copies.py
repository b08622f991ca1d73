"""Large copies of pageable and pinned memory."""

from gpuadvisor.domain.profile import CallKind, Range
from tests.profiles import Made
from tests.rules.building import T4, timeline
from tests.rules.programs import Program


def batches(size, *, device=None, **how):
    program = Program()
    for _ in range(4):
        program.copies(size, 6, **how)
        program.launches("kernel", runs=500, times=10, op=20)
    return timeline(program.made, device)


def weights(times):
    """Copies one after the other, and then work that copies nothing."""
    program = Program()
    for _ in range(8):
        program.copies(64 << 20, 6)
    program.launches("kernel", runs=500, times=times, op=20)
    return timeline(program.made)


def copies_alone(**how):
    program = Program()
    for _ in range(6):
        program.copies(64 << 20, 6, **how)
    return timeline(program.made)


def once():
    """A program that copies, computes and ends."""
    program = Program()
    program.copies(64 << 20, 6)
    program.computes("aten::normal_", 9000)
    program.launches("kernel", runs=500, times=1, op=20)
    return timeline(program.made)


def nothing_ran():
    """Steps whose launches have no work in the recording."""
    made = Made()
    for number in range(5):
        made.range(f"ProfilerStep#{number}", (1000 * number, 900), Range.STEP)
        made.call("cudaLaunchKernel", (1000 * number, 5), CallKind.LAUNCH)
    return timeline(made)


FIRES = {
    "to an H100": lambda: batches(64 << 20),
    "to a T4": lambda: batches(64 << 20, device=T4),
    "to the host": lambda: batches(64 << 20, to_host=True),
    "near the threshold": lambda: batches(800 << 10),
    "no kernel at all": copies_alone,
    "one pass that mostly copies": lambda: weights(1),
    "weights that are loaded, for information": lambda: weights(400),
}
SILENT = {
    "no kernel, and pinned memory": lambda: copies_alone(pinned=True),
    "pinned memory": lambda: batches(64 << 20, pinned=True),
    "below the threshold": lambda: batches(400 << 10),
    "small ones, which do not wait": lambda: batches(64 << 10),
    "one before all work, and no loop": once,
    "launches of which no work was recorded": nothing_ran,
}
