"""Threads of a warp store to places far apart."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.coalescing import HIDES, by_requests, uncoalesced
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.kernels import counts, knows
from gpuadvisor.rules.requirements import either
from gpuadvisor.rules.rule import Rule, RuleResult

ADVICE = (
    "Let neighbouring threads write neighbouring addresses: swap the indices, or collect a tile in"
    " shared memory and write it row by row."
)

RULE = Rule(
    Category.COALESCING,
    needs=(
        either((knows("sectors", "ideal_sectors", "local_sectors"),), (counts("store_sectors"),)),
    ),
    hides=HIDES,
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find kernels whose stores move more than their threads write."""
    yield from uncoalesced("st", "stores", ADVICE)(evidence)
    yield from by_requests("st", "stores", ADVICE)(evidence)
