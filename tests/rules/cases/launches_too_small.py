"""Launches that fill little of the GPU and are over at once, and such that are not so."""

from dataclasses import replace

from tests.rules.building import H100, T4
from tests.rules.counted import QUIET, UNITS_UNKNOWN, kernel


def launched(blocks, us, **more):
    """A kernel of which eight blocks fit on a multiprocessor."""
    return kernel(QUIET, grid=blocks, ms=us / 1000, **more)


FIRES = {
    "one block": lambda: launched(1, 4),
    "two blocks for each multiprocessor": lambda: launched(264, 5.2),
    "on a small chip": lambda: launched(40, 3, device=T4),
    "with a fifth of the captured time": lambda: launched(4, 4, beside_ms=0.016),
    "eight threads, for longer": lambda: launched(1, 400, block=8),
    "how many multiprocessors an H100 has at least": lambda: kernel(
        QUIET, grid=4, ms=0.004, device=replace(H100, sm_count=None), without="occupancy_limit"
    ),
    "how many fit is not known, but they are few": lambda: kernel(
        QUIET, grid=4, ms=0.004, without="occupancy_limit"
    ),
    "eight threads, however long they print": lambda: launched(2, 60, block=4),
    "how busy units are is not known": lambda: kernel(UNITS_UNKNOWN, grid=4, ms=0.004),
    "only what chip it is is known": lambda: launched(2, 4, device=replace(H100, sm_count=None)),
}
SILENT = {
    "a third of a wave": lambda: launched(360, 4),
    "long enough to judge": lambda: launched(264, 12),
    "with little of the captured time": lambda: launched(4, 4, beside_ms=0.1),
    "many blocks": lambda: launched(10_000, 8),
    "how many multiprocessors is not known": lambda: launched(
        4, 4, device=replace(T4, sm_count=None)
    ),
    "a part of a GPU, of which that is not known": lambda: launched(
        4, 4, device=replace(H100, sm_count=None, name="NVIDIA H100 80GB HBM3 MIG 1g.10gb")
    ),
    "eight threads with much to do": lambda: launched(1, 40_000, block=8),
    "how long it took is not known": lambda: kernel(
        {"gpu__time_duration.sum": float("nan")}, grid=4
    ),
}
