"""Most of the GPU's memory is free."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.device import GIB, MIB, held_figures, peak_of
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import DEVICE, MEMORY, table
from gpuadvisor.rules.rule import MOST, Rule, RuleResult, percent

RULE = Rule(
    Category.MEMORY_CAPACITY,
    needs=(MEMORY, DEVICE, table("memory.reserved_bytes")),
    knobs=("batch_size",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Say how much room there is."""
    peak = peak_of(evidence)
    if peak is None or peak.reserved_share > MOST:
        return
    yield RuleResult(
        f"{peak.reserved / MIB:,.0f} MiB of the GPU's {peak.total / GIB:.1f} GiB were reserved"
        " at the peak",
        (percent("reserved", peak.reserved_share, MOST), *held_figures(evidence)),
        "A larger batch would fit, where the GPU is the limit and not its host.",
        method="No matter of time by itself.",
        severity=Severity.INFO,
    )
