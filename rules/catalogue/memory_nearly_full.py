"""The GPU's memory is nearly full."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.device import GIB, NEARLY_FULL, held_figures, peak_of
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import DEVICE, MEMORY
from gpuadvisor.rules.rule import Rule, RuleResult, percent

RULE = Rule(Category.MEMORY_CAPACITY, needs=(MEMORY, DEVICE), knobs=("bf16_autocast",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Compare the peak with what the GPU has."""
    peak = peak_of(evidence)
    if peak is None or peak.reserved_share < NEARLY_FULL:
        return
    allocated = peak.allocated_share
    yield RuleResult(
        f"{peak.reserved / GIB:.1f} of the GPU's {peak.total / GIB:.1f} GiB were reserved, and"
        f" {peak.allocated / GIB:.1f} in use at the peak",
        (
            percent("reserved", peak.reserved_share, NEARLY_FULL),
            percent("allocated", allocated, NEARLY_FULL),
            *held_figures(evidence),
        ),
        "Leave room for a larger sample: checkpoint activations, use 16 bits, or a smaller batch.",
        method="No matter of time: a larger allocation fails.",
        severity=Severity.WARNING if allocated >= NEARLY_FULL else Severity.NOTICE,
    )
