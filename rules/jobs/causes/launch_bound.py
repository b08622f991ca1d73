"""A job's kernels are so short that one CPU thread cannot launch them fast enough."""

from __future__ import annotations

from gpuadvisor.domain.jobs import Slice
from gpuadvisor.rules.jobs.cause import JobCause
from gpuadvisor.rules.jobs.causes.idle import MOST_CPU_PCT
from gpuadvisor.rules.jobs.causes.waiting_for_input import ONE_THREAD_PCT

LEAST_UTILIZATION_PCT = 40.0
"""A kernel runs at least now and then in most of a second. Below, a loop that makes its own batches
looks the same. [own]"""
MOST_SM_OF_BUSY = 0.45
"""Active SMs over utilization. Kernels that are large fill the SMs while they run. [own]"""

CAUSE = JobCause(
    rank=40,
    phrase="waits {lost} of the time for one CPU thread that launches its kernels",
    advice="`gpuadvisor tune {script}`",
    method="At most the share of the time in which SMs had no work, while utilization was high, few"
    " SMs were active and the process kept about one CPU core busy.",
    is_bound=True,
    is_tunable=True,
)


def lost(seen: Slice) -> float | None:
    """Return the share of the time in which SMs had no work."""
    if seen.utilization_pct is None or seen.sm_active_pct is None or seen.cpu_pct is None:
        return None
    low, high = ONE_THREAD_PCT
    is_one_thread = low <= seen.cpu_pct <= high and (seen.children_cpu_pct or 0.0) < MOST_CPU_PCT
    is_small = seen.sm_active_pct <= MOST_SM_OF_BUSY * seen.utilization_pct
    if seen.utilization_pct < LEAST_UTILIZATION_PCT or not is_small or not is_one_thread:
        return None
    return 1 - seen.sm_active_pct / 100
