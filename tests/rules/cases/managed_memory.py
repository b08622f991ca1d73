"""Runs with pages of managed memory that move."""

from gpuadvisor.domain.profile import (
    FAILED_CALLS,
    CallKind,
    Direction,
    FailedCalls,
    Memory,
    failed_calls_told,
)
from tests.profiles import Made
from tests.rules.building import timeline

SIZE = 64 << 10


def pages(made, begin, count, every, took=5, to_gpu=True):
    ends = (Memory.MANAGED, Memory.DEVICE) if to_gpu else (Memory.DEVICE, Memory.MANAGED)
    for number in range(count):
        made.copy(
            (begin + number * every, took),
            direction=Direction.MIGRATION, source=ends[0], destination=ends[1], bytes=SIZE,
        )  # fmt: skip


def run(in_kernel=0, after=0, every=20):
    """A kernel of 10 ms in which pages move to the GPU, after which the host touches some."""
    made = Made()
    made.launched("add", (0, 5), (10, 10_000))
    pages(made, 20, in_kernel, every)
    pages(made, 10_010 + every, after, every, to_gpu=False)
    return timeline(made)


def prefetched():
    """Pages that move to the GPU before a short kernel, which nothing else does meanwhile."""
    made = Made()
    pages(made, 0, 100, 5)
    made.launched("add", (400, 5), (500, 3_000))
    return timeline(made)


def checked(after, every):
    """A host that works for long between two pages of results."""
    made = Made()
    made.launched("add", (0, 5), (10, 10_000))
    pages(made, 10_010 + every, after, every, to_gpu=False)
    return timeline(made)


def failed():
    """Pages that move for a kernel that an illegal access ended, and no kernel after it."""
    made = Made()
    pages(made, 0, 100, 5)
    for number in range(9):
        made.call("cudaLaunchKernel", (600 + 10 * number, 5), CallKind.LAUNCH)
    told = failed_calls_told([FailedCalls("cudaLaunchKernel", 700, 8)])
    return timeline(made, recorded={FAILED_CALLS: told}, source="nsys")


FIRES = {
    "in a kernel that waits for its data": lambda: run(in_kernel=400),
    "when the host reads": lambda: run(after=200),
    "both": lambda: run(in_kernel=400, after=200),
    "prefetched before a short kernel": prefetched,
}
SILENT = {
    "results that are checked for long": lambda: checked(after=20, every=5_000),
    "none": run,
    "for kernels that did not run": failed,
    "a few": lambda: run(in_kernel=5, after=5),
    "seldom in a long kernel": lambda: run(in_kernel=20, every=400),
}
