"""Kernels that wait, with registers to blame or not."""

from tests.rules.building import T4
from tests.rules.counted import ACTIVE, ELAPSED, QUIET, few_warps, kernel


def limited(occupancy, **changes):
    """Two blocks of the eight that warps would allow."""
    return few_warps("registers", 2, occupancy, **changes)


def busy(share):
    """The multiprocessors work for that share."""
    return kernel(
        QUIET,
        {
            "launch__occupancy_limit_registers": 2,
            "sm__maximum_warps_per_active_cycle_pct": 25.0,
            f"sm__warps_active{ACTIVE}": 24.0,
            f"sm__throughput{ELAPSED}": share,
        },
    )


FIRES = {
    "one block, and some of its warps are away": lambda: few_warps(
        "registers", 1, 12.5, achieved=0.6
    ),
    "a quarter of the warps": lambda: limited(25.0),
    "just few enough": lambda: limited(69.0),
    "on a small chip": lambda: limited(25.0, device=T4, ms=10.5),
    "half busy": lambda: busy(55.0),
}
SILENT = {
    "one block, and most of its warps are away": lambda: few_warps(
        "registers", 1, 12.5, achieved=0.37
    ),
    "just enough warps": lambda: limited(71.0),
    "busy enough": lambda: busy(61.0),
    "a library's kernel": lambda: limited(25.0, name="cutlass_80_simt_sgemm_128x64"),
    "blocks are the limit": lambda: few_warps("blocks", 2, 25.0),
    "not counted what limits": lambda: limited(25.0, without="occupancy_limit"),
}
