"""Arithmetic in 64 bits on a GPU that is slow at it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.kernels import claim_of, knows, of_each, percent, short
from gpuadvisor.rules.rule import Claim, Rule

if TYPE_CHECKING:
    from gpuadvisor.analysis.kernel_figures import KernelFigures
    from gpuadvisor.analysis.kernel_loads import Loads

LEAST_BUSY = 0.15
"""Share of the units for 64 bits: Nsight Compute's threshold."""
FAST = ((7, 0), (7, 2), (8, 0), (9, 0), (10, 0))
"""Compute capabilities whose SMs do a quarter or more as many operations in 64 bits as in 32."""
GAIN = 16.0
"""By 32 bits, of the 32 to 64 of data sheets: conversions and addresses stay. [own]"""

RULE = Rule(
    Category.PRECISION,
    needs=(knows("fp64"),),
    hides=("compute", "latency", "occupancy", "tensor_core"),
)


def check(evidence: Evidence) -> Iterator[Claim]:
    """Find kernels that keep the few units for 64-bit floats busy."""
    yield from of_each(evidence, _look)


def _look(kernel: KernelFigures, loads: Loads) -> Claim | None:
    from gpuadvisor.analysis.kernel_loads import saved

    capability = kernel.device.compute_capability if kernel.device is not None else None
    busy = kernel.fp64
    if capability is None or capability in FAST or busy is None or busy < LEAST_BUSY:
        return None
    others = loads.compute if (kernel.compute or 0.0) > busy else kernel.issue
    if others is None:
        return None
    shares = saved(loads, replace(loads, compute=max(busy / GAIN, min(others, 1.0))))
    return claim_of(
        kernel,
        f"{short(kernel)} keeps the units for 64-bit floats {busy:.0%} busy, of which this GPU has"
        " few",
        (percent("fp64_busy", busy, LEAST_BUSY),),
        "Compute in 32 bits where that is enough: look for constants without an `f`, and for"
        " arrays that became `float64`.",
        shares,
        "At most the time of the busiest other unit, with the same work in 32 bits.",
    )
