"""Memory limits the kernel, which does not use all of its bandwidth."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.facts.kernel_loads import SPREAD, Loads, Shares
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    AT_ROOF,
    LEAST_BUSY,
    LEAST_IDLE,
    MOST_BUSY,
    is_library,
    knows,
    notice_at_most,
    of_each,
    result_of,
    short,
)
from gpuadvisor.rules.rule import LEAST_REACHED, Rule, RuleResult, percent

RULE = Rule(
    Category.DRAM_BANDWIDTH,
    needs=(knows("dram", "idle_multiprocessors"),),
    hides=("compute_below_roof",),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels that the memory limits and that are below its roof."""
    busy, others = kernel.dram, (kernel.l2, kernel.l1, kernel.compute)
    if busy is None or not LEAST_BUSY <= busy < AT_ROOF:
        return None
    most = busy if busy >= MOST_BUSY else (1 - SPREAD) * busy
    if any(each is None or each > most for each in others):
        return None
    idle = kernel.idle_multiprocessors
    if idle is None or idle - loads.fixed >= LEAST_IDLE:
        return None
    usual = 1 - min(loads.dram + loads.fixed, 1.0)
    shares = Shares(LEAST_REACHED * usual, min((1 + SPREAD) * usual, 1.0))
    return result_of(
        kernel,
        f"{short(kernel)} is limited by memory, but uses {busy:.0%} of its bandwidth"
        if busy >= MOST_BUSY
        else f"{short(kernel)} waits for memory more than it moves: it uses {busy:.0%} of the"
        " bandwidth, and no other unit is as busy",
        (percent("dram_busy", busy, AT_ROOF),),
        "Have more bytes on their way: load 16 bytes a thread at once (`float4`), several elements"
        " a thread, blocks of another size.",
        shares,
        "The time of the same bytes at the bandwidth that copies reach; at least half of that.",
        notice_at_most(shares) if busy >= MOST_BUSY or is_library(kernel) else None,
    )
