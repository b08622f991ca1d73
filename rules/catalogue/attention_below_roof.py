"""Fused attention is far below what the GPU can do at its size."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules import below_roof
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.roofline import ATTENTION, Attended, attended
from gpuadvisor.rules.rule import RuleResult

FAR = 0.25
"""Share of both ceilings, of the arithmetic and of the memory, below which attention is far from
them. On long sequences FlashAttention-2 reaches 0.35 to 0.4 of an H100's rate and 0.5 to 0.7 of an
A100's, FlashAttention-3 0.6 to 0.75 of an H100's (the papers of both)."""

RULE = below_roof.rule(Category.ATTENTION, ("sdpa_backend", "batch_size"))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find the shapes of attention that reach little of either ceiling."""
    for found in below_roof.below(evidence, ATTENTION, FAR):
        told = attended(found.operator, found.shapes, found.inputs)
        if told is None:  # the profiler counted its operations, of shapes that are not told
            continue
        yield below_roof.result(
            evidence,
            found,
            _words(told),
            FAR,
            "Let another kernel compute it (cuDNN's is often faster on Hopper), in 16 bits, with"
            " heads of 64 or 128; short sequences fill the GPU in a larger batch only.",
        )


def _words(told: Attended) -> str:
    """Return `8 sequences with 12 heads, 512 queries by 512 keys of 64, causal`."""
    count = f"{told.batch} sequences" if told.batch > 1 else "1 sequence"
    heads = f"{told.heads} heads" if told.heads > 1 else "1 head"
    words = f"{count} with {heads}, {told.rows} queries by {told.columns} keys of {told.width}"
    if told.is_causal is None:
        return f"{words}, causal or not,"
    return f"{words}, causal," if told.is_causal else words
