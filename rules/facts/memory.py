"""How much memory the framework's allocator had given out over time, who asked, and if it grows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Columns, Profile
from gpuadvisor.rules.facts.intervals import IntArray, by_key, ends
from gpuadvisor.rules.facts.steps import Steps

MOST_POINTS = 500
"""Most points of a curve, as many as a plot can show. Each is the highest of its stretch."""
MOST_ALLOCATIONS = 20
"""Listed of what lives at the peak, the largest ones."""


@dataclass(frozen=True)
class Allocation:
    """Memory that was in use at the peak."""

    bytes: int
    time_ns: int
    operator: str
    """The innermost one at that time; empty where it is not known."""


@dataclass(frozen=True)
class MemoryUse:
    """How the memory of one device was used; UNKNOWN stands for the host."""

    device: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    peak_ns: int
    """Time at which the peak was first reached."""
    alive_at_peak: tuple[Allocation, ...]
    """Allocated since the recording began; what is older is not known one by one."""
    older_bytes: int
    """Allocated at the peak, but before the recording began."""
    curve: tuple[tuple[int, int], ...]
    """Points of time in ns and allocated bytes."""


def memory_use(profile: Profile) -> tuple[MemoryUse, ...]:
    """Return how each device's memory was used, as far as totals were recorded."""
    columns = profile.columns("memory")
    return tuple(
        _of_device(
            profile, columns, device, rows[np.argsort(columns["time_ns"][rows], kind="stable")]
        )
        for device, rows in by_key(columns["device"])
        if (columns["allocated_bytes"][rows] >= 0).any()
    )


def _of_device(profile: Profile, columns: Columns, device: int, rows: IntArray) -> MemoryUse:
    allocated, reserved = columns["allocated_bytes"][rows], columns["reserved_bytes"][rows]
    size, time = columns["bytes"][rows], columns["time_ns"][rows]
    peak = int(allocated.argmax())
    living = _alive(columns["address"][rows[: peak + 1]], size[: peak + 1])
    largest = living[np.argsort(-size[living], kind="stable")[:MOST_ALLOCATIONS]]
    who = _operators(profile, time[largest])
    return MemoryUse(
        device,
        int(allocated[peak]),
        int(reserved.max()) if (reserved >= 0).any() else None,
        int(time[peak]),
        tuple(
            Allocation(int(size[row]), int(time[row]), name)
            for row, name in zip(largest.tolist(), who, strict=True)
        ),
        max(int(allocated[peak]) - int(size[living].sum()), 0),
        _curve(time, allocated),
    )


@dataclass(frozen=True, eq=False)
class Living:
    """All allocations since the recording began that live at the peak of a device's memory."""

    bytes: IntArray
    begin_ns: IntArray
    end_ns: IntArray
    """When each was released; UNKNOWN where that was not recorded."""


def living_at_peak(profile: Profile, device: int) -> Living:
    """Return what lives at a device's peak; nothing where addresses were not recorded."""
    names = ("time_ns", "device", "bytes", "address", "allocated_bytes")
    columns = profile.columns("memory", names)
    rows = np.flatnonzero(columns["device"] == device)
    rows = rows[np.argsort(columns["time_ns"][rows], kind="stable")]
    time, _, size, address, allocated = (columns[name][rows] for name in names)
    if not len(rows):
        return Living(size, time, time)
    after = int(allocated.argmax()) + 1
    chosen = _alive(address[:after], size[:after])
    freed = after + np.flatnonzero(size[after:] < 0)
    freed_address, first = np.unique(address[freed], return_index=True)
    place = np.searchsorted(freed_address, address[chosen])
    known = np.flatnonzero(np.isin(address[chosen], freed_address))
    end = np.full(len(chosen), UNKNOWN, np.int64)
    end[known] = time[freed[first[place[known]]]]
    return Living(size[chosen], time[chosen], end)


def _alive(address: IntArray, size: IntArray) -> IntArray:
    """Return the rows whose address was allocated last and not released after."""
    last = np.flatnonzero(address != UNKNOWN)
    _, from_end = np.unique(address[last][::-1], return_index=True)
    newest = last[len(last) - 1 - from_end]
    return np.sort(newest[size[newest] > 0])


def _operators(profile: Profile, time_ns: IntArray) -> list[str]:
    """Return which operator ran at each time. Memory events tell no thread, so all are looked at:
    of several the last to begin, which can be another thread's."""
    columns = profile.columns("operators", ("begin_ns", "duration_ns", "name"))
    begin, end = ends(columns["begin_ns"], columns["duration_ns"])
    return [
        _last_begun(begin, np.flatnonzero((begin <= time) & (time <= end)), columns, profile)
        for time in time_ns.tolist()
    ]


def _last_begun(begin_ns: IntArray, running: IntArray, columns: Columns, profile: Profile) -> str:
    if not len(running):
        return ""
    newest = running[::-1][begin_ns[running[::-1]].argmax()]
    return profile.header.texts[int(columns["name"][newest])]


def _curve(time_ns: IntArray, allocated: IntArray) -> tuple[tuple[int, int], ...]:
    if len(time_ns) > MOST_POINTS:
        starts = np.linspace(0, len(time_ns), MOST_POINTS, endpoint=False).astype(np.int64)
        time_ns, allocated = time_ns[starts], np.maximum.reduceat(allocated, starts)
    return tuple(zip(time_ns.tolist(), allocated.tolist(), strict=True))


def allocated_at_steps(
    profile: Profile, steps: Steps | None, device: int | None
) -> tuple[int, ...]:
    """Return the allocated bytes at the begin of each step that has an event of memory before it;
    nothing where no totals were recorded."""
    columns = profile.columns("memory", ("time_ns", "device", "allocated_bytes"))
    mine = (columns["device"] == device) & (columns["allocated_bytes"] >= 0)
    rows = np.flatnonzero(mine) if device is not None else np.empty(0, np.int64)
    if steps is None or not len(rows):
        return ()
    rows = rows[np.argsort(columns["time_ns"][rows], kind="stable")]
    last = np.searchsorted(columns["time_ns"][rows], steps.begin_ns, "right") - 1
    return tuple(columns["allocated_bytes"][rows[last[last >= 0]]].tolist())
