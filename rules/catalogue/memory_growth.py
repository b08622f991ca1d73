"""Allocated memory rises with every step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.device import MIB, peak_of
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import DEVICE, MEMORY, STEPS
from gpuadvisor.rules.rule import Rule, RuleResult

WARM_UP = 2
"""Steps in which optimizers and libraries allocate what they keep. [own]"""
FEWEST = 5
"""Steps after them in which it rises each time: of what goes up and down by chance, one in 32 does
so."""
LEAST_BYTES = MIB
"""Least growth in every one of the steps, which is told in these: kept losses are a few bytes, kept
graphs are megabytes."""

RULE = Rule(Category.MEMORY_CAPACITY, needs=(MEMORY, STEPS, DEVICE))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Compare what is allocated at the begin of each step."""
    peak = peak_of(evidence)
    levels = evidence.known_facts.allocated_at_steps[WARM_UP:]
    rises = [after - before for before, after in pairwise(levels)]
    if peak is None or len(rises) < FEWEST or min(rises) < LEAST_BYTES:
        return
    rise = sorted(rises)[len(rises) // 2]
    left = (peak.total - peak.allocated) / rise
    yield RuleResult(
        f"Allocated memory rises by {rise / MIB:,.0f} MiB with every step: the GPU is full in"
        f" {left:,.0f} steps",
        (
            Figure("rise_a_step", round(rise / MIB, 1), "MiB", LEAST_BYTES / MIB),
            Figure("steps", len(rises), "", FEWEST),
        ),
        "Look for what is kept: losses added up without `.item()` or `.detach()`, lists of"
        " outputs.",
        method="No matter of time: the program ends without memory.",
        severity=Severity.WARNING,
    )
