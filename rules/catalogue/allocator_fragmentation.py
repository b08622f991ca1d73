"""The allocator holds much more memory than it has given out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.device import GIB, peak_of
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import DEVICE, MEMORY, table
from gpuadvisor.rules.rule import Rule, RuleResult, percent

LEAST_UNUSED = 0.3
"""Least share of the reserved memory, not in use even at the peak. [own]"""
LEAST_RESERVED = 0.5
"""Least share of the GPU's memory: below, nobody needs what lies unused. [own]"""
PRESSING = 0.85
"""Share of the GPU's memory, from which on the next allocation may fail for it. [own]"""

RULE = Rule(
    Category.ALLOCATOR,
    needs=(MEMORY, DEVICE, table("memory.reserved_bytes")),
    knobs=("allocator",),
    hides=("memory_nearly_full",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Compare the peaks of reserved and of allocated memory."""
    peak = peak_of(evidence)
    if peak is None or peak.reserved_share < LEAST_RESERVED:
        return
    unused = 1 - peak.allocated / peak.reserved
    if unused < LEAST_UNUSED:
        return
    yield RuleResult(
        f"{unused:.0%} of the {peak.reserved / GIB:.1f} GiB that the allocator reserved was never"
        " in use at once",
        (
            percent("reserved_not_allocated", unused, LEAST_UNUSED),
            percent("reserved", peak.reserved_share, LEAST_RESERVED, "% of the GPU's memory"),
        ),
        "Let segments grow: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; pad inputs to few"
        " sizes.",
        method="No matter of time, but of the memory that is left.",
        severity=Severity.WARNING if peak.reserved_share >= PRESSING else Severity.NOTICE,
    )
