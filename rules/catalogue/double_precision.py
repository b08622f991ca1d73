"""Arithmetic in 64 bits where 32 bits are much faster."""

from __future__ import annotations

from dataclasses import replace

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.device import SLOW
from gpuadvisor.rules.facts.ceilings import operations_per_clock
from gpuadvisor.rules.facts.kernel_loads import Loads, Shares, saved
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import knows, of_each, result_of, short
from gpuadvisor.rules.rule import MOST, Rule, RuleResult, percent

LEAST_BUSY = 0.15
"""Share of the units for 64 bits: Nsight Compute's threshold."""
LEAST_BESIDE = 0.1
"""Share of the units for 64 bits beside the unit that converts: the other unit has a quarter of the
rate (CUDA C++ Programming Guide, arithmetic throughput), and there and back are two of its
instructions for at least one of theirs. A product and a sum kept them 94 and 12 % busy on an H100;
with less it is exponentials and sines that keep it busy."""

CONVERTED = 3.0
"""Instructions for one that would do: there, the operation, and back; with two operands more."""

RULE = Rule(
    Category.PRECISION,
    needs=(knows("fp64"),),
    hides=("compute", "latency", "occupancy", "tensor_core"),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels that keep the few units for 64-bit floats busy, or convert to them and back."""
    return _few(kernel, loads) or _back(kernel, loads)


def _few(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    busy, faster = kernel.fp64, _faster(kernel)
    if faster < SLOW or busy is None or busy < LEAST_BUSY:
        return None
    others = loads.compute if (kernel.compute or 0.0) > busy else kernel.issue_slot_utilization
    if others is None:
        return None
    shares = saved(loads, replace(loads, compute=max(busy / faster, min(others, 1.0))))
    return result_of(
        kernel,
        f"{short(kernel)} keeps the units for 64-bit floats {busy:.0%} busy, of which this GPU has"
        " few",
        (percent("fp64_busy", busy, LEAST_BUSY),),
        "Compute in 32 bits where that is enough: look for constants without an `f`, and for"
        " arrays that became `float64`.",
        shares,
        "At most the time of the busiest other unit, with the same work in 32 bits.",
    )


def _faster(kernel: KernelMetrics) -> float:
    """Return how many operations in 32 bits the GPU does for one in 64; 0 where it is not known."""
    device = kernel.device
    rates = {} if device is None else operations_per_clock(device.name, device.compute_capability)
    return rates["fp32"] / rates["fp64"] if rates.get("fp64") and "fp32" in rates else 0.0


def _back(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Look for values of 32 bits that are converted for an operation, on any GPU."""
    converting, busy, issue = kernel.xu_pipe, kernel.fp64, kernel.issue_slot_utilization
    if converting is None or busy is None or issue is None:
        return None
    if converting < max(MOST, kernel.compute or 0.0) or (busy < LEAST_BESIDE * converting):
        return None
    least, most = (
        saved(loads, replace(loads, compute=min(each, 1.0))) for each in (issue, issue / CONVERTED)
    )
    shares = Shares(min(least.low, most.low), most.high)
    return result_of(
        kernel,
        f"{short(kernel)} converts values of 32 bits to 64 bits and back, which keeps the unit for"
        f" that {converting:.0%} busy",
        (
            percent("conversions_busy", converting, MOST),
            percent("fp64_busy", busy, LEAST_BESIDE * converting),
        ),
        "Write constants of a 32-bit computation with an `f` (`0.5f`), and call the functions of 32"
        " bits (`expf`).",
        shares,
        "The time of the busiest other unit, with as many instructions as now or a third of them.",
    )
