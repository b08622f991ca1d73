"""A job computes on the CPU for a while and runs nothing on the GPU that it holds."""

from __future__ import annotations

from gpuadvisor.domain.jobs import Slice
from gpuadvisor.rules.jobs.cause import JobCause
from gpuadvisor.rules.jobs.causes.idle import MOST_CPU_PCT, runs_nothing, works_on_cpu

CAUSE = JobCause(
    rank=20,
    phrase="keeps its GPU unused for {time} while it computes on the CPU",
    advice="do that work before the GPU is taken",
    method="All of the time in which the CPU worked and no kernel ran for 10 s and longer.",
)


def lost(seen: Slice) -> float | None:
    """Return 1 where the CPU is known to be at work and the GPU is not.

    Of a GPU that does not count what its SMs do, utilization alone does not tell pictures that are
    prepared from pictures that a loader's workers make for kernels too few to be seen.
    """
    if seen.sm_active_pct is None and (seen.children_cpu_pct or 0.0) >= MOST_CPU_PCT:
        return None
    return 1.0 if runs_nothing(seen) and works_on_cpu(seen) else None
