"""Last rounds of blocks, full and nearly empty."""

from tests.rules.counted import ACTIVE, ELAPSED, QUIET, kernel

SHORT = {"dram__bytes_read.sum": 2e6, "dram__bytes_write.sum": 2e6}
"""What a kernel of some microseconds moves."""


def rounds(blocks, idle, resident=1, achieved=95.0, ms=1.0, **changes):
    """A kernel of which so many blocks fit on a multiprocessor (SM), and whose SMs idle so long."""
    return kernel(
        QUIET,
        {
            "launch__occupancy_limit_registers": resident,
            "sm__cycles_active.avg": (1 - idle) * 1_980_000,
            f"sm__warps_active{ACTIVE}": achieved,
            **changes,
        },
        grid=blocks,
        ms=ms,
    )


FIRES = {
    "one block more than fits": lambda: rounds(133, 0.48),
    "one block more than multiprocessors, of which each has room": lambda: rounds(133, 0.48, 8),
    "warps are missing": lambda: rounds(1320 + 66, 0.01, 8, 75.0),
}
SILENT = {
    "a full round": lambda: rounds(132, 0.06),
    "many rounds": lambda: rounds(13_201, 0.01),
    "nothing idles": lambda: rounds(133, 0.01),
    "warps are missing, but the multiprocessors are busy": lambda: rounds(
        1320 + 66, 0.01, 8, 75.0, **{f"sm__throughput{ELAPSED}": 75.0}
    ),
    "warps are missing in a launch that mostly starts and ends": lambda: rounds(
        1320 + 66, 0.01, 8, 75.0, ms=0.008, **SHORT
    ),
    "fewer blocks than multiprocessors": lambda: rounds(100, 0.25),
}
