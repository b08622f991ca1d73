"""Most warps of a kernel neither read nor write memory."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.facts.kernel_loads import Loads, Shares
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import knows, notice_at_most, of_each, result_of, short, too_small
from gpuadvisor.rules.rule import Rule, RuleResult, percent

MOST_WITH_ACCESS = 0.5
"""Share of the warps that may access memory, up to which most do not: what "most" means. A grid
rounded up to whole blocks has a few without work, one dimension that is twice too large half."""

RULE = Rule(
    Category.LARGE_GRID,
    needs=(knows("accesses", "warps"),),
    hides=("divergence", "latency", "occupancy", "tail"),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels with fewer accesses to memory than half of their warps."""
    accesses, warps = kernel.accesses, kernel.warps
    # Without any it is no work that is kept: a test of the arithmetic, or a wait.
    if not accesses or not warps or too_small(kernel):
        return None
    if kernel.shared_bytes != 0:
        # Warps may have their results in shared memory, and one of them store: each such access is
        # a wavefront or more.
        if kernel.shared_wavefronts is None:
            return None
        accesses += kernel.shared_wavefronts
    share = accesses / warps
    if share > MOST_WITH_ACCESS:
        return None
    # Those without may leave at once: then little is saved.
    shares = Shares(0.0, max(1 - max(share, loads.fixed), 0.0))
    return result_of(
        kernel,
        f"No more than {accesses:,.0f} of the {warps:,} warps of {short(kernel)} read or write"
        " memory: the others keep nothing of what they compute, but for a vote of their block",
        (
            Figure("warps", warps),
            Figure("accesses_to_memory", accesses),
            percent("warps_with_access_at_most", share, MOST_WITH_ACCESS),
        ),
        "Launch as many threads as there are elements: (n + threads - 1) / threads blocks for n of"
        f" them{_dimensions(kernel)}. Where a grid must be larger, let threads without an element"
        " return before they compute.",
        shares,
        "At most the share of the warps without an access, if they compute as long as the others;"
        " how soon they leave is not counted.",
        notice_at_most(shares),
    )


def _dimensions(kernel: KernelMetrics) -> str:
    """Return which extents a grid has, where it has more than one."""
    extents = [each for each in kernel.counters.grid if each > 1]
    if len(extents) < 2:
        return ""
    return f" (the grid has {' x '.join(map(str, extents))}, which multiply)"
