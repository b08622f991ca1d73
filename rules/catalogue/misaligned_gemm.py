"""Matrix products whose sizes are no multiples of 8 miss the fast tensor-core kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.device import per_clock
from gpuadvisor.rules.estimates import PLAYED, Gain, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.facts.roofline import sizes
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES, SHAPES, table
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent
from gpuadvisor.rules.tensor_cores import (
    ELEMENTS,
    MOST_USUAL,
    MOST_USUAL_PLAIN,
    gain_when_aligned,
    odd_channels,
)

UNALIGNED = re.compile(r"align[124](?!\d)")
"""Parts of the names of tensor-core kernels that load less at once."""
HALF = {"bf16", "fp16"}
PADS = re.compile(r"AddPadding")
"""cuDNN's kernels that copy images and weights into ones with channels that align."""
WITHOUT_TENSOR_CORES = re.compile(r"direct_kernel|implicit_convolve_sgemm")
"""cuDNN's kernels for convolutions that its others do not take."""
LEAST_OF_PADDING = 0.9
"""Least share of the padding's time that is saved: all of it, less what noise is. [own]"""

RULE = Rule(
    Category.ALIGNMENT,
    needs=(LAUNCHES, DEVICE, SHAPES, table("operators.types")),
    hides=("tensor_cores_unused",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find 16-bit products with sizes that do not align, in kernels that are not aligned either."""
    if "fp16" in per_clock(evidence):
        yield from _products(evidence)
        yield from _convolutions(evidence)


def _products(evidence: Evidence) -> Iterator[RuleResult]:
    facts = evidence.known_facts
    uses = facts.kernel_uses
    # Fused attention has no such products any more: `unfused_attention` names them.
    named_already = set(facts.attention.products.tolist())
    found = [
        (each, sizes)
        for each in uses.of("gemm")
        if (sizes := _misaligned(each)) and not named_already.issuperset(each.rows.tolist())
    ]
    some = tuple(each for each, _ in found)
    share = uses.share(some)
    if share < NOTICEABLE:
        return
    odd = ", ".join(str(size) for size in sorted({one for _, sizes in found[:3] for one in sizes}))
    gains = [Gain(each, *gain_when_aligned(evidence, each)) for each in some]
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into 16-bit matrix products with sizes that are"
        f" no multiples of {ELEMENTS} ({odd}), in slower kernels ({named(some)})",
        (percent("misaligned_products", share, NOTICEABLE),),
        f"Pad these sizes (vocabulary, hidden units, channels) to multiples of {ELEMENTS}, better"
        " of 64.",
        saving(facts, gains),
        f"What these products take at the rate of aligned ones (roofline), while {PLAYED}.",
    )


def _convolutions(evidence: Evidence) -> Iterator[RuleResult]:
    """Find convolutions whose channels cuDNN pads first, or that miss the tensor cores."""
    facts = evidence.known_facts
    uses = facts.kernel_uses
    odd = [
        each
        for each in uses.of("layout", "convolution")
        if each.precision in HALF and odd_channels(each.operator, each.shapes)
    ]
    pads = [each for each in odd if PADS.search(each.name)]
    plain = [each for each in odd if WITHOUT_TENSOR_CORES.search(each.name)]
    slow = (*pads, *plain)
    share = uses.share(slow)
    if share < NOTICEABLE:
        return
    gains = [Gain(each, LEAST_OF_PADDING, 1.0) for each in pads]
    gains += [
        Gain(each, 1 - 1 / MOST_USUAL_PLAIN, _most_of_plain(evidence, each)) for each in plain
    ]
    gains += [Gain(each, 0.0, 1 - 1 / MOST_USUAL) for each in odd if each.kind.tensor_cores]
    channels = sorted({one for each in slow for one in odd_channels(each.operator, each.shapes)})
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into 16-bit convolutions with channels that are"
        f" no multiples of {ELEMENTS} ({', '.join(map(str, channels[:3]))}), into padding them or"
        f" into kernels without tensor cores ({named(slow)})",
        (percent("misaligned_convolutions", share, NOTICEABLE),),
        f"Choose channels that are multiples of {ELEMENTS}, better of 64.",
        saving(facts, gains),
        f"All of the padding; kernels without tensor cores at the rate of those with them, at least"
        f" {MOST_USUAL_PLAIN:.0f} times as fast; at most half of the other kernels of these"
        f" convolutions; {PLAYED}.",
    )


def _most_of_plain(evidence: Evidence, use: KernelUse) -> float:
    """Return the share of a kernel's time that tensor cores save at most, by the GPU's rates."""
    rates = per_clock(evidence)
    return 1 - rates["fp32"] / rates[use.precision or "fp16"] if rates.get("fp32") else 1.0


def _misaligned(use: KernelUse) -> tuple[int, ...]:
    """Return the sizes of a product that do not align; none where the kernel loads aligned."""
    slow = use.kind.tensor_cores is False or UNALIGNED.search(use.name)
    told = sizes(use.operator, use.shapes) if slow and use.precision in HALF else None
    return () if told is None else tuple(each for each in told[1:] if each % ELEMENTS)
