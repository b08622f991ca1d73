"""A matrix product runs without tensor cores."""

from __future__ import annotations

import re

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.facts.kernel_loads import Loads
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    MOST_TENSOR,
    knows,
    notice_at_most,
    of_each,
    result_of,
    short,
    up_to,
)
from gpuadvisor.rules.rule import Rule, RuleResult, percent

PRODUCT = re.compile(r"gemm|mat_?mul|conv(?!ert)|bmm|_mm_|linear|attention", re.IGNORECASE)
"""Parts of the names of kernels that multiply matrices: counters alone do not tell a product from a
polynomial."""
LEAST_ARITHMETIC = 0.3
"""Multiplications with additions of 32 bits, of the most that the SMs do. [own]"""
LEAST_HALVES = 4.0
"""Fewest 16-bit multiplications: instructions of threads, a cycle and SM. [own]"""
SPEEDUP_32, SPEEDUP_16 = 2.0, 4.0
"""Speedup by tensor cores: of the 4 to 8 of data sheets what is left when memory has to keep up.
[own]"""
TF32_FROM = (8, 0)

RULE = Rule(
    Category.TENSOR_CORE, needs=(knows("tensor", "multiply_adds"),), knobs=("tf32", "bf16_autocast")
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find matrix products of 16 or 32-bit floats outside of tensor cores."""
    capability = kernel.device.compute_capability if kernel.device is not None else None
    if capability is None or kernel.tensor is None or kernel.tensor >= MOST_TENSOR:
        return None
    if PRODUCT.search(kernel.name) is None:
        return None
    halves, done = kernel.half_multiply_adds or 0.0, kernel.multiply_adds or 0.0
    if capability >= (7, 0) and halves >= LEAST_HALVES:
        return _claim(kernel, loads, "16", SPEEDUP_16, Figure("half_instructions", halves))
    if capability >= TF32_FROM and done >= LEAST_ARITHMETIC:
        figure = percent("multiply_adds_of_peak", done, LEAST_ARITHMETIC)
        return _claim(kernel, loads, "32", SPEEDUP_32, figure)
    return None


def _claim(
    kernel: KernelMetrics, loads: Loads, bits: str, speedup: float, figure: Figure
) -> RuleResult | None:

    high = 1 - max(1 / speedup, loads.dram, loads.fixed)
    shares = up_to(high)
    exact = bits == "32"
    severity: Severity | None = notice_at_most(shares) if exact else None
    return result_of(
        kernel,
        f"{short(kernel)} multiplies {bits}-bit floats without tensor cores",
        (percent("tensor_cores_busy", kernel.tensor or 0.0, MOST_TENSOR), figure),
        "Where 10 bits of mantissa are enough, let it use TF32 or 16-bit floats."
        if exact
        else "Use a library's matrix product, or `wmma` and `mma` instructions.",
        shares,
        f"At most {speedup:.0f} times as fast, until memory limits; at least half of that.",
        severity,
    )
