"""Some multiprocessors are done long before others."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.facts.kernel_loads import SPREAD, Loads
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    LEAST_IDLE,
    knows,
    of_each,
    result_of,
    short,
    unless_library,
    up_to,
)
from gpuadvisor.rules.rule import MOST, Rule, RuleResult, percent

RULE = Rule(Category.TAIL, needs=(knows("idle_multiprocessors", "blocks", "sm_count"),))


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels in which multiprocessors (SMs) wait for the slowest ones."""
    idle, blocks, sm_count = (kernel.idle_multiprocessors, kernel.blocks, kernel.sm_count)
    if idle is None or not blocks or not sm_count or blocks < sm_count:
        return None
    if min(idle - loads.fixed, 1 - loads.busiest) < LEAST_IDLE:
        return None
    high = min(idle, 1 - (1 - SPREAD) * loads.busiest)
    shares = up_to(high)
    why, cure = _cause(kernel, idle)
    return result_of(
        kernel,
        f"{short(kernel)} leaves its multiprocessors without work for {idle:.0%} of their time,"
        f" though it has {blocks:,} blocks: {why}",
        (percent("multiprocessors_idle", idle, LEAST_IDLE),),
        cure,
        shares,
        "At most the time that multiprocessors were without any warp; at least half of that.",
        unless_library(kernel, shares),
    )


def _cause(kernel: KernelMetrics, idle: float) -> tuple[str, str]:
    """Return why multiprocessors had no warps, and what to do: where all of them had none for about
    as long, they did not wait for each other."""
    alike = kernel.idle_on_each
    smaller = "smaller blocks, of which several fit, or more work for each thread of fewer blocks"
    if alike is not None and alike >= MOST * idle:
        fits = "of which one at a time fits, " if kernel.resident == 1 else ""
        return (
            f"all of them alike, so that none waits for another; its blocks, {fits}leave gaps"
            " between one's end and the next one's start",
            f"Let something else run while a block ends and the next one starts: {smaller}.",
        )
    even = (
        "Give every block about the same work, start the long ones first, or let blocks fetch their"
        " work from a queue"
    )
    if alike is None and kernel.resident == 1:
        return (
            "some blocks take much longer than others, or, as one block at a time fits, there are"
            " gaps between one's end and the next one's start; which of both was not counted",
            f"{even}; or choose {smaller}.",
        )
    return "some blocks take much longer than others", f"{even}."
