"""The size of the blocks keeps warps out of the SMs, or threads out of warps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_loads import SPREAD, Loads, Shares, saved
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import knows, of_each, result_of, short
from gpuadvisor.rules.occupancy import HIDES, LEAST_UNUSED, ON_WARPS, limited
from gpuadvisor.rules.requirements import either
from gpuadvisor.rules.rule import LEAST_REACHED, Rule, RuleResult, percent

ADVICE = "Choose a multiple of 32 threads of which a whole number fills an SM, such as 128 or 256."
WARP = 32

RULE = Rule(
    Category.OCCUPANCY,
    needs=(either((knows(*ON_WARPS, "threads"),), (knows("threads"),)),),
    hides=(*HIDES, "divergence"),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find kernels that wait, and whose blocks leave places for warps or threads empty."""
    yield from _whole_blocks(evidence)
    yield from _broken_warps(evidence)


_whole_blocks = limited(
    "block_size",
    lambda kernel: f"blocks of {kernel.threads:,} threads, of which only whole ones fit,",
    ADVICE,
    "threads",
)


@of_each
def _broken_warps(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    if not kernel.threads:
        return None
    used = kernel.threads / (-(-kernel.threads // WARP) * WARP)
    if 1 - used < LEAST_UNUSED:
        return None
    after = replace(loads, compute=loads.compute * used, l1=loads.l1 * used)
    shares = saved(loads, after).times(LEAST_REACHED, loads.busiest)
    beyond = max(loads.dram, loads.l2)
    if beyond < max(loads.l1, loads.compute):
        # Fewer warps wait, too: what keeps them waiting shrinks as what they do.
        high = max(1 - max(used, (1 - SPREAD) * beyond, loads.fixed), 0.0)
        shares = Shares(min(shares.low, high), high)
    return result_of(
        kernel,
        f"Blocks of {kernel.threads} threads fill {used:.0%} of the warps of {short(kernel)}",
        (
            Figure("threads_per_block", kernel.threads, "threads"),
            percent("threads_of_warps", used, 1 - LEAST_UNUSED),
        ),
        ADVICE,
        shares,
        "At most the same work in full warps, until memory limits; at least half of that.",
    )
