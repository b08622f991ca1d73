"""The profile contains a first step that is much longer than the others."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.starting import FEWEST_STEPS, LONGER
from gpuadvisor.rules.requirements import STEPS
from gpuadvisor.rules.rule import Rule, RuleResult

RULE = Rule(Category.LATENCY, needs=(STEPS,))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Compare the first step with the others."""
    facts = evidence.known_facts
    steps = facts.steps
    assert steps is not None  # STEPS
    lengths = [step.duration_ns for step in steps.steps]
    if len(lengths) < FEWEST_STEPS:
        return
    usual = median(lengths[1:])
    # What comes again in the second half, such as an evaluation every so many steps, is none.
    if not usual or lengths[0] < LONGER * max(usual, *lengths[len(lengths) // 2 :]):
        return
    yield RuleResult(
        f"The first step takes {lengths[0] / 1e6:,.1f} ms and the others"
        f" {usual / 1e6:,.1f} ms in the median: the profile contains a warm-up",
        (
            Figure("first_step", round(lengths[0] / 1e6, 3), "ms", LONGER * usual / 1e6),
            Figure("median_of_the_others", round(usual / 1e6, 3), "ms"),
        ),
        "Read shares of this run with care, and profile later steps: what happens once (compiling,"
        " searching algorithms, starting workers) is no gain for the others.",
        severity=Severity.INFO,
    )
