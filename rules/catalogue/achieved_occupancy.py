"""Far fewer warps run than fit on the multiprocessors."""

from __future__ import annotations

import math

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.facts.kernel_loads import Loads, room
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    MOST_BUSY,
    knows,
    of_each,
    result_of,
    short,
    unless_library,
    up_to,
)
from gpuadvisor.rules.rule import Rule, RuleResult, percent

MOST_ACHIEVED = 0.75
"""Largest share of the theoretical occupancy, without what the last round of blocks leaves empty:
below, a quarter of the warps is missing. Nsight Compute speaks from 10 points on, which short
healthy kernels miss too. [own]"""

RULE = Rule(
    Category.OCCUPANCY,
    needs=(knows("theoretical_occupancy", "achieved_occupancy", "waves", "idle_multiprocessors"),),
    hides=("latency", "dram_bandwidth", "compute"),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels that wait while warps of theirs could run."""
    theoretical, achieved = kernel.theoretical_occupancy, kernel.achieved_occupancy
    if not theoretical or achieved is None or kernel.waves is None or kernel.waves < 1:
        return None
    filled = achieved / theoretical * math.ceil(kernel.waves) / kernel.waves
    spare = room(kernel, loads)
    if spare is None or filled >= MOST_ACHIEVED or kernel.busiest >= MOST_BUSY:
        return None
    high = min(1 - filled, spare)
    shares = up_to(high)
    return result_of(
        kernel,
        f"{short(kernel)} keeps {achieved:.0%} of the warps running that an SM can hold, though"
        f" {theoretical:.0%} would fit",
        (
            percent("achieved_occupancy", achieved, MOST_ACHIEVED * theoretical),
            percent("theoretical_occupancy", theoretical),
            percent("busiest_unit", kernel.busiest, MOST_BUSY),
        ),
        "Give warps and blocks work of about the same length, and blocks enough of it that"
        " starting them does not count.",
        shares,
        "At most what the missing warps would add until a unit is full; at least half of it.",
        unless_library(kernel, shares),
    )
