"""Loads from the L1 cache keep the arithmetic waiting: values are loaded again and again."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.facts.kernel_loads import ATTAINABLE, Loads, Shares
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    AT_ROOF,
    knows,
    of_each,
    result_of,
    reuses_tiles,
    short,
    unless_library,
    up_to,
)
from gpuadvisor.rules.requirements import either
from gpuadvisor.rules.rule import Rule, RuleResult, percent

MOST_DRAM = 0.30
"""Share of the memory's peak: above, what is loaded is not reused enough for this. [own]"""
LEAST_ARITHMETIC = 0.005
"""Multiplications with additions, of the most that the SMs can do: fewer are no matrix product.
[own]"""
REACHED = (0.5, 0.9)
"""Shares of the L1 cache's peak that good products reach, small ones (cuBLAS, 1024 x 1024 on an
A10G: 54 %) and large ones. [own]"""

ADVICE = (
    "Compute a tile of several results a thread, so that a value is loaded once for many uses:"
    " tiles in shared memory, then in registers; if it is a product of matrices, call a library's."
)

RULE = Rule(
    Category.COMPUTE,
    needs=(either((knows("l1", "dram", "multiply_adds"),), (knows("l1", "compute"),)),),
    hides=("tensor_cores_idle", "compute_below_roof", "dram_roof"),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels that could keep values in registers and load them for each use."""
    return _without_reuse(kernel, loads) or _naive(kernel, loads)


def _naive(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Look at multiplications that the L1 cache alone keeps waiting, whatever the kernel is."""
    l1, dram, done = kernel.l1_with_warps, kernel.dram, kernel.multiply_adds
    if l1 is None or dram is None or done is None:
        return None
    if l1 < AT_ROOF * ATTAINABLE or dram >= MOST_DRAM:
        return None
    if not LEAST_ARITHMETIC <= done < REACHED[0]:
        return None
    # Larger tiles of a product load fewer bytes from memory, too.
    fewer = reuses_tiles(kernel)
    kept = max(loads.fixed, kernel.xu_pipe or 0.0)
    low = 1 - max(done / REACHED[0], kept, loads.dram)
    high = 1 - max(done / REACHED[1], kept, 0.0 if fewer else loads.dram)
    shares = Shares(max(low, 0.0), max(high, 0.0))
    limits = (
        "the special-function unit takes; at least, no less than memory takes for the same bytes,"
        " of which larger tiles load fewer"
        if fewer
        else "memory and the special-function unit take"
    )
    return result_of(
        kernel,
        f"{short(kernel)} keeps the L1 cache {l1:.0%} busy while it has warps, for {done:.0%} of"
        " the arithmetic that the GPU could do: each value is loaded for one use",
        (
            percent("l1_busy", l1, AT_ROOF * ATTAINABLE),
            percent("multiply_adds_of_peak", done, REACHED[0]),
        ),
        ADVICE,
        shares,
        "The time of the same arithmetic at 50 to 90 % of the peak, as good matrix products reach"
        f" it, and no less than {limits}.",
        unless_library(kernel, shares),
    )


def _without_reuse(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Look at products that memory feeds as well, or whose multiplications were not counted: loads
    that move more than threads use are another fault."""
    l1, compute = kernel.l1_with_warps, kernel.compute
    if l1 is None or compute is None or not reuses_tiles(kernel):
        return None
    used = kernel.ideal_sectors / kernel.sectors if kernel.ideal_sectors and kernel.sectors else 1.0
    if l1 * min(used, 1.0) < AT_ROOF * ATTAINABLE or compute >= REACHED[0]:
        return None
    counted = kernel.multiply_adds is not None and (kernel.dram or 0.0) < MOST_DRAM
    if counted:
        return None
    high = max(1 - max(compute / REACHED[1], loads.fixed), 0.0)
    beside = "" if kernel.dram is None else f", the memory {kernel.dram:.0%}"
    return result_of(
        kernel,
        f"{short(kernel)} keeps the L1 cache {l1:.0%} busy while it has warps{beside} and its"
        " multiprocessors"
        f" {compute:.0%}: a product of matrices that hardly reuses what it loads",
        (
            percent("l1_busy", l1, AT_ROOF * ATTAINABLE),
            *(() if kernel.dram is None else (percent("dram_busy", kernel.dram),)),
            percent("sm_busy", compute, REACHED[0]),
        ),
        ADVICE,
        up_to(high),
        "At most until the multiprocessors do as much as those of large good products; at least"
        " half of that, for how far its sizes allow reuse was not counted.",
    )
