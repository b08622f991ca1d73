"""Conflicts that keep the L1 cache busy, and such that do not matter."""

from tests.rules.counted import ELAPSED, QUIET, kernel


def conflicts(share, l1=90.0, *changes, **shape):
    """Shared memory takes 90 % of the L1 cache's cycles, so much of it for conflicts."""
    return kernel(
        QUIET,
        {
            "memory_l1_wavefronts_shared": 90e6,
            "memory_l1_wavefronts_shared_ideal": (1 - share) * 90e6,
            "l1tex__data_pipe_lsu_wavefronts.sum": 100e6,
            f"l1tex__throughput{ELAPSED}": l1,
            f"gpu__compute_memory_throughput{ELAPSED}": l1,
        },
        *changes,
        **shape,
    )


FIRES = {
    "of 32 banks": lambda: conflicts(31 / 32),
    "of two": lambda: conflicts(1 / 2),
    "by the cache's own count": lambda: conflicts(
        31 / 32,
        90.0,
        {
            "memory_l1_wavefronts_shared": None,
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": 90e6,
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": 87e6,
        },
    ),
}
SILENT = {
    "none": lambda: conflicts(0.0),
    "a few": lambda: conflicts(0.09),
    "the L1 cache hardly works": lambda: conflicts(31 / 32, 1.0),
    "memory limits": lambda: conflicts(
        1 / 2,
        40.0,
        {
            f"gpu__compute_memory_throughput{ELAPSED}": 85.0,
            f"gpu__dram_throughput{ELAPSED}": 85.0,
            "dram__bytes_read.sum": 2.85e9,
        },
    ),
    "all cycles are not counted": lambda: conflicts(
        31 / 32, 90.0, {"l1tex__data_pipe_lsu_wavefronts.sum": None}
    ),
}
