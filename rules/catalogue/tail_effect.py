"""The last blocks run while most of the GPU has nothing left to do."""

from __future__ import annotations

import math

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.facts.kernel_loads import Loads
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

LEAST_LOST = 0.08
"""Share of the time: what healthy kernels lose between their first and last block is less. [own]"""

RULE = Rule(
    Category.TAIL,
    needs=(knows("waves", "idle_multiprocessors", "achieved_occupancy", "theoretical_occupancy"),),
    hides=("imbalance",),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels whose blocks do not fill their last wave, and that lose time by it."""
    blocks, sm_count, waves = kernel.blocks, kernel.sm_count, kernel.waves
    if not blocks or not sm_count or waves is None or blocks <= sm_count:
        return None
    rounds = waves if waves >= 1 else blocks / sm_count
    unfilled = 1 - rounds / math.ceil(rounds)
    seen = _seen(kernel, waves, loads.fixed)
    if seen is None or min(unfilled, seen) < LEAST_LOST:
        return None
    high = min(unfilled, seen, 1 - loads.busiest)
    if high < LEAST_LOST:
        return None
    shares = up_to(high)
    return result_of(
        kernel,
        f"{short(kernel)} has {blocks:,} blocks{_left_over(kernel, blocks, sm_count, waves)}",
        (
            Figure("waves", round(waves, 2)),
            percent("places_empty", unfilled, LEAST_LOST),
            percent("multiprocessors_idle", kernel.idle_multiprocessors or 0.0),
        ),
        "Choose blocks of another size so that their number is a little below a multiple of"
        f" {'what the GPU takes' if waves >= 1 else 'its multiprocessors'}, or a persistent kernel"
        " that deals out the work itself.",
        shares,
        "At most the places that stay empty, as far as idle multiprocessors or missing warps show"
        " them; at least half of it.",
        unless_library(kernel, shares),
    )


def _left_over(kernel: KernelMetrics, blocks: int, sm_count: int, waves: float) -> str:
    """Return what stays empty, as the end of a sentence: places of the last round, or, where all
    blocks run at once, those of multiprocessors that have one block less than others."""
    if waves < 1:
        most = math.ceil(blocks / sm_count)
        unfilled = 1 - blocks / (most * sm_count)
        return (
            f", which all run at once: {most:,} on some of the {sm_count:,} multiprocessors and"
            f" {most - 1:,} on others, which have nothing to do at the end ({unfilled:.0%} of the"
            " work that all could do)"
        )
    at_once, rounds = sm_count * (kernel.resident or 1), math.ceil(waves)
    return (
        f" and the GPU takes {at_once:,} at a time: {1 - waves / rounds:.0%} of the places in"
        f" {rounds} rounds stay empty"
    )


def _seen(kernel: KernelMetrics, waves: float, fixed: float) -> float | None:
    """Return the share of time or of warps that is really missing."""
    achieved, theoretical = kernel.achieved_occupancy, kernel.theoretical_occupancy
    idle = kernel.idle_multiprocessors
    if idle is None or achieved is None or not theoretical:
        return None
    idle -= fixed  # starting and ending take their time, and lack warps, in any grid
    if waves < 1 or kernel.busiest >= MOST_BUSY:
        return idle
    return max(idle, 1 - achieved / theoretical - fixed)
