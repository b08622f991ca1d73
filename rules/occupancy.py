"""What the rules about theoretical occupancy share: one a limiter."""

from __future__ import annotations

from collections.abc import Callable

from gpuadvisor.domain.finding import Figure
from gpuadvisor.rules.facts.gpu_specs import MOST_SM_COUNT
from gpuadvisor.rules.facts.kernel_loads import Loads, room
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    MOST_BUSY,
    MOST_TENSOR,
    is_library,
    of_each,
    result_of,
    short,
    up_to,
)
from gpuadvisor.rules.rule import MOST, Check, RuleResult, percent

MOST_OCCUPANCY = 0.70
"""Theoretical occupancy above which more warps seldom help; Nsight Compute speaks below 80 %, and
33 to 67 % is what good matrix products have. [own]"""
LEAST_UNUSED = 0.1
"""Least share of the lanes of a block's warps that have no thread. [own]"""

HIDES = ("achieved_occupancy", "dependent_loads", "memory_below_roof", "compute_below_roof")

ON_WARPS = (
    "limits",
    "theoretical_occupancy",
    "achieved_occupancy",
    "tensor",
    "idle_multiprocessors",
)
"""What `limited` looks at of a kernel, beside the fact that it names."""
ORDER = ("registers", "block_size", "block_count", "shared_memory")
"""Limiters; of several that limit alike the first is named. Shared memory comes last: the driver
gives it as much of the cache as the others leave it a use for, so that it often limits alike."""


def limited(limiter: str, because: Callable[[KernelMetrics], str], advice: str, fact: str) -> Check:
    """Return a check that finds kernels that wait, whose warps this limiter keeps out of SMs."""

    def look(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
        occupancy, value = kernel.theoretical_occupancy, getattr(kernel, fact)
        if occupancy is None or value is None or not _waits(kernel):
            return None
        if _limiter(kernel) != limiter or not 0 < occupancy <= MOST_OCCUPANCY:
            return None
        reached = _without(kernel, occupancy)
        high = min(1 - occupancy / reached, room(kernel, loads) or 0.0)
        return result_of(
            kernel,
            f"{short(kernel)} has too few warps to hide its waiting: {because(kernel)}"
            f" leave room for {occupancy:.0%} of the warps that an SM can hold",
            (
                percent("theoretical_occupancy", occupancy, MOST_OCCUPANCY),
                percent("busiest_unit", kernel.busiest, MOST_BUSY),
                Figure(fact, value, "bytes" if fact == "shared_bytes" else ""),
            ),
            advice,
            up_to(high),
            f"At most what {reached:.0%} occupancy gives if throughput follows the warps, until"
            " the busiest unit is full; at least half of it.",
        )

    return of_each(look)


def _waits(kernel: KernelMetrics) -> bool:
    """Say whether more warps would have room to work, and these fill the SMs."""
    achieved, theoretical = kernel.achieved_occupancy, kernel.theoretical_occupancy
    if kernel.tensor is None or achieved is None or theoretical is None:
        return False
    filled = achieved > MOST * theoretical  # else something else keeps warps away
    for_few = kernel.tensor >= MOST_TENSOR or is_library(kernel)
    return kernel.busiest < MOST_BUSY and filled and not for_few


def _limiter(kernel: KernelMetrics) -> str:
    """Return what keeps another block out; empty where that is something else."""
    return next((name for name in ORDER if kernel.limits.get(name) == kernel.resident), "")


def _without(kernel: KernelMetrics, occupancy: float) -> float:
    """Return the occupancy that the next limiter allows, and the grid: it has no more warps."""
    resident = kernel.resident or 1
    next_limit = min((each for each in kernel.limits.values() if each > resident), default=None)
    most = 1.0 if next_limit is None else min(occupancy * next_limit / resident, 1.0)
    return min(most, occupancy * max(_waves(kernel), 1.0))


def _waves(kernel: KernelMetrics) -> float:
    """Return how often the grid fills the GPU, at least: where the SMs were not counted, as if no
    GPU had more, as a grid may have no more blocks than fit."""
    if kernel.waves is not None:
        return kernel.waves
    return (kernel.blocks or 0) / (MOST_SM_COUNT * (kernel.resident or 1))
