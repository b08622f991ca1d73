"""Matrix products whose sizes are no multiples of 8 miss the fast tensor-core kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.device import per_clock
from gpuadvisor.rules.estimates import LEAST_SHARE, PLAYED, Gain, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.facts.roofline import sizes
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES, SHAPES, table
from gpuadvisor.rules.rule import Rule, RuleResult, percent
from gpuadvisor.rules.tensor_cores import gain_when_aligned

ELEMENTS = 8
"""Elements of 16 bits that align: 16 bytes, which one load of the tensor cores' kernels takes
(NVIDIA's Deep Learning Performance Guide; PyTorch's tuning guide)."""
UNALIGNED = re.compile(r"align[124](?!\d)")
"""Parts of the names of tensor-core kernels that load less at once."""
HALF = {"bf16", "fp16"}

RULE = Rule(
    Category.ALIGNMENT,
    needs=(LAUNCHES, DEVICE, SHAPES, table("operators.types")),
    hides=("tensor_cores_unused",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find 16-bit products with sizes that do not align, in kernels that are not aligned either."""
    facts = evidence.known_facts
    uses = facts.kernel_uses
    if "fp16" not in per_clock(evidence):
        return
    # Fused attention has no such products any more: `unfused_attention` names them.
    named_already = set(facts.attention.products.tolist())
    found = [
        (each, sizes)
        for each in uses.of("gemm")
        if (sizes := _misaligned(each)) and not named_already.issuperset(each.rows.tolist())
    ]
    some = tuple(each for each, _ in found)
    share = uses.share(some)
    if share < LEAST_SHARE:
        return
    odd = ", ".join(str(size) for size in sorted({one for _, sizes in found[:3] for one in sizes}))
    gains = [Gain(each, *gain_when_aligned(evidence, each)) for each in some]
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into 16-bit matrix products with sizes that are"
        f" no multiples of {ELEMENTS} ({odd}), in slower kernels ({named(some)})",
        (percent("misaligned_products", share, LEAST_SHARE),),
        f"Pad these sizes (vocabulary, hidden units, channels) to multiples of {ELEMENTS}, better"
        " of 64.",
        saving(facts, gains),
        f"What these products take at the rate of aligned ones (roofline), while {PLAYED}.",
    )


def _misaligned(use: KernelUse) -> tuple[int, ...]:
    """Return the sizes of a product that do not align; none where the kernel loads aligned."""
    slow = use.kind.tensor_cores is False or UNALIGNED.search(use.name)
    told = sizes(use.operator, use.shapes) if slow and use.precision in HALF else None
    return () if told is None else tuple(each for each in told[1:] if each % ELEMENTS)
