"""Threads of a warp load from places far apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.coalescing import HIDES, by_requests, uncoalesced
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_loads import ATTAINABLE, Loads, saved
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import counts, knows, of_each, result_of, short
from gpuadvisor.rules.requirements import either
from gpuadvisor.rules.rule import Rule, RuleResult

LEAST_WAVEFRONTS = 6.0
"""Fewest wavefronts of the L1 cache for each request of a warp: 4 are needed for 16 bytes a thread,
side by side; some chips count half as many as others. [own]"""
LEAST_LOADS = 0.4
"""Results that are written back for each request: where most requests are loads it is 0.5 or 1,
depending on the chip. [own]"""

ADVICE = (
    "Let neighbouring threads read neighbouring addresses: swap the indices, keep arrays of each"
    " field instead of an array of records, or read a tile into shared memory first."
)

RULE = Rule(
    Category.COALESCING,
    needs=(
        either(
            (knows("sectors", "ideal_sectors", "local_sectors"),),
            (knows("wavefront_share", "request_share", "load_share", "shared_bytes"),),
            (counts("load_sectors"),),
        ),
    ),
    hides=HIDES,
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find kernels whose loads move more than their threads use."""
    yield from uncoalesced("ld", "loads", ADVICE)(evidence)
    yield from _by_wavefronts(evidence)
    yield from by_requests("ld", "loads", ADVICE)(evidence)


@of_each
def _by_wavefronts(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Look at the cycles of the L1 cache where no counts of sectors were collected."""
    cycles, requests, back = kernel.wavefront_share, kernel.request_share, kernel.load_share
    if kernel.sectors is not None or cycles is None or not requests or back is None:
        return None
    each = cycles / requests
    if kernel.shared_bytes != 0 or each < LEAST_WAVEFRONTS or back < LEAST_LOADS * requests:
        return None
    shares = saved(loads, replace(loads, l1=min(requests / ATTAINABLE, loads.l1)))
    return result_of(
        kernel,
        f"The loads of {short(kernel)} keep the L1 cache busy {each:.0f} times as long as loads"
        " from neighbouring addresses would",
        (Figure("l1_wavefronts_per_request", round(each, 1), "", LEAST_WAVEFRONTS),),
        ADVICE,
        shares,
        "The time of the busiest unit, were each request served at once.",
    )
