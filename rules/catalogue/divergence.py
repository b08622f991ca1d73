"""Most instructions run for a few threads of their warp only."""

from __future__ import annotations

from dataclasses import replace

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.facts.kernel_loads import Loads, saved
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import knows, notice_at_most, of_each, result_of, short
from gpuadvisor.rules.rule import LEAST_REACHED, Rule, RuleResult, percent

WARP = 32
MOST_ACTIVE = 24.0
"""Threads an instruction, of 32: Nsight Compute's threshold."""
MOST_WORKING = 18.0
"""Most threads of a warp at work, without those that a condition leaves out: checks of bounds and
loops' ends alone keep a few of them idle in healthy kernels. [own]"""
LEAST_COMPUTE = 0.4
"""Load of the SMs below which instructions matter less and less. [own]"""

RULE = Rule(
    Category.DIVERGENCE,
    needs=(knows("active_threads", "threads"),),
    hides=("latency", "compute", "dram_bandwidth", "tensor_core", "coalescing",
           "achieved_occupancy"),
)  # fmt: skip


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels whose warps take several paths one after the other."""
    active, threads = kernel.active_threads, kernel.threads
    if active is None or not threads:
        return None
    most = threads / -(-threads // WARP)  # of a warp that the block fills
    working = min(kernel.working_threads or WARP, active)
    if active >= MOST_ACTIVE * most / WARP and working >= MOST_WORKING * most / WARP:
        return None
    used = min((active if active < MOST_ACTIVE * most / WARP else working) / most, 1.0)
    after = replace(loads, compute=max(loads.compute * used, used))
    shares = saved(replace(loads, compute=1.0), after)
    weight = min(loads.compute / LEAST_COMPUTE, 1.0)
    leads = loads.compute >= min(loads.memory, LEAST_COMPUTE)
    shares = shares.times(LEAST_REACHED * weight if leads else 0.0, weight)
    return result_of(
        kernel,
        f"An instruction of {short(kernel)} works for {used * most:.1f} of {most:.0f} threads of"
        " its warp on average: they take different paths",
        (
            Figure("threads_per_instruction", round(active, 1), "threads", MOST_ACTIVE),
            percent("warp_used", used, MOST_ACTIVE / WARP),
        ),
        "Give the threads of a warp the same path: sort or group the work by its kind, or replace"
        " branches by arithmetic.",
        shares,
        "At most the time of the same work in full warps, until memory limits; at least half"
        " of that, but where instructions are neither much of what the SMs can do nor more"
        " than what memory and caches have to do.",
        None if leads else notice_at_most(shares),
    )
