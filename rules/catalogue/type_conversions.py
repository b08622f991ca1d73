"""Kernels do nothing but convert tensors from one type to another, weights above all."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.estimates import LEAST_SAVED, PLAYED, Gain, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_families import CASTS, DEQUANTIZES
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.requirements import LAUNCHES
from gpuadvisor.rules.rule import Rule, RuleResult, percent

LEAST_SHARE = 0.1
"""Least share of the kernel time: autocast's own conversions of weights are a few percent of a
training step, and have to be. [own]"""
UNPACKED_HIGH = 0.8
"""Largest share of the time of unpacking quantized weights that is saved where the product does it:
it then reads a quarter or half of the bytes itself, and computes what the kernel did. [own]"""


RULE = Rule(Category.PRECISION, needs=(LAUNCHES,), knobs=("compile",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find conversions of types, and weights that are unpacked before they are used."""
    facts = evidence.known_facts
    uses = facts.kernel_uses
    casts = tuple(each for each in uses.uses if _only_casts(each))
    unpacked = tuple(each for each in uses.uses if DEQUANTIZES.search(each.name))
    found = (*casts, *unpacked)
    share = uses.share(found)
    if share < LEAST_SHARE:
        return
    gains = [Gain(each, LEAST_SAVED, 1.0) for each in casts]
    gains += [Gain(each, 0.0, UNPACKED_HIGH) for each in unpacked]
    parts = {
        "converting types": uses.share(casts),
        "unpacking quantized weights": uses.share(unpacked),
    }
    words = " and ".join(
        f"{part:.0%} into {what}" for what, part in parts.items() if round(100 * part)
    )
    yield RuleResult(
        f"Of the GPU's kernel time goes {words} ({named(found)})",
        (
            percent("type_conversions", share, LEAST_SHARE),
            percent("unpacked_weights", uses.share(unpacked)),
        ),
        "Keep tensors in the type that the products take: weights in bfloat16, or the compute type"
        " of the quantization library the same as the model's; compile the model, which joins a"
        " conversion with what uses it; take a product that reads quantized weights itself.",
        saving(facts, gains),
        f"Most of the conversions, and up to 80 % of the unpacking; {PLAYED}.",
    )


def _only_casts(use: KernelUse) -> bool:
    """Say whether a kernel copies a tensor into one of another type."""
    copies = "copy_kernel" in use.name or use.operator in ("aten::copy_", "aten::_to_copy")
    return copies and CASTS.search(use.name) is not None
