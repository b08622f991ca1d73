"""The grid has fewer blocks than the GPU has multiprocessors."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.facts.kernel_loads import Loads, Shares
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import knows, of_each, result_of, short
from gpuadvisor.rules.rule import Rule, RuleResult

SHARE_OF_IDLE = 0.8
"""Share of the idle SMs' time that is saved at least when the work is cut into more blocks.
[own]"""

RULE = Rule(
    Category.SMALL_GRID,
    needs=(knows("blocks", "sm_count"),),
    hides=(
        "occupancy", "latency", "dram_bandwidth", "compute", "tensor_core", "tail", "coalescing",
    ),
)  # fmt: skip


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels that leave some multiprocessors (SMs) without any block."""
    blocks, sm_count = kernel.blocks, kernel.sm_count
    if blocks is None or sm_count is None or blocks >= sm_count:
        return None
    idle = 1 - blocks / sm_count
    high = 1 - max(loads.busiest, min(kernel.waves or blocks / sm_count, 1.0))
    low = min(SHARE_OF_IDLE * idle, high)
    if high <= 0:
        return None
    return result_of(
        kernel,
        f"{short(kernel)} has {blocks:,} block{'' if blocks == 1 else 's'} for"
        f" {sm_count} multiprocessors: {idle:.0%} of the GPU has nothing to do",
        (Figure("blocks", blocks, "", sm_count), Figure("multiprocessors", sm_count)),
        "Cut the work into more blocks: a larger batch, smaller blocks, or several blocks that"
        " share one result (split-K); or run it beside other kernels.",
        Shares(low, high),
        "At most until the grid fills the GPU or a unit is full; at least four fifths of the time"
        " that the multiprocessors without a block have.",
    )
