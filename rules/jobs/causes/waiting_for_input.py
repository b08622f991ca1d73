"""A job's GPU has nothing to do while its CPU makes the next batch, or reads it."""

from __future__ import annotations

from gpuadvisor.domain.jobs import Slice
from gpuadvisor.rules.gpus import FULL_USE_PCT
from gpuadvisor.rules.jobs.cause import JobCause
from gpuadvisor.rules.jobs.causes.idle import MOST_CPU_PCT

ONE_THREAD_PCT = (80.0, 160.0)
"""CPU time, in percent of a core, of a process that one thread keeps busy, beside some that do
little; which threads took it is not known. [own]"""
LEAST_SM_OF_BUSY = 0.6
"""Active SMs over utilization, where only the process's own CPU is busy: a loop that launches short
kernels is as busy, and its kernels do not fill the SMs. [own]"""
STALLED_PCT = 25.0
"""Time in which something waited for a disk or the network, while the job's CPU rests. [own]"""

CAUSE = JobCause(
    rank=50,
    phrase="waits for input {lost} of the time",
    advice="`gpuadvisor tune {script}`",
    method="At most the share of the time in which no kernel ran while its CPU made batches or"
    " waited for a disk, as far as the machine's free cores can make up for it: told too low where"
    " other programs use its CPU, too.",
    is_tunable=True,
)


def lost(seen: Slice) -> float | None:
    """Return the share of the time in which no kernel ran, as far as free cores can fill it."""
    used = seen.utilization_pct
    if used is None or used >= FULL_USE_PCT or not _makes_batches(seen, used):
        return None
    return min(1 - used / 100, _fillable(seen))


def _makes_batches(seen: Slice, used_pct: float) -> bool:
    """Return whether its CPU is known to be at work on input, and not on launches alone."""
    if (seen.children_cpu_pct or 0.0) >= MOST_CPU_PCT:
        return True
    if seen.cpu_pct is None:
        return False
    if seen.cpu_pct < ONE_THREAD_PCT[0]:
        return (seen.io_stall_pct or 0.0) >= STALLED_PCT
    if seen.at_work_pct is not None and seen.at_work_pct >= FULL_USE_PCT:
        return False  # a thread that waits for a full GPU spins, and is as busy
    return seen.sm_active_pct is not None and seen.sm_active_pct >= LEAST_SM_OF_BUSY * used_pct


def _fillable(seen: Slice) -> float:
    """Return the share of the time that input would save if all idle cores made it; 1 where the
    machine's CPU is not known.

    `cpu_pct` of the machine is of all cores, whose number is not: with the share that is free,
    input gets at most 1 / (1 - free) times as fast, if all that is in use makes input.
    """
    if seen.machine_cpu_pct is None:
        return 1.0
    return 1 - min(max(seen.machine_cpu_pct, 0.0), 100.0) / 100
