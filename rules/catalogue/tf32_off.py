"""Matrix products of 32-bit floats leave the tensor cores unused."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.device import per_clock
from gpuadvisor.rules.estimates import PLAYED, Gain, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent
from gpuadvisor.rules.tensor_cores import convolves, gain_of

ADVICE = (
    'Allow TF32: `torch.set_float32_matmul_precision("high")`, and for convolutions'
    " `torch.backends.cudnn.allow_tf32 = True`; bfloat16 autocast is faster still."
)

RULE = Rule(Category.TENSOR_CORE, needs=(LAUNCHES, DEVICE), knobs=("tf32", "bf16_autocast"))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find FP32 products outside of the tensor cores, where none like them uses TF32."""
    facts = evidence.known_facts
    if "tf32" not in per_clock(evidence):
        return
    uses = facts.kernel_uses
    products = uses.of("gemm", "convolution")
    found = tuple(
        each
        for each in products
        if each.kind.tensor_cores is False
        and each.precision == "fp32"
        and not any(_alike(each, other) for other in products if other.precision == "tf32")
    )
    share = uses.share(found)
    if share < NOTICEABLE:
        return
    gains = [Gain(each, *gain_of(evidence, each, "tf32")) for each in found]
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into float32 matrix products without tensor"
        f" cores ({named(found)})",
        (percent("fp32_products_without_tensor_cores", share, NOTICEABLE),),
        ADVICE,
        saving(facts, gains),
        f"What these products take at TF32 rates (roofline), while {PLAYED}.",
        program_advice="Allow TF32: `cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH)`, and"
        " for convolutions cudnnSetConvolutionMathType.",
    )


def _alike(one: KernelUse, allowed: KernelUse) -> bool:
    """Return whether the same switch rules both; without its operator a product can be either."""
    return not allowed.operator or convolves(one) == convolves(allowed)
