"""Matrix products that tensor cores could do run without them."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.device import per_clock
from gpuadvisor.rules.estimates import PLAYED, Gain, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent
from gpuadvisor.rules.tensor_cores import gain_of

RULE = Rule(Category.TENSOR_CORE, needs=(LAUNCHES, DEVICE), knobs=("fp16_autocast",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find 16-bit products outside of the tensor cores; before Ampere FP32 ones too."""
    facts = evidence.known_facts
    rates = per_clock(evidence)
    targets: dict[str | None, str] = {each: each for each in ("fp16", "bf16") if each in rates}
    if "fp16" in rates and "tf32" not in rates:
        targets["fp32"] = "fp16"
    uses = facts.kernel_uses
    found = tuple(
        each
        for each in uses.of("gemm", "convolution")
        if each.kind.tensor_cores is False and each.precision in targets
    )
    share = uses.share(found)
    if share < NOTICEABLE:
        return
    in_fp32 = [each for each in found if each.precision == "fp32"]
    gains = [Gain(each, *gain_of(evidence, each, targets[each.precision])) for each in found]
    mostly_fp32 = 2 * sum(each.time_ns for each in in_fp32) > sum(each.time_ns for each in found)
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into matrix products and convolutions in"
        f" {'float32' if mostly_fp32 else '16 bits'} without tensor cores ({named(found)})",
        (percent("products_without_tensor_cores", share, NOTICEABLE),),
        "Use automatic mixed precision in float16 with a gradient scaler: this GPU's tensor cores"
        " take no float32."
        if mostly_fp32
        else "Make the sizes of layers, channels and batches multiples of 8, and contiguous.",
        saving(facts, gains),
        f"What these products take at the rate of tensor cores (roofline), while {PLAYED}.",
        knobs=RULE.knobs if mostly_fp32 else (),
    )
