"""Kernels compute in 64-bit floats: on a GPU that is slow at them, or in a program of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.device import SLOW, per_clock
from gpuadvisor.rules.estimates import PLAYED, Gain, named, saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_families import ONE_VECTOR, takes_doubles
from gpuadvisor.rules.facts.kernels import KernelUse
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent

PRODUCT_LOW, PRODUCT_HIGH = 0.85, 0.985
"""Share of a product's time that FP32 saves, at a 32nd to a 64th of its rate; not of one with a
single vector, which memory limits. [own]"""
FAST_LOW, FAST_HIGH = 0.0, 0.875
"""Share of a product's time that FP32 saves on a GPU with tensor cores for doubles: none where
FP32 runs without them, at the same rate (19.5 TFLOP/s on A100, 67 on H100 and H200), and 1 - 1/8
with TF32 (156 and 495; data sheets)."""
OTHER_LOW, OTHER_HIGH = 0.45, 0.95
"""Share of the time of other kernels that FP32 saves: half the bytes, down to a twentieth where
arithmetic was the limit. [own]"""
ARRAYS_LOW = 0.0
"""Share of the time of kernels that take arrays of doubles that FP32 saves at least: what they
compute is not known, nor whether these arrays are most of what they move."""

RULE = Rule(Category.PRECISION, needs=(LAUNCHES, DEVICE))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find kernels of doubles."""
    facts = evidence.known_facts
    rates = per_clock(evidence)
    ratio = rates.get("fp32", 0) / rates["fp64"] if rates.get("fp64") else 0.0
    slow = ratio >= SLOW and "fp64_tensor" not in rates
    if not ratio or not (slow or facts.is_of_pytorch):
        return
    uses = facts.kernel_uses
    taking = tuple(each for each in uses.uses if slow and _arrays(each))
    computing = tuple(each for each in uses.uses if each.precision == "fp64")
    found = (*computing, *taking)
    share = uses.share(found)
    if share < NOTICEABLE:
        return
    which = (
        "which this GPU computes at 1/{:.0f} of its float32 rate"
        if slow
        else ("twice the bytes of float32, and products without TF32")
    )
    figures = [percent("fp64_kernel_time", share, NOTICEABLE)]
    if slow:
        figures.append(Figure("fp32_rate_over_fp64_rate", ratio, "", SLOW))
    goes = "is of kernels that work on or take" if taking else "goes into"
    products = "at the float32 rate" if slow else "at the rate of FP32 to that of TF32"
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time {goes} 64-bit floats ({named(found)}),"
        f" {which.format(ratio)}",
        tuple(figures),
        "Convert the input to float32, unless the results need doubles: a NumPy array without a"
        " dtype makes 64-bit tensors, as does `.double()`.",
        saving(facts, [_gain(each, slow) for each in found]),
        f"Products {products}, other kernels with half the bytes or a twentieth of the"
        f" arithmetic; {PLAYED}.",
        program_advice="Compute in 32 bits, unless the results need doubles: parameters and"
        " variables of `double`, and constants without an `f`, make 64-bit arithmetic.",
        severity=None if uses.share(computing) >= NOTICEABLE else Severity.NOTICE,
    )


def _arrays(use: KernelUse) -> bool:
    """Say whether only what it takes tells that a kernel works on doubles."""
    return use.precision is None and takes_doubles(use.name)


def _gain(use: KernelUse, slow: bool) -> Gain:
    if _arrays(use):
        return Gain(use, ARRAYS_LOW, OTHER_HIGH)
    if use.kind.family in ("gemm", "convolution") and not ONE_VECTOR.search(use.name):
        return Gain(use, PRODUCT_LOW, PRODUCT_HIGH) if slow else Gain(use, FAST_LOW, FAST_HIGH)
    return Gain(use, OTHER_LOW, OTHER_HIGH)
