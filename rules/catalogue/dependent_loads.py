"""Warps wait for one load after the other, and nothing is busy."""

from __future__ import annotations

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
from gpuadvisor.rules.rule import MOST, Rule, RuleResult, percent

RULE = Rule(
    Category.LATENCY,
    needs=(knows("load_waits", "idle_multiprocessors"),),
    hides=("coalescing", "memory_below_roof", "compute_below_roof"),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels whose warps wait for loads while all units have room."""
    waiting, high = kernel.load_waits, room(kernel, loads)
    if waiting is None or waiting < MOST or high is None or high <= 1 - MOST_BUSY:
        return None
    shares = up_to(high)
    return result_of(
        kernel,
        f"Warps of {short(kernel)} wait for a load {waiting:.0%} of their time, and no unit of the"
        f" GPU is busy for more than {loads.busiest:.0%} of the kernel's",
        (
            percent("warps_waiting_for_loads", waiting, MOST),
            percent("busiest_unit", loads.busiest, MOST_BUSY),
        ),
        "Have more loads on their way at once: load several elements a thread before using any,"
        " unroll the loop, prefetch into shared memory; replace chains of pointers by arrays.",
        shares,
        "At most until the busiest unit is full; at least half of it.",
        unless_library(kernel, shares),
    )
