"""Grids smaller than the GPU, and such that are not."""

from dataclasses import replace

from tests.rules.building import H100, T4
from tests.rules.counted import QUIET, UNITS_UNKNOWN, kernel


def blocks(count, **shape):
    return kernel(QUIET, grid=count, **shape)


FIRES = {
    "four blocks": lambda: blocks(4),
    "nearly as many as multiprocessors": lambda: blocks(120),
    "on a small chip": lambda: blocks(30, device=T4, ms=10.5),
    "one thread for two milliseconds": lambda: blocks(1, block=1, ms=2),
    "how busy units are is not known": lambda: kernel(UNITS_UNKNOWN, grid=42, ms=0.011),
    "neither is its GPU, but for its chip": lambda: kernel(
        UNITS_UNKNOWN, grid=42, ms=0.011, device=replace(H100, sm_count=None)
    ),
}
SILENT = {
    "a block each": lambda: blocks(132),
    "many blocks": lambda: blocks(10_000),
    "a kernel too short to get shorter": lambda: blocks(4, ms=0.004),
    "eight threads that are over soon": lambda: blocks(1, block=8, ms=0.4),
    "how many multiprocessors is not known": lambda: blocks(4, device=replace(H100, sm_count=None)),
    "neither units nor the chip are known": lambda: kernel(
        UNITS_UNKNOWN, grid=42, device=replace(H100, sm_count=None, compute_capability=(8, 9))
    ),
    "units are not known of many blocks": lambda: kernel(UNITS_UNKNOWN, grid=132, ms=0.011),
    "units are not known of what is too small to judge": lambda: kernel(
        UNITS_UNKNOWN, grid=6, ms=0.008
    ),
    "eight threads": lambda: blocks(2, block=4, ms=0.06),
    "how long it took is not known": lambda: kernel(
        {"gpu__time_duration.sum": float("nan")}, grid=4
    ),
}
