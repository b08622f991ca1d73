"""Operators of which the operations are known, against what the GPU can do: for the rules about
matrix products and about attention."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.roofline import OperatorPosition, rows_of
from gpuadvisor.rules.requirements import CEILINGS, LAUNCHES, SHAPES, table
from gpuadvisor.rules.rule import SERIOUS, Rule, RuleResult, percent

MOST = 3
"""Operators that are named, those with most time. [own]"""
METHOD = "How much other sizes or kernels would save is not known from a trace."


def rule(category: Category, knobs: tuple[str, ...]) -> Rule:
    """Return a rule about operators whose operations follow from shapes and types."""
    return Rule(category, (LAUNCHES, SHAPES, table("operators.types"), CEILINGS), knobs)


def below(evidence: Evidence, names: Container[str], far: float) -> Iterator[OperatorPosition]:
    """Yield operators of some names that take a part of the kernel time that matters, and reach
    less than a share of both ceilings: of the arithmetic and of the memory."""
    facts = evidence.known_facts
    least_ns = SERIOUS * facts.kernel_uses.time_ns
    found = (each for each in facts.rooflines if each.operator in names and _reached(each) < far)
    yield from islice((each for each in found if each.device_ns >= least_ns > 0), MOST)


def _reached(found: OperatorPosition) -> float:
    """Return the larger of its shares of the ceilings; 1 where they are not known."""
    at = found.position
    if at.compute_share is None or at.memory_share is None:
        return 1.0
    return max(at.compute_share, at.memory_share)


def result(
    evidence: Evidence, found: OperatorPosition, what: str, far: float, advice: str
) -> RuleResult:
    """Return what is said of one that is far below, in words for what it computes."""
    facts, at = evidence.known_facts, found.position
    assert at.flops_per_s is not None and at.compute_share is not None
    assert at.memory_share is not None
    share = found.device_ns / facts.kernel_uses.time_ns
    roof = None if evidence.ceilings is None else evidence.ceilings.get(found.precision)
    whose = "which was measured on this GPU"
    if roof is None or not roof.is_measured:
        whose = "by its data sheet, which no program quite reaches"
    plain, bound = found.precision.removesuffix("_tensor"), "at most " if found.at_most else ""
    return RuleResult(
        f"{found.operator} of {what} has {share:.0%} of the GPU's kernel time and reaches"
        f" {bound}{at.flops_per_s / 1e12:.3g} TFLOP/s, {_share(at.compute_share)} of the GPU's"
        f" {plain} rate {whose}, and {_share(at.memory_share)} of its memory bandwidth",
        (
            percent("kernel_time", share, SERIOUS),
            percent("share_of_arithmetic_rate", at.compute_share, far),
            percent("share_of_memory_bandwidth", at.memory_share, far),
            Figure("operators", found.count),
        ),
        advice,
        method=METHOD,
        severity=Severity.INFO,
        work=facts.launching.work_within(rows_of(facts.profile, found)),
    )


def _share(share: float) -> str:
    """Return `34%`, and of less than one percent `0.4%`."""
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"
