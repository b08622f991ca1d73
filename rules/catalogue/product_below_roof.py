"""A matrix product is far below what the GPU can do at its size."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.intervals import IntArray
from gpuadvisor.rules.facts.roofline import FACTORS, OperatorPosition, sizes
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.requirements import CEILINGS, LAUNCHES, SHAPES, table
from gpuadvisor.rules.rule import Rule, RuleResult, percent

LEAST_SHARE = 0.05
"""Least share of the kernel time that one operator takes at one size. [own]"""
FAR = 0.5
"""Share of both ceilings, of the arithmetic and of the memory, below which a product is far from
them: libraries reach 60 to 90 % at sizes that fill a GPU. [own]"""
MOST = 3
"""Products that are named, those with most time. [own]"""

RULE = Rule(
    Category.COMPUTE,
    needs=(LAUNCHES, SHAPES, table("operators.types"), CEILINGS),
    knobs=("batch_size", "compile_max_autotune"),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find the shapes of matrix products that reach little of either ceiling."""
    facts = evidence.known_facts
    total = facts.kernel_uses.time_ns
    far = (each for each in facts.rooflines if _reached(each) < FAR)
    for each in islice((one for one in far if one.device_ns >= LEAST_SHARE * total), MOST):
        if total:
            yield _result(evidence, each, each.device_ns / total)


def _reached(found: OperatorPosition) -> float:
    """Return the larger of its shares of the ceilings; 1 where that is no product, or not known."""
    at = found.position
    if found.operator not in FACTORS or at.compute_share is None or at.memory_share is None:
        return 1.0
    return max(at.compute_share, at.memory_share)


def _result(evidence: Evidence, found: OperatorPosition, share: float) -> RuleResult:
    at, size = found.position, sizes(found.operator, found.shapes)
    assert at.flops_per_s is not None and at.compute_share is not None
    assert at.memory_share is not None and size is not None
    batch, rows, inner, columns = size
    what = f"{rows}x{inner} by {inner}x{columns}{f', {batch} of them' if batch > 1 else ''}"
    roof = None if evidence.ceilings is None else evidence.ceilings.get(found.precision)
    whose = "which was measured on this GPU"
    if roof is None or not roof.is_measured:
        whose = "by its data sheet, which no program quite reaches"
    plain = found.precision.removesuffix("_tensor")
    return RuleResult(
        f"{found.operator} of {what} has {share:.0%} of the GPU's kernel time and reaches"
        f" {at.flops_per_s / 1e12:.3g} TFLOP/s, {at.compute_share:.0%} of the GPU's {plain} rate"
        f" {whose}, and {at.memory_share:.0%} of its memory bandwidth",
        (
            percent("kernel_time", share, LEAST_SHARE),
            percent("share_of_arithmetic_rate", at.compute_share, FAR),
            percent("share_of_memory_bandwidth", at.memory_share, FAR),
            Figure("products", found.count),
        ),
        "Make products larger, which fill the GPU: a larger batch, or several of them as one"
        " (projections of the same input, torch.bmm); else let the compiler choose its kernel"
        " (max-autotune).",
        method="How much other sizes or kernels would save is not known from a trace.",
        severity=Severity.INFO,
        work=_rows(evidence.known_facts, found),
    )


def _rows(facts: Facts, found: OperatorPosition) -> IntArray:
    """Return the rows of the device's work that operators of this name and shapes launched."""
    key = found.operator, found.shapes, found.types
    rows = [e.rows for e in facts.kernel_uses.uses if (e.operator, e.shapes, e.types) == key]
    return np.concatenate([np.empty(0, np.int64), *rows])
