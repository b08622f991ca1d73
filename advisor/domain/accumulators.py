"""Frames folded as they come: the `Accumulator` of all who sum them up, and the newest values.

A frame holds only what was due, so whoever wants more keeps a state for each device.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gpuadvisor.domain.metrics import BY_NAME, SamplingInterval
from gpuadvisor.domain.telemetry import (
    HOST,
    PROCESSES,
    Frame,
    Gpu,
    GpuProcess,
    Number,
    Sample,
    State,
    Unavailable,
)

MISSED_READINGS = 3
"""A value is stale once so many readings of it are overdue."""
LISTING_HOLDS_S = 15.0
"""Seconds for which a list of processes holds: three times the time between two of them."""
STALE_AFTER_S = 2.0
"""No value is stale before this age: what is read ten times a second may be late for once."""


class DeviceState(Protocol):
    """What an accumulator keeps of one GPU, or of the machine."""

    def add(self, frame: Frame, sample: Sample) -> None:
        """Take in this device's sample of a frame."""


D = TypeVar("D", bound=DeviceState)


class Accumulator(Generic[D]):
    """GPUs and processes as listed last, and a state of each device, over the frames of a source.

    A client names the state that it keeps of a device, and adds what concerns the whole frame.
    """

    def __init__(self, make: Callable[[], D], *, with_host: bool = True) -> None:
        """`make` returns the state of a device that was not seen yet; HOST may be left out."""
        self.devices: dict[str, D] = {}
        """The states by the GPU's UUID, and HOST for the machine."""
        self.listed: tuple[Gpu, ...] | None = None
        """The GPUs as listed last; None where no frame listed them."""
        self.processes: tuple[GpuProcess, ...] | None = None
        """The processes as listed last; None until they were listed once."""
        self._make = make
        self._with_host = with_host

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs as listed last, none where no frame listed them."""
        return self.listed or ()

    def add(self, frame: Frame) -> None:
        """Take in a frame; frames come in order of time."""
        if frame.gpus is not None:
            self.listed = frame.gpus
        if frame.processes is not None:
            self.processes = frame.processes
        for uuid, sample in frame.samples.items():
            if self._with_host or uuid != HOST:
                self.device(uuid).add(frame, sample)

    def device(self, uuid: str) -> D:
        """Return the state of a device, a new one where it was not seen yet."""
        state = self.devices.get(uuid)
        if state is None:
            state = self.devices[uuid] = self._make()
        return state


def remember(kept: deque[tuple[float, Number]], time_s: float, value: Number, for_s: float) -> None:
    """Add a reading (Unix time, value) to those kept, and drop what is older than `for_s`.

    Where the clock was set back, what was kept is at no known time and is dropped.
    """
    if kept and time_s < kept[-1][0]:
        kept.clear()
    kept.append((time_s, value))
    while time_s - kept[0][0] > for_s:
        kept.popleft()


@dataclass(frozen=True)
class Reading:
    """A metric now: a value that is OK, or the last one known and why it is not."""

    value: Number | None
    state: State
    since_s: float
    """Unix time at which the value was read; of a metric without any, since when it has none."""
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        return self.state is State.OK


class _Newest:
    """The newest readings of one device."""

    __slots__ = ("_last", "_last_s", "_older", "unavailable")

    def __init__(self) -> None:
        self.unavailable: Mapping[str, Unavailable] = {}
        self._last: Mapping[str, Number] = {}
        """The values of the newest sample, which are nearly all, as they came."""
        self._last_s = 0.0
        self._older: dict[str, tuple[float, Number]] = {}
        """The Unix time and the value of metrics that the newest sample does not have."""

    def add(self, frame: Frame, sample: Sample) -> None:
        for name in self._last.keys() - sample.values.keys():
            self._older[name] = (self._last_s, self._last[name])
        self._last, self._last_s = sample.values, frame.time_s
        if frame.full:
            self.unavailable = sample.unavailable

    def known(self, metric: str) -> tuple[float, Number] | None:
        """Return the Unix time and the value of a metric; None where it was never read."""
        value = self._last.get(metric)
        return self._older.get(metric) if value is None else (self._last_s, value)


class Latest(Accumulator[_Newest]):
    """The newest value of every metric."""

    def __init__(self) -> None:
        super().__init__(_Newest)
        self.problem: str | None = None
        """Why nothing can be read at all now; None where all is well."""
        self.time_s = 0.0
        """Unix time of the newest frame; 0 before the first."""
        self.processes_s = 0.0
        """Unix time at which `processes` were listed; 0 before the first time."""
        self.throttle_reasons = 0
        """All bits that the newest frame has of any GPU."""

    def add(self, frame: Frame) -> None:
        self.time_s = frame.time_s
        self.problem = frame.problem
        self.throttle_reasons = 0
        for sample in frame.samples.values():
            self.throttle_reasons |= int(sample.values.get("throttle_reasons", 0))
        if frame.processes is not None:
            self.processes_s = frame.time_s
        super().add(frame)

    def processes_at(self, now_s: float) -> tuple[GpuProcess, ...] | None:
        """Return the processes as they are at a Unix time; None where they were not listed lately,
        or nothing can be read."""
        is_old = now_s - self.processes_s > LISTING_HOLDS_S or self.problem is not None
        return None if is_old else self.processes

    def lists(self, gpu: str) -> bool:
        """Return whether the driver lists the processes of a GPU (UUID), as far as is known."""
        newest = self.devices.get(gpu)
        return newest is None or PROCESSES not in newest.unavailable

    def reading(self, device: str, metric: str, now_s: float | None = None) -> Reading | None:
        """Return a metric of a GPU (its UUID) or of HOST; None where it was never read.

        `now_s` is the Unix time by which its age is judged, the newest frame's unless given.
        """
        newest = self.devices.get(device)
        if newest is None:
            return None
        absence, known = newest.unavailable.get(metric), newest.known(metric)
        if absence is not None:
            last = known[1] if known and absence.state is State.STALE else None
            return Reading(last, absence.state, absence.since_s, absence.reason)
        if known is None:
            return None
        time_s, value = known
        age_s = (self.time_s if now_s is None else now_s) - time_s
        state = State.OK if age_s <= PATIENCE_S[metric] else State.STALE
        return Reading(value, state, time_s)

    def value(self, device: str, metric: str, now_s: float | None = None) -> Number | None:
        """Return a metric's value, None unless it is OK: what `reading` says, in a third of the
        time, as the conditions ask for a hundred values a second."""
        newest = self.devices.get(device)
        if newest is None or metric in newest.unavailable:
            return None
        known = newest.known(metric)
        if known is None:
            return None
        age_s = (self.time_s if now_s is None else now_s) - known[0]
        return known[1] if age_s <= PATIENCE_S[metric] else None


PATIENCE_S = {
    name: max(
        STALE_AFTER_S,
        MISSED_READINGS * max(metric.interval.period_s, SamplingInterval.NORMAL.period_s),
    )
    for name, metric in BY_NAME.items()
}
"""For each metric, the age from which its value is stale."""
