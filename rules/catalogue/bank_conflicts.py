"""Threads of a warp want the same bank of shared memory at once."""

from __future__ import annotations

from dataclasses import replace

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.facts.kernel_loads import Loads, saved
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    LEAST_CONFLICTS,
    knows,
    of_each,
    result_of,
    short,
    unless_library,
)
from gpuadvisor.rules.rule import Rule, RuleResult, percent

RULE = Rule(
    Category.BANK_CONFLICT,
    needs=(knows("shared_bank_conflicts", "shared_wavefronts", "wavefronts"),),
    hides=("latency", "compute", "dram_bandwidth", "tensor_core", "achieved_occupancy"),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels whose accesses to shared memory are served in many turns."""
    conflicts, shared, all_cycles = (
        kernel.shared_bank_conflicts,
        kernel.shared_wavefronts,
        kernel.wavefronts,
    )
    if conflicts is None or not shared or not all_cycles:
        return None
    share = min(conflicts / shared, 1.0)
    if share < LEAST_CONFLICTS:
        return None
    of_cache = min(conflicts / all_cycles, 1.0)
    shares = saved(loads, replace(loads, l1=loads.l1 * (1 - of_cache)))
    turns = shared / max(shared - conflicts, 1.0)
    return result_of(
        kernel,
        f"Bank conflicts make shared memory of {short(kernel)} take {turns:.1f} turns for each"
        " access that could be served in one",
        (
            percent("conflicts_of_shared_memory_cycles", share, LEAST_CONFLICTS),
            Figure("conflicts", conflicts),
            percent("l1_busy", kernel.l1 if kernel.l1 is not None else loads.l1),
        ),
        "Pad the rows of the tile by one element, or swizzle the index, so that the threads of a"
        " warp meet different banks.",
        shares,
        "At most the time of the busiest unit without conflicts; at least what the L1 cache is"
        " relieved of.",
        unless_library(kernel, shares),
    )
