"""Telemetry of GPUs over some time, summed up for the rules: the last minute, or in one go.

Sums of a recording or of the store do not grow with the time: an hour takes as much memory as a
minute. The last minute is kept as it came, and summed up only as far as a rule asks: a daemon looks
every ten seconds at a few of the metrics that it reads each second.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, pairwise

from gpuadvisor.domain.accumulators import Accumulator
from gpuadvisor.domain.clock_reasons import BITS, holds
from gpuadvisor.domain.metrics import BY_NAME, SamplingInterval
from gpuadvisor.domain.telemetry import (
    PROCESSES,
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Number,
    Sample,
    Unavailable,
)

BUSY_PCT = 50
"""Utilization from which a GPU is at work. It is an average over up to a second, so in the second
in which work begins or ends either may be said."""
UTILIZATION = "gpu_utilization_pct"
FLAGS = "throttle_reasons"
CARRIED_S = {
    name: 3 * metric.interval.period_s
    for name, metric in BY_NAME.items()
    if metric.interval in (SamplingInterval.SLOW, SamplingInterval.RARE)
}
"""For how long a value holds of what is read rarely: as `Latest` has it, until three readings of
it are overdue."""
LONGEST_CARRIED_S = max(CARRIED_S.values())
MOST_EVENTS = 200
"""Events kept of a window, the newest: a failing GPU can report several errors a second."""

LONGEST_STEP_S = 5.0
"""Seconds between two whole frames beyond which nothing was measured, as `gap` has it."""
SET_BACK_S = 1.0
"""As the condition `gap` has it. A frame without values, which only says that a sampler is silent,
may be some milliseconds newer than the one that comes next."""

Samples = dict[str, list[float]]
"""Count, sum, low, high, first and last value, and how much it grew, by the metric's name."""


@dataclass(frozen=True)
class Series:
    """A metric of one GPU over some time."""

    count: int
    """The number of samples that had a value; at least one."""
    mean: float
    low: float
    high: float
    first: float
    last: float
    grown: float = 0.0
    """How much a counter grew at least: where it fell it had begun anew at 0, as when the driver is
    loaded again, and what it had counted until then is not known."""


@dataclass(frozen=True)
class GpuWindow:
    """Telemetry of one GPU over some time, summed up."""

    gpu: Gpu
    series: Mapping[str, Series] = field(default_factory=dict)
    """Metrics by their name; those that never had a value are in `unavailable` or nowhere. What is
    read every ten seconds or less often begins with the last value from before, if that still
    held. Of sets of bits only the count says something."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """For metrics that are sets of bits (clocks-event reasons): `metric/reason` to the share of the
    samples in which the reason held, 0 to 1. All reasons are there if the metric was read."""
    busy: Mapping[str, Series] = field(default_factory=dict)
    """`series` of the samples alone that found the GPU at work (`BUSY_PCT`)."""
    busy_shares: Mapping[str, float] = field(default_factory=dict)
    """`shares` of the samples alone that found the GPU at work."""
    unavailable: Mapping[str, Unavailable] = field(default_factory=dict)
    processes: tuple[GpuProcess, ...] | None = None
    """The last known; None where they were not asked for, or the driver does not list them."""

    @property
    def busy_share(self) -> float:
        """In what share of the samples the GPU was at work; 0 where utilization was not read."""
        every, busy = (each.get("gpu_utilization_pct") for each in (self.series, self.busy))
        return busy.count / every.count if every and busy else 0.0


@dataclass(frozen=True)
class TelemetryWindow:
    """Telemetry of all GPUs of a machine over the same time, summed up."""

    begin_s: float
    """Unix time."""
    end_s: float
    gpus: tuple[GpuWindow, ...] = ()
    events: tuple[Event, ...] = ()
    """Events that lasted or happened within."""
    unmeasured_s: float = field(default=0.0, compare=False)
    """Seconds between begin and end in which nothing could be read of any GPU, as the machine slept
    or the driver was silent; of the last minute they are not counted."""
    withheld: str | None = None
    """What is known of processes and was not told to this user, in one sentence; None: nothing."""

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s

    @property
    def measured_s(self) -> float:
        """The seconds of which the samples tell."""
        return max(self.seconds - self.unmeasured_s, 0.0)


class _GpuSums:
    """What the samples of one GPU come to."""

    __slots__ = ("busy", "busy_masks", "every", "last_s", "masks", "unavailable")

    def __init__(self) -> None:
        self.every: Samples = {}
        self.busy: Samples = {}
        self.masks: Counter[int] = Counter()
        self.busy_masks: Counter[int] = Counter()
        self.last_s: dict[str, float] = {}
        """The Unix time of the last reading of each metric that is read rarely."""
        self.unavailable: Mapping[str, Unavailable] = {}

    def add(self, frame: Frame, sample: Sample) -> None:
        """Take in one poll."""
        values = sample.values
        _add_all(self.every, values)
        for name in CARRIED_S.keys() & values.keys():
            self.last_s[name] = frame.time_s
        mask = values.get(FLAGS)
        is_busy = values.get(UTILIZATION, 0) >= BUSY_PCT
        if is_busy:
            _add_all(self.busy, values)
        if mask is not None:
            self.masks[int(mask)] += 1
            if is_busy:
                self.busy_masks[int(mask)] += 1
        if frame.full:
            self.unavailable = sample.unavailable

    def carried(self, now_s: float) -> _GpuSums:
        """Return sums of the last values that still hold then, of what is read rarely."""
        made = _GpuSums()
        for name, read_s in self.last_s.items():
            if 0 <= now_s - read_s <= CARRIED_S[name]:
                last = self.every[name][5]
                made.every[name] = [1, last, last, last, last, last, 0]
                made.last_s[name] = read_s
        return made

    def window(self, gpu: Gpu, processes: tuple[GpuProcess, ...] | None) -> GpuWindow:
        """Return what it says."""
        return GpuWindow(
            gpu,
            _series(self.every),
            _shares(self.masks),
            _series(self.busy),
            _shares(self.busy_masks),
            self.unavailable,
            None if PROCESSES in self.unavailable else processes,
        )


class WindowAccumulator(Accumulator[_GpuSums]):
    """All GPUs of a machine over some time, in memory that does not grow with it."""

    def __init__(self) -> None:
        super().__init__(_GpuSums, with_host=False)
        self.events: list[Event] = []

    def add(self, frame: Frame) -> None:
        super().add(frame)
        if frame.events:
            self.events = [*self.events, *frame.events][-MOST_EVENTS:]

    def carried(self, now_s: float) -> WindowAccumulator:
        """Return an accumulator that begins with the values that still hold then."""
        made = WindowAccumulator()
        made.devices = {uuid: sums.carried(now_s) for uuid, sums in self.devices.items()}
        made.listed, made.processes = self.listed, self.processes
        return made

    def window(self, begin_s: float, end_s: float, unmeasured_s: float = 0.0) -> TelemetryWindow:
        """Return what it says, of the GPUs that were listed last; times are Unix times."""
        empty = _GpuSums()
        return TelemetryWindow(
            begin_s,
            end_s,
            tuple(
                self.devices.get(gpu.uuid, empty).window(gpu, _processes_on(gpu, self.processes))
                for gpu in self.gpus
            ),
            tuple(self.events),
            unmeasured_s,
        )


class _Recent:
    """The last samples of one GPU as they came, and what still held of those before."""

    __slots__ = ("before", "samples", "unavailable")

    def __init__(self) -> None:
        self.before: dict[str, tuple[float, Number]] = {}
        """Unix time and value of the last reading before `samples` of what is read rarely."""
        self.samples: deque[tuple[float, Mapping[str, Number]]] = deque()
        """Unix time and values of each poll."""
        self.unavailable: Mapping[str, Unavailable] = {}

    def add(self, frame: Frame, sample: Sample) -> None:
        """Take in one poll."""
        self.samples.append((frame.time_s, sample.values))
        if frame.full:
            self.unavailable = sample.unavailable

    def forget(self, before_s: float) -> None:
        """Drop what is from before this Unix time."""
        while self.samples and self.samples[0][0] < before_s:
            time_s, values = self.samples.popleft()
            for name in CARRIED_S.keys() & values.keys():
                self.before[name] = (time_s, values[name])

    def window(
        self, gpu: Gpu, processes: tuple[GpuProcess, ...] | None, begin_s: float
    ) -> GpuWindow:
        """Return what it says from this Unix time on."""
        carried = {
            name: value
            for name, (read_s, value) in self.before.items()
            if 0 <= begin_s - read_s <= CARRIED_S[name]
        }
        every = [values for _, values in self.samples]
        busy = [values for values in every if values.get(UTILIZATION, 0) >= BUSY_PCT]
        return GpuWindow(
            gpu,
            _SeriesOnDemand(every, carried),
            _shares(_masks(every)),
            _SeriesOnDemand(busy, {}),
            _shares(_masks(busy)),
            self.unavailable,
            None if PROCESSES in self.unavailable else processes,
        )


class _SeriesOnDemand(Mapping[str, Series]):
    """The metrics of some samples, each of which is summed up when it is asked for."""

    def __init__(
        self, samples: Sequence[Mapping[str, Number]], carried: Mapping[str, Number]
    ) -> None:
        """`carried` are values from before, which come first."""
        self._samples = samples
        self._carried = carried
        self._summed: dict[str, Series | None] = {}

    def __getitem__(self, name: str) -> Series:
        if name not in self._summed:
            self._summed[name] = self._sum(name)
        found = self._summed[name]
        if found is None:
            raise KeyError(name)
        return found

    def _sum(self, name: str) -> Series | None:
        values = [each[name] for each in self._samples if name in each]
        if name in self._carried:
            values.insert(0, self._carried[name])
        if not values:
            return None
        count = len(values)
        grown = sum(_grown(*each) for each in pairwise(values) if each[0] != each[1])
        ends = values[0], values[-1]
        return Series(count, sum(values) / count, min(values), max(values), *ends, grown)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain(self._carried, *self._samples)))

    def __len__(self) -> int:
        return len({*chain(self._carried, *self._samples)})


class RollingWindow(Accumulator[_Recent]):
    """The last minute, or so: each frame is kept until it is older."""

    def __init__(self, length_s: float = 60.0) -> None:
        super().__init__(_Recent, with_host=False)
        self._length_s = length_s
        self._times_s: deque[float] = deque()
        """Unix times of the frames."""
        self._events: deque[tuple[float, Event]] = deque(maxlen=MOST_EVENTS)
        """Each with the time of its frame."""
        self._time_s = 0.0

    def add(self, frame: Frame) -> None:
        """Take in a frame. When the clock was set back, it begins anew."""
        if frame.time_s < self._time_s - SET_BACK_S:
            self.devices.clear()
            self._times_s.clear()
            self._events.clear()
            self._time_s = frame.time_s
        self._time_s = max(self._time_s, frame.time_s)
        super().add(frame)
        self._times_s.append(frame.time_s)
        self._events.extend((frame.time_s, event) for event in frame.events)
        before_s = self._time_s - self._length_s
        while self._times_s[0] < before_s:
            self._times_s.popleft()
        for recent in self.devices.values():
            recent.forget(before_s)

    def window(self) -> TelemetryWindow | None:
        """Return what the last minute says; None before the first frame."""
        if not self._times_s:
            return None
        begin_s, empty = self._times_s[0], _Recent()
        return TelemetryWindow(
            begin_s,
            self._time_s,
            tuple(
                self.devices.get(gpu.uuid, empty).window(
                    gpu, _processes_on(gpu, self.processes), begin_s
                )
                for gpu in self.gpus
            ),
            tuple(event for time_s, event in self._events if time_s >= begin_s),
        )


def window_of_frames(
    frames: Iterable[Frame], begin_s: float = 0.0, end_s: float = float("inf")
) -> TelemetryWindow | None:
    """Return what frames in order of time say of a time; None where none of it is of a GPU.

    Those from before the begin tell what still held then of what is read rarely. The window is
    from the first to the last frame that is in it.
    """
    before, sums = WindowAccumulator(), None
    first_s = last_s = whole_s = unmeasured_s = 0.0
    for frame in frames:
        if frame.time_s < begin_s:
            before.add(frame)
        elif frame.time_s < end_s:
            if sums is None:
                sums, first_s = before.carried(frame.time_s), frame.time_s
                whole_s = first_s
            if frame.full:
                passed_s, whole_s = frame.time_s - whole_s, frame.time_s
                if passed_s > LONGEST_STEP_S or frame.problem is not None:
                    unmeasured_s += max(passed_s, 0.0)
            sums.add(frame)
            last_s = frame.time_s
    if sums is None or not sums.devices:
        return None
    return sums.window(first_s, last_s, unmeasured_s)


def _add_all(samples: Samples, values: Mapping[str, Number]) -> None:
    """Count values in: plain lists, as this is done for each metric of each GPU once a second."""
    for name, value in values.items():
        known = samples.get(name)
        if known is None:
            samples[name] = [1, value, value, value, value, value, 0]
            continue
        known[0] += 1
        known[1] += value
        if value < known[2]:
            known[2] = value
        elif value > known[3]:
            known[3] = value
        if value != known[5]:
            known[6] += _grown(known[5], value)
            known[5] = value


def _grown(before: Number, now: Number) -> Number:
    """Return how much a counter grew at least from one reading to the next."""
    return now - before if now > before else now


def _series(samples: Samples) -> dict[str, Series]:
    return {
        name: Series(int(count), total / count, low, high, first, last, grown)
        for name, (count, total, low, high, first, last, grown) in samples.items()
    }


def _processes_on(
    gpu: Gpu, processes: tuple[GpuProcess, ...] | None
) -> tuple[GpuProcess, ...] | None:
    if processes is None:
        return None
    return tuple(process for process in processes if process.gpu == gpu.uuid)


def _masks(samples: Iterable[Mapping[str, Number]]) -> Counter[int]:
    return Counter([int(values[FLAGS]) for values in samples if FLAGS in values])


def _shares(masks: Mapping[int, int]) -> dict[str, float]:
    samples = sum(masks.values())
    if not samples:
        return {}
    counts = dict.fromkeys(BITS, 0)
    for mask, number in masks.items():
        for reason in _reasons(mask):
            counts[reason] += number
    return {f"{FLAGS}/{reason}": count / samples for reason, count in counts.items()}


@lru_cache(1 << len(BITS))
def _reasons(mask: int) -> tuple[str, ...]:
    """Return the reasons that hold."""
    return tuple(reason for reason in BITS if holds(mask, reason))
