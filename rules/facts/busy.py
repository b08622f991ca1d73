"""How long each device was busy, and with what.

Busy is the time in which at least one kernel, copy or memset runs, from the first one's begin to
the last one's end; the rest is idle. `compute`, `communication` and `memory` are each the time in
which at least one of that kind runs, so they overlap; what exactly ran together is in `alone_ns`
and the overlaps. This is HolisticTraceAnalysis' temporal breakdown (`non_compute_ns` is there the
busy time without the time of compute) and its breakdown by kernel type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuadvisor.rules.facts.device_work import DeviceWork, Work
from gpuadvisor.rules.facts.intervals import Intervals, Whole, depths


@dataclass(frozen=True)
class BusyTime:
    """Of one device; `span_ns` = `busy_ns` + `idle_ns`."""

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
    def non_compute_ns(self) -> int:
        """Busy, but no compute kernel runs."""
        return self.busy_ns - self.compute_ns

    @property
    def busy_share(self) -> float:
        return self.busy_ns / self.span_ns if self.span_ns else 0.0

    @property
    def communication_overlap_share(self) -> float | None:
        """Of the time of communication, how much compute hides; None without communication."""
        if not self.communication_ns:
            return None
        together = sum(
            ns
            for kinds, ns in self.together_ns.items()
            if {"compute", "communication"} <= set(kinds.split("+"))
        )
        return together / self.communication_ns


def busy(work: DeviceWork) -> tuple[BusyTime, ...]:
    """Return how long each device was busy; none for devices on which nothing ran."""
    return tuple(_of_device(work, device, rows) for device, rows in work.lasting_by_device())


def _of_device(work: DeviceWork, device: int, rows: Whole) -> BusyTime:
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
        code |= _runs(each, time[:-1]) << place
    spent = np.zeros(1 << len(sets), np.int64)
    np.add.at(spent, code, np.diff(time))
    return {_called(code): int(spent[code]) for code in range(1, len(spent)) if spent[code]}


def _runs(each: Intervals, at_ns: Whole) -> Whole:
    begun = np.searchsorted(each.begin_ns, at_ns, "right")
    return begun - np.searchsorted(each.end_ns, at_ns, "right")


def _called(code: int) -> str:
    return "+".join(kind.name.lower() for kind in Work if code >> kind & 1)
