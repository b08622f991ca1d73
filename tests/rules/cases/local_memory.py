"""Local memory that memory has to move, and such that costs nothing."""

from tests.rules.counted import ELAPSED, QUIET, SECTORS, kernel

MISSED = "l1tex__t_sectors_pipe_lsu_mem_{}_op_ld_lookup_miss.sum"


def local(share, *changes, **shape):
    """So much of all sectors, in and beyond the L1 cache, is local memory."""
    loaded = share / (1 - share) * 44.5e6
    return kernel(
        {
            "memory_l2_theoretical_sectors_local": 2 * loaded,
            SECTORS.format("local_op_st"): loaded,
            MISSED.format("local"): loaded,
            MISSED.format("global"): 44.5e6,
        },
        *changes,
        **shape,
    )


NOT_COUNTED = {MISSED.format(each): None for each in ("local", "global")}

FIRES = {
    "not counted what the L1 cache kept": lambda: local(
        0.8, QUIET, NOT_COUNTED, {f"lts__throughput{ELAPSED}": 90.0}
    ),
    "most of the traffic": lambda: local(0.8),
    "just enough": lambda: local(0.2),
    "kept by the L1 cache, which is at its roof": lambda: local(
        0.8,
        QUIET,
        {MISSED.format("local"): 0.0, SECTORS.format("local_op_st"): 0.0},
        {
            f"l1tex__throughput{ELAPSED}": 90.0,
            f"gpu__compute_memory_throughput{ELAPSED}": 90.0,
        },
    ),
}
SILENT = {
    "none": kernel,
    "a few registers": lambda: local(0.09),
    "kept by the L1 cache, while memory limits": lambda: local(
        0.5, {MISSED.format("local"): 0.0, SECTORS.format("local_op_st"): 0.0}
    ),
    "not counted": lambda: local(0.8, {"memory_l2_theoretical_sectors_local": None}),
}
