"""A job holds a GPU on which it runs nothing, and does nothing else either."""

from __future__ import annotations

from gpuadvisor.domain.jobs import Slice
from gpuadvisor.domain.metrics import NO_KERNELS_SM_ACTIVE_PCT
from gpuadvisor.rules.jobs.cause import JobCause
from gpuadvisor.rules.jobs.phases import NO_KERNELS_PCT

MOST_CPU_PCT = 20.0
"""Percent of a core that a notebook's kernel, a server, or a loader's workers between them take
while they wait. [own]"""

CAUSE = JobCause(
    rank=10,
    phrase="idle for {time} with {memory} held",
    advice="end it, or free its memory",
    method="All of the time in which it held the GPU and ran nothing.",
)


def lost(seen: Slice) -> float | None:
    """Return 1 for a job that ran nothing on its GPU while its CPU was idle or is not known."""
    return 1.0 if runs_nothing(seen) and not works_on_cpu(seen) else None


def runs_nothing(seen: Slice) -> bool:
    """Return whether no kernel of the job ran: by the whole GPU, or where that is shared its
    own."""
    if seen.utilization_pct is not None and seen.utilization_pct <= NO_KERNELS_PCT:
        return seen.sm_active_pct is None or seen.sm_active_pct <= NO_KERNELS_SM_ACTIVE_PCT
    return not seen.alone and seen.own_sm_pct == 0.0


def works_on_cpu(seen: Slice) -> bool:
    """Return whether its processes are known to compute on the CPU."""
    return (seen.cpu_pct or 0.0) + (seen.children_cpu_pct or 0.0) > MOST_CPU_PCT
