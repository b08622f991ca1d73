"""The kernel moves its bytes as fast as the memory can."""

from __future__ import annotations

import math

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.coalescing import LEAST_EXCESS
from gpuadvisor.rules.facts.kernel_loads import Loads
from gpuadvisor.rules.facts.kernel_metrics import SECTOR_BYTES, KernelMetrics
from gpuadvisor.rules.kernels import AT_ROOF, knows, of_each, result_of, short
from gpuadvisor.rules.rule import Rule, RuleResult, percent

RULE = Rule(Category.DRAM_BANDWIDTH, needs=(knows("dram"),), hides=())


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels at the roof of the memory's bandwidth."""
    busy = kernel.dram
    if busy is None or busy < AT_ROOF:
        return None
    figures = [percent("dram_busy", busy, AT_ROOF)]
    if kernel.dram_bytes is not None:
        figures.append(Figure("dram_bytes", kernel.dram_bytes, "bytes"))
    inside = "faster only with fewer bytes (reuse, fusion, narrower types)"
    moved = (kernel.dram_bytes or math.inf) / SECTOR_BYTES
    if kernel.sectors is None or kernel.ideal_sectors is None:
        inside = "whether it uses all that it moves was not counted"
    elif (1 - LEAST_EXCESS) * min(kernel.sectors, moved) > kernel.ideal_sectors:
        inside = "but it does not use all that it moves"
    return result_of(
        kernel,
        f"{short(kernel)} runs at the memory's bandwidth ({busy:.0%} of its peak): {inside}",
        tuple(figures),
        "Move fewer bytes: whether the kernel needs all of them, counters do not tell. Reuse what"
        " was read (tiles in shared memory or registers), fuse it with its neighbours, or use a"
        " narrower type.",
        None,
        "",
        Severity.INFO,
    )
