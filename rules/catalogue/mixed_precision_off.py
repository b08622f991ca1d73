"""TF32 products or float32 attention dominate, which bfloat16 does at a multiple of the rate."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.device import per_clock, sm_count
from gpuadvisor.rules.estimates import PERSISTENT, PLAYED, Gain, filled, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES
from gpuadvisor.rules.rule import Rule, RuleResult, percent

LEAST_SHARE = 0.2
"""Least share of the kernel time in TF32 products and fused attention in float32: what a smaller
share saves is lost in the casts. [own]"""
LOW, HIGH = 0.22, 0.61
"""Share of a TF32 product's time that bfloat16 saves: twice the rate (data sheets of all tensor
cores that have both), of which products also reach more (0.85 instead of 0.66 on an H200), less
what casting costs. ResNet-50 on an H100 went from 148 to 124 ms with 23 % of its kernel time in
TF32 products; a program of 4096 x 4096 products on an H200 from 8.6 to 4.6 ms with 91 %."""
AROUND = ("normalization", "elementwise", "reduction", "softmax", "layout")
"""Families of kernels, part of which moves half the bytes under autocast."""
HIGH_AROUND = 0.5
"""Largest share of the time of the kernels in float32 around products that is saved, which is that
of half the bytes; of ResNet-50 it was a quarter, and most of the gain."""
SINGLE = ("tf32", "fp32")
"""Precisions of the products for which autocast converts something: what goes in and the weights
forward, gradients of weights backward, which is a kernel for each of the three products."""
ATTENTION_LOW, ATTENTION_HIGH = 0.7, 0.9
"""Share of the time of fused attention in float32 that bfloat16 saves: 0.25 to 0.6 of the tensor
cores' rate (as in `unfused_attention`) instead of that of float32 outside of them at most, which is
a 15th of it on an H100 and H200 and a 16th on an A100 (data sheets). A vision transformer on an
A100 had 31.6 s of it in float32 and 7.3 s in bfloat16."""

RULE = Rule(Category.PRECISION, needs=(LAUNCHES, DEVICE), knobs=("bf16_autocast",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find tensor-core products in TF32, and fused attention in float32."""
    facts = evidence.known_facts
    if "bf16" not in per_clock(evidence):
        return
    uses = facts.kernel_uses
    products = tuple(
        each
        for each in uses.of("gemm", "convolution")
        if each.kind.tensor_cores and each.precision == "tf32"
    )
    attention = tuple(each for each in uses.of("attention") if each.precision == "fp32")
    cast = uses.of("gemm", "convolution", "attention")
    in_products, in_attention = uses.share(products), uses.share(attention)
    if in_products + in_attention < LEAST_SHARE:
        return
    around = [each for each in uses.of(*AROUND) if each.precision == "fp32"]
    gains = [Gain(each, _least(evidence, each), HIGH) for each in products]
    gains += [Gain(each, 0.0, HIGH_AROUND) for each in around]
    gains += [Gain(each, ATTENTION_LOW, ATTENTION_HIGH) for each in attention]
    yield RuleResult(
        _fact(in_products, in_attention, named(products), named(attention)),
        (
            percent("tf32_products_and_fp32_attention", in_products + in_attention, LEAST_SHARE)
            if in_attention
            else percent("tf32_products", in_products, LEAST_SHARE),
        ),
        "Try bfloat16 autocast, and compare the losses.",
        saving(facts, gains, [each for each in cast if each.precision in SINGLE]),
        f"{LOW:.0%} to {HIGH:.0%} of the products, {ATTENTION_LOW:.0%} to {ATTENTION_HIGH:.0%} of"
        f" fused attention and up to half of what else surrounds them; {PLAYED}, and at least with"
        " a launch more for each product, which casts.",
    )


def _least(evidence: Evidence, use: KernelUse) -> float:
    """Return the least share of a product's time that is saved: nothing is sure where it leaves
    most multiprocessors idle, for then the peak rate does not set its time, but how long each block
    waits for memory and for its own instructions."""
    share = filled(evidence.known_facts, use, sm_count(evidence))
    return LOW if share is None or share >= PERSISTENT else 0.0


def _fact(in_products: float, in_attention: float, products: str, attention: str) -> str:
    parts = []
    if in_products:
        parts.append(
            f"{in_products:.0%} of the GPU's kernel time goes into matrix products in TF32"
            f" ({products}), which bfloat16 does at twice the rate"
        )
    if in_attention:
        parts.append(
            f"{in_attention:.0%} of the GPU's kernel time goes into fused attention in float32"
            f" ({attention}), which bfloat16 does at several times the rate"
        )
    return ", and ".join(parts)
