"""A matrix product is far below what the GPU can do at its size."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules import below_roof
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.roofline import FACTORS, sizes
from gpuadvisor.rules.rule import RuleResult

FAR = 0.5
"""Share of both ceilings, of the arithmetic and of the memory, below which a product is far from
them: libraries reach 60 to 90 % at sizes that fill a GPU. [own]"""

RULE = below_roof.rule(Category.COMPUTE, ("batch_size", "compile_max_autotune"))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find the shapes of matrix products that reach little of either ceiling."""
    for found in below_roof.below(evidence, FACTORS, FAR):
        size = sizes(found.operator, found.shapes)
        if size is None:  # the profiler counted its operations, of shapes that are not told
            continue
        batch, rows, inner, columns = size
        yield below_roof.result(
            evidence,
            found,
            f"{rows}x{inner} by {inner}x{columns}{f', {batch} of them' if batch > 1 else ''}",
            FAR,
            "Make products larger, which fill the GPU: a larger batch, or several of them as one"
            " (projections of the same input, torch.bmm); else let the compiler choose its kernel"
            " (max-autotune).",
        )
