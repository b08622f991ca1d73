"""Kernels convert tensors between NCHW and NHWC around convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.estimates import PLAYED, Gain, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_families import NATIVE_NCHW, NORMALIZES_NCHW
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES
from gpuadvisor.rules.rule import Rule, RuleResult, percent
from gpuadvisor.rules.tensor_cores import odd_channels

LEAST_SHARE = 0.03
"""Least share of the kernel time: what else is faster in NHWC adds to it. [own]"""
LOW, HIGH = 0.5, 1.0
"""Share of the conversions' time that is saved; weights and what is no convolution keep some, and
the convolutions' own kernels may be others then: 0.6 of a plain network's on an H200 (15.3 to
13.1 ms, of which conversions were 3.7). [own]"""
NORMALIZATION_HIGH = 0.6
"""Largest share that is saved of the time of batch normalisation in NCHW, which has one block a
channel. ResNet-50 on an H100 went from 148 to 113 ms, which is twice the time of its
conversions."""
NATIVE_LOW = 0.2
"""Least share of PyTorch's own batch normalisation in NCHW that is saved: channels_last took 42 %
off a run under AMP of which it was 53 % and conversions 10 %, so 0.6 there. [own]"""

RULE = Rule(Category.LAYOUT, needs=(LAUNCHES, DEVICE), knobs=("channels_last",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find cuDNN's own conversions."""
    facts = evidence.known_facts
    uses = facts.kernel_uses
    # What pads channels of the user's choice is `misaligned_gemm`'s: no layout changes that.
    found = tuple(e for e in uses.of("layout") if not odd_channels(e.operator, e.shapes))
    share = uses.share(found)
    if share < LEAST_SHARE or not uses.of("convolution"):
        return
    gains = [Gain(each, LOW, HIGH) for each in found]
    gains += [
        Gain(each, 0.0, NORMALIZATION_HIGH)
        for each in uses.of("normalization")
        if NORMALIZES_NCHW.search(each.name)
    ]
    gains += [
        Gain(each, NATIVE_LOW, NORMALIZATION_HIGH)
        for each in uses.of("normalization")
        if NATIVE_NCHW.search(each.name)
    ]
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into converting tensors for convolutions"
        f" ({named(found)})",
        (percent("layout_conversions", share, LEAST_SHARE),),
        "Keep images and weights in channels_last:"
        " `model.to(memory_format=torch.channels_last)`, and the input as well.",
        saving(facts, gains),
        f"Most of the conversions, and up to 60 % of batch normalisation in NCHW (at least 20 % of"
        f" PyTorch's own); {PLAYED}.",
    )
