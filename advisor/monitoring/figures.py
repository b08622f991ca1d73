"""Figures of a block, summed up from frames, and their table.

Frames are folded as they come and not kept: a block may last for days. What is read within the
block counts; where nothing was, as it was short, the readings just before and after it do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from typing import Any

from gpuadvisor.domain.accumulators import MISSED_READINGS, Accumulator
from gpuadvisor.domain.clock_reasons import SLOWING, holds
from gpuadvisor.domain.metrics import SamplingInterval
from gpuadvisor.domain.telemetry import Frame, Gpu, Number, Sample, Unavailable

GAP_S = MISSED_READINGS * SamplingInterval.NORMAL.period_s
"""The time between two readings, in seconds, beyond which nothing is known of it."""
MEAN_SHARE = 0.5
"""The least share of the block over which readings must extend for a mean."""
ENERGY_SHARE = 0.9
"""The least share of the block over which readings must extend for the energy, a sum."""
COUNTER_SHARE = 0.8
"""The energy counter is used where its readings span this share of the block."""
COUNTER_MIN_S = 2.0
"""The counter is not fed at every instant: smaller differences mean little."""
UNKNOWN = "-"
_HEADER = ("GPU", "util %", "SM %", "tensor %", "power W", "energy J", "memory GiB", "C",
           "held down by")  # fmt: skip
AVERAGES = ("sm_active_pct", "tensor_active_pct")
LEVELS = ("gpu_utilization_pct", "power_w", "memory_used_bytes", "temperature_c")
MASK, COUNTER, MEMORY = "throttle_reasons", "energy_j", "memory_used_bytes"
READ = frozenset((*AVERAGES, *LEVELS, MASK, COUNTER))
SOURCES = {
    "gpu_utilization_mean_pct": "gpu_utilization_pct",
    "gpu_utilization_max_pct": "gpu_utilization_pct",
    "sm_active_mean_pct": "sm_active_pct",
    "tensor_active_mean_pct": "tensor_active_pct",
    "power_mean_w": "power_w",
    "power_max_w": "power_w",
    "energy_j": "power_w",
    "memory_peak_bytes": "memory_used_bytes",
    "memory_before_bytes": "memory_used_bytes",
    "memory_after_bytes": "memory_used_bytes",
    "temperature_max_c": "temperature_c",
    "throttle_reasons": MASK,
}
"""For each figure the metric that it needs."""
SILENT = "The NVIDIA driver has not answered."


@dataclass
class Level:
    """A metric over time: straight lines between its readings."""

    sum: float = 0.0
    """The integral over the time that is covered: for watts, joules."""
    covered_s: float = 0.0
    most: Number | None = None
    last: tuple[float, Number] | None = None

    def take(self, time_s: float, value: Number, began_s: float) -> None:
        """Take in a reading within the block; the first holds from the beginning on."""
        since_s, before = self.last or (began_s, value)
        self._cover(time_s - since_s, (before + value) / 2)
        self.most = value if self.most is None else max(self.most, value)
        self.last = (time_s, value)

    def end(self, ended_s: float) -> None:
        """Let the last reading hold until the block's end."""
        if self.last is not None:
            self._cover(ended_s - self.last[0], self.last[1])

    def mean(self, seconds: float, share: float = MEAN_SHARE) -> float | None:
        """Return the mean over the time covered, None where that is too little of the block."""
        enough = self.covered_s > 0 and self.covered_s >= share * seconds
        return self.sum / self.covered_s if enough else None

    def _cover(self, seconds: float, value: Number) -> None:
        if 0 <= seconds <= GAP_S:
            self.sum += value * seconds
            self.covered_s += seconds


@dataclass
class Average(Level):
    """A metric whose readings are averages over the time since the one before.

    It takes readings from before and after the block too, and counts what overlaps.
    """

    ended_s: float = inf

    def take(self, time_s: float, value: Number, began_s: float) -> None:
        since_s = self.last[0] if self.last else -inf
        if time_s - since_s > GAP_S:
            since_s = time_s - SamplingInterval.NORMAL.period_s
        self._cover(min(time_s, self.ended_s) - max(since_s, began_s), value)
        self.last = (time_s, value)


@dataclass(frozen=True)
class Count:
    """A reading of the energy counter, and what the power came to by then."""

    time_s: float
    energy_j: float
    power_j: float
    """The power integrated since the block began; negative before."""
    covered_s: float


@dataclass
class Counter:
    """The energy counter's reading next to the block's beginning, and its last one."""

    first: Count | None = None
    last: Count | None = None
    is_broken: bool = False
    """Whether the counter went back, as it does when the driver is loaded anew."""

    def take(self, now: Count, began_s: float) -> None:
        """Take in a reading; they come in order of time, and until the end of the block."""
        if self.last is not None and now.energy_j < self.last.energy_j:
            self.is_broken = True
        old = self.first
        if old is None or abs(now.time_s - began_s) < abs(old.time_s - began_s):
            self.first = now
        self.last = now

    def used_j(self, power: Level, began_s: float, ended_s: float) -> float | None:
        """Return its difference, with `power` before its first and after its last reading.

        None where the two do not span enough of the block, or the power around is not known.
        """
        first, last = self.first, self.last
        if first is None or last is None or self.is_broken:
            return None
        seconds, span_s = ended_s - began_s, last.time_s - first.time_s
        around_s = abs(first.time_s - began_s) + ended_s - last.time_s
        if span_s < COUNTER_MIN_S or around_s > (1 - COUNTER_SHARE) * seconds:
            return None
        unread_s = seconds - span_s - (power.covered_s - (last.covered_s - first.covered_s))
        if unread_s > (1 - ENERGY_SHARE) * seconds:
            return None
        counted_j = last.energy_j - first.energy_j
        around_j = power.sum - (last.power_j - first.power_j)
        return counted_j + around_j + max(unread_s, 0.0) * counted_j / span_s


@dataclass(frozen=True)
class GpuFigures:
    """One GPU during the block. What is not known is None, and `unknown` says why."""

    uuid: str
    index: int
    """The number that nvidia-smi gives the GPU."""
    name: str
    seconds: float
    """The part of the block in which readings came without a break of more than three seconds."""
    samples: int
    """Readings within the block; 0 where it was shorter than the time between two."""
    gpu_utilization_mean_pct: float | None = None
    """Time in which at least one kernel ran, however small it was."""
    gpu_utilization_max_pct: float | None = None
    sm_active_mean_pct: float | None = None
    """How much of the GPU worked: SMs with at least one warp (Hopper and later)."""
    tensor_active_mean_pct: float | None = None
    """Cycles in which the tensor cores worked (Hopper and later)."""
    power_mean_w: float | None = None
    power_max_w: float | None = None
    energy_j: float | None = None
    energy_source: str | None = None
    """`counter` or `power`: see `gpuadvisor.monitor`."""
    memory_peak_bytes: int | None = None
    """The most that any reading found in use on the GPU, by all processes together. What is used
    for less than the time between two readings is not seen."""
    memory_before_bytes: int | None = None
    memory_after_bytes: int | None = None
    temperature_max_c: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """What held the clocks down, such as `its power limit`; empty where nothing did."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Why a figure is None, by the name of its field."""


@dataclass(frozen=True)
class BlockFigures:
    """A block, and the GPUs during it."""

    seconds: float
    """How long the block took."""
    gpus: tuple[GpuFigures, ...] = ()
    problem: str | None = None
    """Why nothing could be read, in one sentence: of all GPUs, or at some time in the block."""

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as JSON can hold them."""
        return asdict(self)

    def __str__(self) -> str:
        title = f"{len(self.gpus)} GPU{'s' * (len(self.gpus) != 1)} for {self.seconds:.2f} s"
        lines = [title if self.problem is None else f"{title}. {self.problem}"]
        if self.gpus:
            rows = [_HEADER, *map(_row, self.gpus)]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            for row in rows:
                lines.append("  ".join(map(str.ljust, row, widths)).rstrip())
        if any(gpu.unknown for gpu in self.gpus):
            lines.append(f"{UNKNOWN}: not known; `unknown` of each GPU says why")
        return "\n".join(lines)


def _row(gpu: GpuFigures) -> tuple[str, ...]:
    energy, peak = _number(gpu.energy_j), gpu.memory_peak_bytes
    held = gpu.throttle_reasons
    return (
        f"{gpu.index} {gpu.name.removeprefix('NVIDIA ')}",
        _mean_and_max(gpu.gpu_utilization_mean_pct, gpu.gpu_utilization_max_pct),
        _number(gpu.sm_active_mean_pct),
        _number(gpu.tensor_active_mean_pct),
        _mean_and_max(gpu.power_mean_w, gpu.power_max_w),
        energy if gpu.energy_source is None else f"{energy} ({gpu.energy_source})",
        UNKNOWN if peak is None else f"{peak / 2**30:.2f}",
        _number(gpu.temperature_max_c),
        UNKNOWN if held is None else ", ".join(held) or "nothing",
    )


def _mean_and_max(mean: Number | None, most: Number | None) -> str:
    return UNKNOWN if mean is most is None else f"{_number(mean)} (max {_number(most)})"


def _number(value: Number | None) -> str:
    return UNKNOWN if value is None else f"{value:,.{0 if abs(value) >= 10 else 1}f}"


class BlockAccumulator(Accumulator["_GpuInBlock"]):
    """All GPUs, before, during and just after the block; one frame from after its end is enough."""

    def __init__(self) -> None:
        super().__init__(lambda: _GpuInBlock(self._span), with_host=False)
        self._span = _Span()
        self._problem: str | None = None

    @property
    def ended_s(self) -> float:
        """Unix time of the block's end; infinite until it is known."""
        return self._span.ended_s

    def begin(self, began_s: float) -> None:
        """Begin the block; what was added before is what was known then."""
        self._span.began_s = began_s
        if self.gpus:
            self._problem = None  # of the driver's start, which is over

    def end(self, ended_s: float) -> None:
        """End the block at this Unix time; frames up to the next one may still come."""
        self._span.ended_s = ended_s

    def add(self, frame: Frame) -> None:
        super().add(frame)
        if frame.problem and not (self.gpus and self._problem):
            self._problem = frame.problem  # those after the first say less: "it is starting"

    def figures(self, gpus: Iterable[Gpu] | None = None) -> BlockFigures:
        """Return the figures of these GPUs, or of all that are there at the block's end; once."""
        found = tuple(
            self.device(gpu.uuid).figures(gpu) for gpu in (self.gpus if gpus is None else gpus)
        )
        problem = self._problem or (None if self.gpus else SILENT)
        return BlockFigures(self._span.ended_s - self._span.began_s, found, problem)


@dataclass
class _Span:
    """The block's time, which all its GPUs share; its begin and end come to be known."""

    began_s: float = inf
    ended_s: float = inf


class _GpuInBlock:
    """One GPU before, during and just after the block."""

    def __init__(self, span: _Span) -> None:
        self._span = span
        self._before: dict[str, tuple[float, Number]] = {}
        self._after: dict[str, tuple[float, Number]] = {}
        self._levels = {name: Level() for name in LEVELS}
        self._averages = {name: Average() for name in AVERAGES}
        self._presence = Level()
        self._masks: set[int] = set()
        self._counter = Counter()
        self._unavailable: Mapping[str, Unavailable] = {}
        self._samples = 0

    def add(self, frame: Frame, sample: Sample) -> None:
        began_s, ended_s = self._span.began_s, self._span.ended_s
        if frame.full:
            lasting = self._unavailable
            self._unavailable = {
                name: lasting[name]
                if name in lasting and lasting[name].state is absence.state
                else absence
                for name, absence in sample.unavailable.items()
            }
        values = {name: value for name, value in sample.values.items() if name in READ}
        for name in AVERAGES:
            if name in values:
                self._averages[name].ended_s = ended_s
                self._averages[name].take(frame.time_s, values[name], began_s)
        timed = {name: (frame.time_s, value) for name, value in values.items()}
        if frame.time_s < began_s:
            self._before.update(timed)
        elif frame.time_s > ended_s:
            self._after.update(timed)
        elif values:
            self._samples += 1
            self._take(frame.time_s, values, began_s)

    def figures(self, gpu: Gpu) -> GpuFigures:
        began_s, ended_s = self._span.began_s, self._span.ended_s
        seconds = ended_s - began_s
        if seconds <= GAP_S:
            self._borrow(began_s, ended_s)
        found = self._memory(began_s, ended_s)
        for level in (*self._levels.values(), self._presence):
            level.end(ended_s)
        found |= {**self._means_and_peaks(seconds), **self._energy(began_s, ended_s)}
        found["throttle_reasons"] = _in_words(self._masks) if self._masks else None
        return GpuFigures(
            uuid=gpu.uuid,
            index=gpu.index,
            name=gpu.name,
            seconds=self._presence.covered_s,
            samples=self._samples,
            unknown={n: self._why(m, seconds) for n, m in SOURCES.items() if found[n] is None},
            **found,
        )

    def _take(self, time_s: float, values: Mapping[str, Number], began_s: float) -> None:
        self._presence.take(time_s, 1, began_s)
        for name in LEVELS:
            if name in values:
                self._levels[name].take(time_s, values[name], began_s)
        if MASK in values:
            self._masks.add(int(values[MASK]))
        if COUNTER in values:
            self._count_before(began_s)
            power = self._levels["power_w"]
            now = Count(time_s, values[COUNTER], power.sum, power.covered_s)
            self._counter.take(now, began_s)

    def _count_before(self, began_s: float) -> None:
        """Let the counter know its last reading before the block, where the power then is known."""
        if COUNTER in self._before and "power_w" in self._before:
            time_s, energy_j = self._before.pop(COUNTER)
            early_s = began_s - time_s
            power_j = self._before["power_w"][1] * early_s
            self._counter.take(Count(time_s, energy_j, -power_j, -early_s), began_s)

    def _borrow(self, began_s: float, ended_s: float) -> None:
        """Take the readings around a short block for those of its edges, where it has none."""
        lacking = {name for name in LEVELS if self._levels[name].last is None}
        if not self._masks:
            lacking.add(MASK)
        for edge_s, around in ((began_s, self._before), (ended_s, self._after)):
            near = {n: v for n, (t, v) in around.items() if abs(t - edge_s) <= GAP_S}
            values = {name: value for name, value in near.items() if name in lacking}
            if values:
                self._take(edge_s, values, began_s)

    def _means_and_peaks(self, seconds: float) -> dict[str, Any]:
        utilization, power = self._levels["gpu_utilization_pct"], self._levels["power_w"]
        return {
            "gpu_utilization_mean_pct": utilization.mean(seconds),
            "gpu_utilization_max_pct": utilization.most,
            "sm_active_mean_pct": self._averages["sm_active_pct"].mean(seconds),
            "tensor_active_mean_pct": self._averages["tensor_active_pct"].mean(seconds),
            "power_mean_w": power.mean(seconds),
            "power_max_w": power.most,
            "temperature_max_c": self._levels["temperature_c"].most,
        }

    def _memory(self, began_s: float, ended_s: float) -> dict[str, Any]:
        """Return the memory at the block's edges and its peak, for which the edges count too."""
        level = self._levels[MEMORY]
        before = _near(self._before.get(MEMORY), began_s)
        after = _near(self._after.get(MEMORY) or level.last, ended_s)
        known = [value for value in (before, level.most, after) if value is not None]
        return {
            "memory_before_bytes": before,
            "memory_peak_bytes": max(known, default=None),
            "memory_after_bytes": after,
        }

    def _energy(self, began_s: float, ended_s: float) -> dict[str, Any]:
        power, seconds = self._levels["power_w"], ended_s - began_s
        counted_j = self._counter.used_j(power, began_s, ended_s)
        if counted_j is not None:
            return {"energy_j": counted_j, "energy_source": "counter"}
        mean_w = power.mean(seconds, ENERGY_SHARE)
        if mean_w is None:
            return {"energy_j": None, "energy_source": None}
        return {"energy_j": mean_w * seconds, "energy_source": "power"}

    def _why(self, metric: str, seconds: float) -> str:
        """Return why a figure of this metric is not known."""
        absence = self._unavailable.get(metric)
        if absence is not None:
            state = str(absence.state).replace("_", " ")
            return f"{state}: {absence.reason}" if absence.reason else state
        folded = {**self._levels, **self._averages}.get(metric)
        if folded is None or not folded.covered_s:
            return "no reading came in the block"
        if folded.covered_s >= ENERGY_SHARE * seconds:
            return "no reading came near that end of the block"
        return f"it was read for {folded.covered_s:.1f} of {seconds:.1f} s only"


def _near(reading: tuple[float, Number] | None, time_s: float) -> Number | None:
    """Return a reading that is close enough to that time."""
    return reading[1] if reading and abs(reading[0] - time_s) <= GAP_S else None


def _in_words(masks: Iterable[int]) -> tuple[str, ...]:
    """Return what held the clocks down, without what costs no speed."""
    return tuple(
        reason.cause
        for reason in SLOWING.values()
        if any(holds(mask, reason.name) for mask in masks)
    )
