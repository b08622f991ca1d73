"""What was before, whoever kept it: a daemon's store, the last minutes in memory, a recording.

A page of the past sees no difference between them. `TelemetryReader` of the store is one as it is.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gpuadvisor.domain.accumulators import PATIENCE_S, Accumulator, Reading
from gpuadvisor.domain.metrics import BY_NAME, GPU_METRICS, HOST_METRICS, Kind
from gpuadvisor.domain.moment import (
    NOT_LISTED_THEN,
    PROCESSES_LOOK_BACK_S,
    SILENT_THEN,
    Moment,
    events_at,
    looked_at,
)
from gpuadvisor.domain.telemetry import (
    HOST,
    PROCESSES,
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Sample,
    State,
    Unavailable,
)
from gpuadvisor.domain.telemetry_window import SET_BACK_S
from gpuadvisor.domain.timeline import Column, Timeline, TimelineRequest, grid, thinned

LIVE_S = 900.0
"""What is kept of a live sampler: a quarter of an hour of eight GPUs takes 4 MB."""
RECORDED_S = 6 * 3600.0
"""What is kept of a recording, its end: six hours of eight GPUs take 70 MB."""
TRIMMED_SHARE = 0.1
"""Share of what is kept by which it may be longer, so that it is seldom moved in memory."""


class Past(Protocol):
    """Something that knows what was. Its methods read files; what fails is a StoreError."""

    def span(self) -> tuple[float, float] | None:
        """Return the Unix times between which something is known; None where nothing is."""

    def all_gpus(self) -> tuple[Gpu, ...]:
        """Return every GPU of which something is known."""

    def timelines(self, wanted: TimelineRequest) -> dict[str, Timeline]:
        """Return a metric by the device's name."""

    def moment(self, time_s: float) -> Moment:
        """Return what was known at a Unix time."""

    def events(
        self, since_s: float, until_s: float | None = None, limit: int | None = None
    ) -> list[Event]:
        """Return the events that began or lasted in the span, the oldest first."""


class _Series:
    """The readings of one metric, in order of time."""

    __slots__ = ("times", "values")

    def __init__(self) -> None:
        self.times = array("d")
        self.values = array("d")

    def add(self, time_s: float, value: float, kept_s: float) -> None:
        self.times.append(time_s)
        self.values.append(value)
        if time_s - self.times[0] > kept_s * (1 + TRIMMED_SHARE):
            gone = bisect_left(self.times, time_s - kept_s)
            del self.times[:gone]
            del self.values[:gone]


class _Device:
    """What is remembered of one device."""

    def __init__(self) -> None:
        self.series: dict[str, _Series] = {}
        self.unavailable: deque[tuple[float, Mapping[str, Unavailable]]] = deque()
        """What had no value from a time on."""
        self.kept_s = LIVE_S

    def add(self, frame: Frame, sample: Sample) -> None:
        for name, value in sample.values.items():
            series = self.series.get(name)
            if series is None:
                series = self.series[name] = _Series()
            series.add(frame.time_s, value, self.kept_s)
        if not frame.full:
            return
        if not self.unavailable or self.unavailable[-1][1] != sample.unavailable:
            self.unavailable.append((frame.time_s, sample.unavailable))
            while len(self.unavailable) > 1 and (
                self.unavailable[1][0] < frame.time_s - self.kept_s
            ):
                self.unavailable.popleft()

    def reading(self, metric: str, time_s: float) -> Reading | None:
        """Return a metric as it was at a time; None where it had not been read."""
        series = self.series.get(metric)
        place = 0 if series is None else bisect_right(series.times, time_s)
        known = None if not place or series is None else series.values[place - 1]
        for since_s, unavailable in reversed(self.unavailable):
            if since_s <= time_s:
                if (absence := unavailable.get(metric)) is not None:
                    last = known if absence.state is State.STALE else None
                    return Reading(last, absence.state, absence.since_s, absence.reason)
                break
        if known is None or series is None:
            return None
        read_s = series.times[place - 1]
        late = time_s - read_s > PATIENCE_S[metric]
        value = int(known) if BY_NAME[metric].whole else known
        return Reading(value, State.STALE if late else State.OK, read_s)


class Memory(Accumulator[_Device]):
    """A past of frames as they came. Threads may ask while another takes frames in."""

    def __init__(self, kept_s: float = LIVE_S) -> None:
        super().__init__(_Device)
        self._kept_s = kept_s
        self._lock = threading.RLock()
        self._forget()

    def _forget(self) -> None:
        self.devices.clear()
        self._all_gpus: dict[str, Gpu] = {}
        self._listings: deque[tuple[float, tuple[GpuProcess, ...]]] = deque()
        self._problems: deque[tuple[float, str | None]] = deque()
        self._events: dict[tuple[str, str | None, str, float], Event] = {}
        self._first_s = self._last_s = math.nan

    def take(self, frame: Frame, events: Iterable[Event]) -> None:
        """Take in a frame, and the events that began or ended with it."""
        with self._lock:
            self._take(frame, events)

    def _take(self, frame: Frame, events: Iterable[Event]) -> None:
        if frame.time_s < self._last_s - SET_BACK_S:  # earlier times are at no known one
            self._forget()
        elif frame.time_s < self._last_s:  # a clock that is kept right goes back by milliseconds
            frame = replace(frame, time_s=self._last_s)
        if math.isnan(self._first_s):
            self._first_s = frame.time_s
        self._last_s = frame.time_s
        self._first_s = max(self._first_s, frame.time_s - self._kept_s)
        self._all_gpus |= {gpu.uuid: gpu for gpu in frame.gpus or ()}
        if frame.full and (not self._problems or self._problems[-1][1] != frame.problem):
            self._problems.append((frame.time_s, frame.problem))
        if frame.processes is not None:
            self._listings.append((frame.time_s, frame.processes))
            while self._listings[0][0] < self._first_s - PROCESSES_LOOK_BACK_S:
                self._listings.popleft()
        for event in events:
            self._events[event.identity] = event
        self.add(frame)

    def device(self, uuid: str) -> _Device:
        state = super().device(uuid)
        state.kept_s = self._kept_s
        return state

    def span(self) -> tuple[float, float] | None:
        return None if math.isnan(self._first_s) else (self._first_s, self._last_s)

    def all_gpus(self) -> tuple[Gpu, ...]:
        return tuple(self._all_gpus.values())

    def timelines(self, wanted: TimelineRequest) -> dict[str, Timeline]:
        metric, devices = wanted.metric, wanted.devices
        if devices is None:
            is_host = BY_NAME[metric] in HOST_METRICS
            devices = [HOST] if is_host else list(self._all_gpus)
        now_s = self._last_s if wanted.now_s is None else wanted.now_s
        chosen = grid(wanted.since_s, wanted.until_s, wanted.columns, now_s, wanted.at_least_s)
        patience_s = PATIENCE_S[metric]
        found = {}
        for name in devices:
            with self._lock:
                state = self.devices.get(name)
                series = (state.series.get(metric) if state else None) or _Series()
                first = bisect_left(series.times, chosen.begin_s - patience_s)
                last = bisect_left(series.times, chosen.end_s + patience_s)
                times, values = series.times[first:last], series.values[first:last]
            read = [int(value) for value in values] if BY_NAME[metric].whole else values
            found[name] = thinned(metric, times, read, chosen)
        return found

    def moment(self, time_s: float) -> Moment:
        with self._lock:
            return self._moment(time_s)

    def _moment(self, time_s: float) -> Moment:
        readings = {
            name: {
                metric.name: reading
                for metric in (HOST_METRICS if name == HOST else GPU_METRICS)
                if (reading := device.reading(metric.name, time_s)) is not None
            }
            for name, device in self.devices.items()
        }
        listed = next(((at, found) for at, found in reversed(self._listings) if at <= time_s), None)
        if listed is not None and time_s - listed[0] > PROCESSES_LOOK_BACK_S:
            listed = None
        problem = next((said for at, said in reversed(self._problems) if at <= time_s), None)
        if math.isnan(self._first_s) or not self._first_s <= time_s:
            readings = {}
        why = SILENT_THEN if problem else None if listed else NOT_LISTED_THEN
        listed = None if problem else listed
        return Moment(
            time_s,
            self.all_gpus(),
            readings,
            processes=listed and listed[1],
            listed_s=listed and listed[0],
            why_no_processes=why,
            unlisted=tuple(
                name for name, device in self.devices.items() if device.reading(PROCESSES, time_s)
            ),
            events=events_at(self.events(*looked_at(time_s)), time_s),
            problem=problem,
        ).without_what_was_before()

    def events(
        self, since_s: float, until_s: float | None = None, limit: int | None = None
    ) -> list[Event]:
        end_s = math.inf if until_s is None else until_s
        with self._lock:
            kept = list(self._events.values())
        found = [
            event
            for event in kept
            if event.began_s < end_s and (event.ended_s is None or event.ended_s >= since_s)
        ]
        found.sort(key=lambda event: event.began_s)
        return found[-limit:] if limit else found


class StoreAndMemory:
    """A store that no daemon writes now, and beside it the last minutes of a live sampler."""

    def __init__(self, store: Past, memory: Memory) -> None:
        self._store = store
        self._memory = memory

    def span(self) -> tuple[float, float] | None:
        found = [each for each in (self._store.span(), self._memory.span()) if each]
        return (min(f[0] for f in found), max(f[1] for f in found)) if found else None

    def all_gpus(self) -> tuple[Gpu, ...]:
        known = {gpu.uuid: gpu for gpu in self._store.all_gpus()}
        return tuple((known | {gpu.uuid: gpu for gpu in self._memory.all_gpus()}).values())

    def timelines(self, wanted: TimelineRequest) -> dict[str, Timeline]:
        own = self._memory.span()
        if own is not None and wanted.since_s >= own[0]:  # though the store may fail
            return self._memory.timelines(wanted)
        stored = self._store.timelines(wanted)
        step_s = max((each.step_s for each in stored.values()), default=wanted.at_least_s)
        found = self._memory.timelines(replace(wanted, at_least_s=step_s))
        return {name: _together(stored.get(name), found.get(name)) for name in {**stored, **found}}

    def moment(self, time_s: float) -> Moment:
        own = self._memory.span()
        if own is not None and time_s >= own[0]:
            return self._memory.moment(time_s)
        return self._store.moment(time_s)

    def events(
        self, since_s: float, until_s: float | None = None, limit: int | None = None
    ) -> list[Event]:
        found = {
            event.identity: event
            for past in (self._store, self._memory)
            for event in past.events(since_s, until_s, limit)
        }
        listed = sorted(found.values(), key=lambda event: event.began_s)
        return listed[-limit:] if limit else listed


def _together(one: Timeline | None, other: Timeline | None) -> Timeline:
    """Return what either knows; they have the same columns, and never the same readings."""
    if one is None or other is None:
        found = one or other
        assert found is not None
        return found
    kind = BY_NAME[one.metric].kind
    pairs = zip(one.columns, other.columns, strict=True)
    return replace(one, columns=tuple(_joined(a, b, kind) for a, b in pairs))


def _joined(one: Column | None, other: Column | None, kind: Kind) -> Column | None:
    if one is None or other is None:
        return one or other
    if not one.readings or not other.readings:
        return one if one.readings else other
    readings, missing_s = one.readings + other.readings, min(one.missing_s, other.missing_s)
    if kind is not Kind.GAUGE:
        both = one.high + other.high if kind is Kind.COUNTER else int(one.high) | int(other.high)
        return Column(both, both, both, readings, missing_s)
    mean = (one.mean * one.readings + other.mean * other.readings) / readings
    low, high = min(one.low, other.low), max(one.high, other.high)
    return Column(low, high, mean, readings, missing_s)


def of_recording(path: Path) -> Memory:
    """Return the past of a recording, its last six hours; UsageError where it is none.

    It takes as long as reading does, some 0.3 ms a frame of eight GPUs.
    """
    from gpuadvisor.collectors.telemetry.recording import read_recording
    from gpuadvisor.rules.conditions import Conditions

    memory, conditions = Memory(RECORDED_S), Conditions()
    for frame in read_recording(path).frames():
        memory.take(frame, conditions.observe(frame))
    return memory
