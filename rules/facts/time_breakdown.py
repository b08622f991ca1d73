"""Where a device's time went: busy with what, idle for what cause, and how many streams worked.

Busy is the time in which at least one kernel, copy or memset runs, from the first one's begin to
the last one's end; the rest is idle. `compute`, `communication` and `memory` are each the time in
which at least one of that kind runs, so they overlap; what exactly ran together is in
`together_ns`. This is HolisticTraceAnalysis' temporal breakdown (`non_compute_ns` is there the busy
time without the time of compute) and its breakdown by kernel type.

`TimeCategory` names what the account of a run (`account`) tells apart; `TimeBreakdown` is its sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gpuadvisor.rules.facts.device_work import DeviceWork, Work
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, by_key, depths


@dataclass(frozen=True)
class BusyTime:
    """How long one device was busy, and with what; `span_ns` = `busy_ns` + `idle_ns`."""

    device: int
    begin_ns: int
    span_ns: int
    """From the first begin to the last end."""
    busy_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int
    together_ns: Mapping[str, int]
    """What ran at the same time to how long, such as `compute` (alone), `compute+memory`; the
    parts do not overlap and sum to `busy_ns`."""

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns

    @property
    def busy_share(self) -> float:
        return self.busy_ns / self.span_ns if self.span_ns else 0.0


def busy(work: DeviceWork) -> tuple[BusyTime, ...]:
    """Return how long each device was busy; none for devices on which nothing ran."""
    return tuple(_busy(work, device, rows) for device, rows in work.lasting_by_device())


def _busy(work: DeviceWork, device: int, rows: IntArray) -> BusyTime:
    kinds = work.kind[rows]
    by_kind = {kind: work.intervals(rows[kinds == kind]) for kind in Work}
    together = _together(by_kind)
    begin, end = int(work.begin_ns[rows].min()), int(work.end_ns[rows].max())
    return BusyTime(
        device,
        begin,
        end - begin,
        sum(together.values()),
        by_kind[Work.COMPUTE].total_ns,
        by_kind[Work.COMMUNICATION].total_ns,
        by_kind[Work.MEMORY].total_ns,
        together,
    )


def _together(by_kind: Mapping[Work, Intervals]) -> dict[str, int]:
    """Return how long which kinds ran together, without those that never did."""
    sets = tuple(by_kind.values())
    time, _ = depths(sets)
    if len(time) < 2:
        return {}
    code = np.zeros(len(time) - 1, np.int64)
    for place, each in enumerate(sets):
        begun = np.searchsorted(each.begin_ns, time[:-1], "right")
        code |= (begun - np.searchsorted(each.end_ns, time[:-1], "right")) << place
    spent = np.zeros(1 << len(sets), np.int64)
    np.add.at(spent, code, np.diff(time))
    return {
        "+".join(kind.name.lower() for kind in Work if code >> kind & 1): int(spent[code])
        for code in range(1, len(spent))
        if spent[code]
    }


@dataclass(frozen=True)
class Concurrency:
    """How many streams of one device worked at the same time."""

    device: int
    streams: int
    """Number of streams that had something to do."""
    time_ns: Mapping[int, int]
    """Number of streams active at the same time to how long they were; without 0."""


def concurrency(work: DeviceWork) -> tuple[Concurrency, ...]:
    """Return how many streams of each device worked at the same time."""
    return tuple(_concurrency(work, device, rows) for device, rows in work.by_device())


def _concurrency(work: DeviceWork, device: int, rows: IntArray) -> Concurrency:
    streams = tuple(work.intervals(rows[at]) for _, at in by_key(work.stream[rows]))
    active = tuple(each for each in streams if len(each))
    if not active:
        return Concurrency(device, 0, {})
    time, depth = depths(active)
    spent = np.zeros(len(active) + 1, np.int64)
    np.add.at(spent, depth, np.diff(time))
    return Concurrency(
        device, len(active), {n: int(spent[n]) for n in range(1, len(spent)) if spent[n]}
    )


class TimeCategory(StrEnum):
    """What a device does, or waits for. A moment in which it does several is of the first one."""

    COMPUTING = "computing"
    COMMUNICATING = "communicating"
    """No compute kernel runs."""
    COPYING = "copying"
    """No kernel runs at all."""
    FILLING = "filling"
    """Neither a kernel nor a copy runs, but memory is set to a value."""
    LAUNCHING = "launching"
    WAITING_FOR_DATA = "waiting_for_data"
    SYNCHRONIZING = "synchronizing"
    ALLOCATING = "allocating"
    OTHER_HOST = "other_host"
    STARTING = "starting"
    PROFILER = "profiler"
    MIGRATING = "migrating"
    """From when the CPU touched pages of managed memory until they moved."""
    BETWEEN_KERNELS = "between_kernels"
    FINISHED = "finished"
    NOT_RECORDED = "not_recorded"
    """In no call into CUDA, where nothing else of the host was recorded: it did not launch."""
    DEVICE = "device"
    UNKNOWN = "unknown"


BUSY = (
    TimeCategory.COMPUTING,
    TimeCategory.COMMUNICATING,
    TimeCategory.COPYING,
    TimeCategory.FILLING,
)
IDLE = tuple(part for part in TimeCategory if part not in BUSY)


@dataclass(frozen=True)
class TimeBreakdown:
    """Where the time of one device went, or of several together."""

    span_ns: int
    """The run's window; of several devices as often as there are."""
    parts_ns: Mapping[TimeCategory, int]
    """Time of every category; the sum is `span_ns`."""

    @property
    def busy_ns(self) -> int:
        return sum(self.parts_ns[part] for part in BUSY)

    def share(self, part: TimeCategory) -> float:
        return self.parts_ns[part] / self.span_ns if self.span_ns else 0.0

    @property
    def busy_share(self) -> float:
        return self.busy_ns / self.span_ns if self.span_ns else 0.0

    @property
    def largest_idle(self) -> TimeCategory | None:
        """Why it did nothing for most of that time; None where it always did something."""
        part = max(IDLE, key=lambda each: self.parts_ns[each])
        return part if self.parts_ns[part] else None


def added(breakdowns: Mapping[int, TimeBreakdown]) -> TimeBreakdown:
    """Return where the time of all devices together went."""
    return TimeBreakdown(
        sum(each.span_ns for each in breakdowns.values()),
        {part: sum(each.parts_ns[part] for each in breakdowns.values()) for part in TimeCategory},
    )
