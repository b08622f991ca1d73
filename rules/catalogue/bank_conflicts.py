"""Threads of a warp want the same bank of shared memory at once."""

from __future__ import annotations

from dataclasses import replace

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.facts.kernel_loads import Loads, Shares, saved
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import knows, of_each, result_of, short, unless_library
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent

LEAST_CONFLICTS = 0.10
"""Least share of shared memory's cycles that conflicts cost: Nsight Compute's threshold."""
LEAST_BUSY = 0.5
"""Load of the L1 cache, of which shared memory is a part, below which a conflict costs latency:
then no more of the time is saved than conflicts have of the cache's. [own]"""

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
    if loads.l1 < LEAST_BUSY:
        shares = Shares(shares.low, max(min(shares.high, of_cache * loads.l1), shares.low))
    if shares.middle < NOTICEABLE:
        return None
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
