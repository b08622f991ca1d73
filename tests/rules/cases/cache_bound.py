"""Products that load each value for one use, and such that do not."""

from tests.rules.counted import ELAPSED, QUIET, kernel

FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"


def product(l1=98.0, arithmetic=0.08, *changes):
    """The L1 cache is so busy, for so much of 132 x 128 multiplications a cycle."""
    return kernel(
        QUIET,
        {
            f"l1tex__throughput{ELAPSED}": l1,
            f"gpu__compute_memory_throughput{ELAPSED}": l1,
            f"sm__throughput{ELAPSED}": 66.0,
            FFMA: arithmetic * 132 * 128,
        },
        *changes,
    )


FIRES = {
    "a naive product": product,
    "just busy enough": lambda: product(76.0),
    "by the pipes of multiplications": lambda: product(
        98.0,
        0.08,
        {
            FFMA: None,
            f"sm__pipe_fma_cycles_active{ELAPSED}": 17.2,
            f"sm__pipe_fmaheavy_cycles_active{ELAPSED}": 24.0,
        },
    ),
}
SILENT = {
    "the cache has room": lambda: product(74.0),
    "no arithmetic": lambda: product(98.0, 0.001),
    "well fed": lambda: product(98.0, 0.6),
    "memory is used": lambda: product(98.0, 0.08, {f"gpu__dram_throughput{ELAPSED}": 40.0}),
    "multiplications are not counted": lambda: product(98.0, 0.08, {FFMA: None}),
}
