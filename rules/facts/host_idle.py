"""What the host did while the device that is played had nothing to do.

`idle` blames all of a gap on a wait in which it began, as nothing was queued behind it. Here each
moment of a gap is what the host did then: a script that waits for a value and then computes for
long on the CPU is slow for what it computes, not for the wait.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Direction
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import REACH_NS, launching_times
from gpuadvisor.rules.facts.intervals import (
    Intervals,
    Mask,
    Whole,
    covered_ns,
    either,
    none,
    without,
)
from gpuadvisor.rules.facts.launches import Calls, Launches
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.what_if import Timeline

BATCH_BYTES = 65_536
"""A copy to the device of at least so many is taken for a batch rather than for a parameter. Copies
of pageable memory of fewer do not even wait (CUDA: API synchronization behavior)."""


@dataclass(frozen=True, eq=False)
class HostIdle:
    """Idle time of the device, by what the host did in it."""

    launching_ns: int
    """In calls that give the device work, in operators that make them, or shortly between."""
    other_ns: int
    """Python, and operators of the CPU."""
    preparing_ns: int
    """The part of `other_ns` that ended with a batch's copy to the device."""
    preparing_bytes: int
    """Of these copies."""
    preparing_calls: Whole
    """Rows of their calls."""
    other_times: Intervals
    """When it was `other_ns`."""


NOTHING = HostIdle(0, 0, 0, 0, np.empty(0, np.int64), none())


def host_idle(
    line: Timeline | None, work: DeviceWork, host: Calls, launched: Launches, launching: Operators
) -> HostIdle:
    """Return what the host did in the gaps of the device that is played."""
    if line is None:
        return NOTHING
    rows = line.rows
    known = launched.known[rows]
    begin = work.begin_ns[rows]
    reached = np.maximum.accumulate(np.concatenate(([line.begin_ns], work.end_ns[rows])))[:-1]
    gap = np.flatnonzero(known & (begin > reached))
    called = np.clip(launched.begin_ns[rows[gap]], reached[gap], begin[gap])
    busy = _of_processes(launching_times(host, launching), host, launched.call[rows[gap]])
    busy = without(busy, line.not_working)
    at_work = covered_ns(busy, reached[gap], called)
    away = covered_ns(line.not_working, reached[gap], called)
    other = called - reached[gap] - at_work - away
    until = np.minimum(begin[gap], launched.end_ns[rows[gap]] + REACH_NS)
    batch = _batches(work, rows[gap]) & (other > 0)
    size = work.copies["bytes"][np.maximum(rows[gap][batch] - work.kernels, 0)]
    return HostIdle(
        int(at_work.sum() + np.maximum(until - called, 0).sum()),
        int(other.sum()),
        int(other[batch].sum()),
        int(size.sum()),
        launched.call[rows[gap][batch]],
        without(Intervals(reached[gap], called), either(busy, line.not_working)),
    )


def _of_processes(times: dict[int, Intervals], host: Calls, call: Whole) -> Intervals:
    found = none()
    for process in np.unique(host.process[call]).tolist():
        found = either(found, times.get(process, none()))
    return found


def _batches(work: DeviceWork, rows: Whole) -> Mask:
    number = np.maximum(rows - work.kernels, 0)
    if not len(work.copies["bytes"]):
        return np.zeros(len(rows), np.bool_)
    to_device = work.copies["direction"][number] == Direction.HOST_TO_DEVICE
    large = work.copies["bytes"][number] >= BATCH_BYTES
    found: Mask = (rows >= work.kernels) & to_device & large
    return found
