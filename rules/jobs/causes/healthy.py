"""A job that uses its GPU: nothing that telemetry shows is lost."""

from __future__ import annotations

from gpuadvisor.domain.jobs import Slice
from gpuadvisor.rules.jobs.cause import JobCause
from gpuadvisor.rules.rule import MOST

LEAST_UTILIZATION_PCT = 85.0
"""Time in which a kernel runs: a job that starts and is profiled on an H200 has no less. [own]"""

CAUSE = JobCause(
    rank=70,
    phrase="uses its GPU {held} of the time",
    label="uses its GPU",  # a profile may find what is to be gained all the same
    is_waste=False,
)


def lost(seen: Slice) -> float | None:
    """Return 0 where the GPU was busy and most of its SMs, or its power, were in use."""
    if seen.utilization_pct is None or seen.utilization_pct < LEAST_UTILIZATION_PCT:
        return None
    if seen.sm_active_pct is not None:
        return 0.0 if seen.sm_active_pct >= 100 * MOST else None
    if seen.power_w is None or not seen.power_limit_w:
        return None
    return 0.0 if seen.power_w >= MOST * seen.power_limit_w else None
