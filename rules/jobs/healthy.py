"""A job that uses its GPU: nothing that telemetry shows is lost."""

from __future__ import annotations

from gpuadvisor.domain.jobs import Slice
from gpuadvisor.rules.job_causes import JobCause

LEAST_UTILIZATION_PCT = 85.0
"""Time in which a kernel runs. [own]"""
LEAST_SM_ACTIVE_PCT = 50.0
"""Percent of SMs with work, averaged over time: as `health.busy_but_idle_sms`. [own]"""
LEAST_POWER_SHARE = 0.5
"""Share of the power limit, where the GPU does not count what its SMs do: the same. [own]"""

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
        return 0.0 if seen.sm_active_pct >= LEAST_SM_ACTIVE_PCT else None
    if seen.power_w is None or not seen.power_limit_w:
        return None
    return 0.0 if seen.power_w >= LEAST_POWER_SHARE * seen.power_limit_w else None
