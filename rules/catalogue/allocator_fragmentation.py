"""The allocator holds much more memory than it has given out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.device import GIB, NEARLY_FULL, peak_of
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import DEVICE, MEMORY, table
from gpuadvisor.rules.rule import MOST, Rule, RuleResult, percent

LEAST_UNUSED = 0.3
"""Least share of the reserved memory, not in use even at the peak. [own]"""

RULE = Rule(
    Category.ALLOCATOR,
    needs=(MEMORY, DEVICE, table("memory.reserved_bytes")),
    knobs=("allocator",),
    hides=("memory_nearly_full",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Compare the peaks of reserved and of allocated memory."""
    peak = peak_of(evidence)
    if peak is None or peak.reserved_share < MOST:
        return
    unused = 1 - peak.allocated / peak.reserved
    if unused < LEAST_UNUSED:
        return
    yield RuleResult(
        f"{unused:.0%} of the {peak.reserved / GIB:.1f} GiB that the allocator reserved was never"
        " in use at once",
        (
            percent("reserved_not_allocated", unused, LEAST_UNUSED),
            percent("reserved", peak.reserved_share, MOST, "% of the GPU's memory"),
        ),
        "Let segments grow: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; pad inputs to few"
        " sizes.",
        method="No matter of time, but of the memory that is left.",
        severity=Severity.WARNING if peak.reserved_share >= NEARLY_FULL else Severity.NOTICE,
    )
