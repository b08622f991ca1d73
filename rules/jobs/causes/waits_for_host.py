"""A job's GPU waits for its process: whether for batches or for launches cannot be told."""

from __future__ import annotations

from gpuadvisor.domain.jobs import Slice
from gpuadvisor.rules.jobs.cause import JobCause
from gpuadvisor.rules.jobs.causes.healthy import LEAST_UTILIZATION_PCT
from gpuadvisor.rules.jobs.causes.idle import MOST_CPU_PCT
from gpuadvisor.rules.jobs.causes.waiting_for_input import ONE_THREAD_PCT

CAUSE = JobCause(
    rank=55,
    phrase="waits for data or its host {lost} of the time, while its process, which makes the"
    " batches or launches the kernels, keeps about one CPU core busy",
    advice="`gpuadvisor tune {script}`",
    method="At most the share of the time in which no kernel ran while the process kept about one"
    " CPU core busy; one that waits for the GPU may look as busy.",
    is_bound=True,
    is_tunable=True,
)


def lost(seen: Slice) -> float | None:
    """Return the share of the time in which no kernel ran."""
    used, cpu = seen.utilization_pct, seen.cpu_pct
    if used is None or cpu is None or used >= LEAST_UTILIZATION_PCT:
        return None
    low, high = ONE_THREAD_PCT
    if not low <= cpu <= high or (seen.children_cpu_pct or 0.0) >= MOST_CPU_PCT:
        return None
    return 1 - used / 100
