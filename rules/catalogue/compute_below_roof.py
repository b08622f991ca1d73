"""The SMs are the busiest part, and half idle."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.facts.kernel_loads import SPREAD, Loads, Shares, room
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    LEAST_BUSY,
    MOST_BUSY,
    knows,
    notice_at_most,
    of_each,
    result_of,
    short,
)
from gpuadvisor.rules.rule import Rule, RuleResult, percent

RULE = Rule(Category.COMPUTE, needs=(knows("compute", "memory", "idle_multiprocessors"),))


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels of which arithmetic is the largest part, with room left."""
    busy, memory = kernel.compute, kernel.memory
    if (
        busy is None
        or memory is None
        or not LEAST_BUSY <= busy < MOST_BUSY
        or memory > (1 - SPREAD) * busy
    ):
        return None
    high = room(kernel, loads)
    if not high:
        return None
    shares = Shares(0.0, high)
    return result_of(
        kernel,
        f"{short(kernel)} waits more than it computes: its multiprocessors, which are busier than"
        f" memory and caches, reach {busy:.0%} of what they can do",
        (percent("sm_busy", busy, MOST_BUSY), percent("memory_busy", memory)),
        "Give each thread more independent work (unroll, several results a thread), and keep"
        " barriers and special functions out of the inner loop.",
        shares,
        "At most until the multiprocessors are full; what keeps them waiting was not found.",
        notice_at_most(shares),
    )
