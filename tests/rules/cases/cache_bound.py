"""Products that load each value for one use, and such that do not."""

from tests.rules.counted import ACTIVE, ELAPSED, QUIET, kernel

FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"


def product(l1=98.0, arithmetic=0.08, *changes, **of_kernel):
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
        **of_kernel,
    )


def named(name, compute=18.0, *changes, **levels):
    """A kernel of this name that keeps the L1 cache and the memory busy; multiplications are not
    counted."""
    told = {"l1tex": 99.0, "gpu__dram": 86.0, "sm": compute, **levels}
    busy = {f"{unit}{'_' if unit.endswith('dram') else '__'}throughput{ELAPSED}": level
            for unit, level in told.items()}  # fmt: skip
    return kernel(busy, {f"gpu__compute_memory_throughput{ELAPSED}": 99.0}, *changes, name=name)


FIRES = {
    "a product without reuse, by its name": lambda: named("wmma_gemm(half*, half*, float*)"),
    "a naive product": product,
    "just busy enough": lambda: product(76.0),
    "busy while multiprocessors have warps, in a last round that few of them have": lambda: product(
        None,
        0.08,
        {f"l1tex__throughput{ACTIVE}": 78.0, "sm__cycles_active.avg": 1_700_000.0},
        {f"gpu__compute_memory_throughput{ELAPSED}": 67.0},
    ),
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
    "a library's product": lambda: named("void cutlass::Kernel<cutlass_80_wmma_gemm>(Params)"),
    "a product with one vector": lambda: named("gemv_kernel"),
    "a sparse product": lambda: named("csr_matmul"),
    "an interpolation": lambda: named("bilinear_upsample"),
    "no product": lambda: named("stencil"),
    "a product that computes": lambda: named("my_gemm", 60.0),
    "a product of which the memory alone is busy": lambda: named("my_gemm", l1tex=40.0),
    "a product that loads far apart": lambda: named(
        "my_gemm", 18.0, {"memory_l2_theoretical_sectors_global": 350e6}
    ),
    "the cache has room": lambda: product(74.0),
    "no arithmetic": lambda: product(98.0, 0.001),
    "well fed": lambda: product(98.0, 0.6),
    "memory is used": lambda: product(98.0, 0.08, {f"gpu__dram_throughput{ELAPSED}": 40.0}),
    "multiplications are not counted": lambda: product(98.0, 0.08, {FFMA: None}),
}
