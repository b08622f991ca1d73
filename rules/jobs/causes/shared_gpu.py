"""Other jobs use the same GPU: what the GPU does is not this job's alone."""

from __future__ import annotations

from gpuadvisor.domain.jobs import Slice
from gpuadvisor.rules.jobs.cause import JobCause

CAUSE = JobCause(
    rank=30,
    phrase="shares its GPU {held} of the time",
    advice="what slows it down shows only while it is alone",
    is_waste=False,
)


def lost(seen: Slice) -> float | None:
    """Return 0 where another job held memory there: whose kernels waited for whose is not known."""
    return None if seen.alone else 0.0
