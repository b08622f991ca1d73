"""The account of a run: every nanosecond of its window on every device, in exactly one entry.

Useful work by the family of the kernels that did it, idle time by its cause, and what nothing
explains. All shares that are shown of a run come from here, so that no two of them contradict each
other. Of a moment in which several kernels compute, the one that began first is named; one in which
a device computes and copies or communicates counts as computing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from gpuadvisor.domain.profile import Direction
from gpuadvisor.rules.facts.device_work import DeviceWork, Work
from gpuadvisor.rules.facts.idle import IdleGap, IdleTime
from gpuadvisor.rules.facts.idle_causes import UNEXPLAINED
from gpuadvisor.rules.facts.intervals import IntArray, numbered, uncovered_ns
from gpuadvisor.rules.facts.kernel_families import COMMUNICATION, kind_of
from gpuadvisor.rules.facts.time_breakdown import IDLE, BusyTime, TimeBreakdown, TimeCategory


class EntryKind(StrEnum):
    """What an entry of the account is."""

    USEFUL = "useful"
    IDLE = "idle"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Entry:
    """A part of the time of one device, or of several together."""

    kind: EntryKind
    part: TimeCategory
    family: str
    """The family of the kernels that compute; empty for the rest."""
    time_ns: int


@dataclass(frozen=True)
class DeviceAccount:
    """Where the time of one device went; the entries sum to its window."""

    device: int
    begin_ns: int
    end_ns: int
    entries: tuple[Entry, ...]
    """In the order of `TimeCategory`; of those that compute, the longest first."""
    longest: tuple[IdleGap, ...]
    """The gap with most time of each cause of idle time, the longest first."""
    kernels_ns: Mapping[str, int] = field(default_factory=dict)
    """The time of the entries that compute, by the kernels' names."""

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns

    def held_ns(self, name: str) -> int | None:
        """Return the time of what a finding calls a part of the run: `idle/launching`,
        `copy/exposed`, `communication/exposed`, `kernel/NAME`; None where it is no part of it."""
        what, _, which = name.partition("/")
        if what == "kernel" and which:
            if which in self.kernels_ns:
                return self.kernels_ns[which]
            return self._of(TimeCategory.COMMUNICATING) if COMMUNICATION.search(which) else 0
        if which == "exposed" and what in _EXPOSED:
            return self._of(_EXPOSED[what])
        return self._of(TimeCategory(which)) if what == "idle" and which in _IDLE else None

    def _of(self, part: TimeCategory) -> int:
        return sum(each.time_ns for each in self.entries if each.part is part)


_EXPOSED = {"copy": TimeCategory.COPYING, "communication": TimeCategory.COMMUNICATING}
_IDLE = frozenset(IDLE)


@dataclass(frozen=True)
class Account:
    """Where the time of all devices went."""

    devices: tuple[DeviceAccount, ...]

    @cached_property
    def span_ns(self) -> int:
        """The window, as often as there are devices."""
        return sum(each.span_ns for each in self.devices)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of all devices, added up."""
        found: dict[tuple[EntryKind, TimeCategory, str], int] = {}
        for device in self.devices:
            for each in device.entries:
                key = each.kind, each.part, each.family
                found[key] = found.get(key, 0) + each.time_ns
        order = {part: place for place, part in enumerate(TimeCategory)}
        entries = (Entry(*key, time_ns) for key, time_ns in found.items())
        return tuple(sorted(entries, key=lambda each: (order[each.part], -each.time_ns)))

    @cached_property
    def kernels_ns(self) -> Mapping[str, int]:
        """The time of the entries of all devices that compute, by the kernels' names."""
        found: Counter[str] = Counter()
        for device in self.devices:
            found.update(device.kernels_ns)
        return found

    def held_ns(self, names: Iterable[str]) -> float | None:
        """Return the time of some parts of the run, in the words of `DeviceAccount.held_ns`, on the
        device that has most of it; None where one of them is no part of it."""
        every = tuple(names)
        held = [[device.held_ns(name) for name in every] for device in self.devices]
        if not every or not held or None in held[0]:
            return None
        return float(max(sum(filter(None, each)) for each in held))

    def share(self, entry: Entry) -> float:
        """Return which share (0 to 1) of the time of all devices an entry is."""
        return self.share_of(entry.time_ns)

    def share_of(self, time_ns: float) -> float:
        """Return which share of the time of all devices a time is; 0 where there is none."""
        return time_ns / self.span_ns if self.span_ns else 0.0

    @cached_property
    def breakdowns(self) -> Mapping[int, TimeBreakdown]:
        """The time of each device, with families and devices' causes added up by category."""
        found = {}
        for device in self.devices:
            parts = dict.fromkeys(TimeCategory, 0)
            for each in device.entries:
                parts[each.part] += each.time_ns
            found[device.device] = TimeBreakdown(device.span_ns, parts)
        return found


def account(
    work: DeviceWork, busy: Sequence[BusyTime], idle: Sequence[IdleTime], span: tuple[int, int]
) -> Account:
    """Return where the time between two times went on each device on which something ran."""
    rows_of = dict(work.lasting_by_device())
    return Account(
        tuple(
            _of_device(work, rows_of[each.device], each, of, span)
            for each, of in zip(busy, idle, strict=True)
        )
    )


def _of_device(
    work: DeviceWork, rows: IntArray, busy: BusyTime, idle: IdleTime, span: tuple[int, int]
) -> DeviceAccount:
    kernels = _computing(work, rows)
    return DeviceAccount(
        busy.device,
        *span,
        (*_families(kernels), *_beside(busy, _filling_ns(work, rows)), *_idle(idle)),
        tuple(sorted(idle.longest_of.values(), key=lambda gap: -gap.cause_ns)),
        kernels,
    )


def _computing(work: DeviceWork, rows: IntArray) -> Mapping[str, int]:
    """Return the time in which at least one kernel computes, by the name of the first of them."""
    rows = rows[work.kind[rows] == Work.COMPUTE]
    rows = rows[np.lexsort((work.end_ns[rows], work.begin_ns[rows]))]
    begin, end = work.begin_ns[rows], work.end_ns[rows]
    reached = np.maximum.accumulate(end)
    begin[1:] = np.maximum(begin[1:], reached[:-1])
    own = np.maximum(end - begin, 0)
    used, place = numbered(work.name[rows])
    of_name = np.zeros(len(used), np.int64)
    np.add.at(of_name, place, own)
    times: Counter[str] = Counter()
    for name, time_ns in zip(used.tolist(), of_name.tolist(), strict=True):
        times[work.texts[name]] += time_ns
    return {name: time_ns for name, time_ns in times.items() if time_ns}


def _families(kernels_ns: Mapping[str, int]) -> Iterator[Entry]:
    times: Counter[str] = Counter()
    for name, time_ns in kernels_ns.items():
        times[str(kind_of(name).family)] += time_ns
    for family, time_ns in sorted(times.items(), key=lambda each: (-each[1], each[0])):
        yield Entry(EntryKind.USEFUL, TimeCategory.COMPUTING, family, time_ns)


def _filling_ns(work: DeviceWork, rows: IntArray) -> int:
    """Return how long nothing but memsets runs."""
    copies = rows[~work.is_kernel[rows]]
    fills = copies[work.copies["direction"][copies - work.kernels] == Direction.MEMSET]
    if not len(fills):
        return 0
    others = np.setdiff1d(rows, fills, assume_unique=True)
    return uncovered_ns(work.intervals(fills), work.intervals(others))


def _beside(busy: BusyTime, filling: int) -> Iterator[Entry]:
    """Yield the time in which a device only communicates, copies, or sets memory."""
    copying = busy.together_ns.get("memory", 0)
    computing = sum(ns for kinds, ns in busy.together_ns.items() if "compute" in kinds.split("+"))
    for part, time_ns in (
        (TimeCategory.COMMUNICATING, busy.busy_ns - computing - copying),
        (TimeCategory.COPYING, copying - filling),
        (TimeCategory.FILLING, filling),
    ):
        if time_ns:
            yield Entry(EntryKind.USEFUL, part, "", time_ns)


def _idle(found: IdleTime) -> Iterator[Entry]:
    for cause, time_ns in found.causes_ns.items():
        if time_ns and cause is not TimeCategory.COPYING:
            kind = EntryKind.UNEXPLAINED if cause in UNEXPLAINED else EntryKind.IDLE
            yield Entry(kind, cause, "", time_ns)
