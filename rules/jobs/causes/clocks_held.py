"""A job works at a lower clock than the GPU has: its power limit or its temperature holds it."""

from __future__ import annotations

from gpuadvisor.domain.clock_reasons import SLOWING
from gpuadvisor.domain.jobs import Slice
from gpuadvisor.rules.jobs.cause import JobCause
from gpuadvisor.rules.jobs.causes.healthy import LEAST_UTILIZATION_PCT
from gpuadvisor.rules.rule import MOST, NOTICEABLE

CAUSE = JobCause(
    rank=60,
    phrase="held {depth} below its highest clock by its power limit or its temperature {held} of"
    " the time",
    advice="nothing that tune could gain: `gpuadvisor explain power_capped`",
    method="At most the share by which the clock was below its maximum.",
)


def lost(seen: Slice) -> float | None:
    """Return by how much the clock was below its maximum, where the driver said why."""
    used, clock, highest = seen.utilization_pct, seen.sm_clock_mhz, seen.sm_clock_max_mhz
    if used is None or clock is None or not highest or used < LEAST_UTILIZATION_PCT:
        return None
    loss = 1 - clock / highest
    is_held = any(seen.held_down.get(reason, 0.0) >= MOST for reason in SLOWING)
    return loss if is_held and loss >= NOTICEABLE else None
