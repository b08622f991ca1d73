"""From frames to the figures of a block.

Frames are folded as they come and not kept: a block may last for days. What is read within the
block counts; where nothing was, as it was short, the readings just before and after it do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from gpuadvisor.daemon.detectors import throttling
from gpuadvisor.domain.clock_reasons import holds
from gpuadvisor.domain.telemetry import HOST, Frame, Gpu, Number, Sample, Trouble
from gpuadvisor.monitoring.block_figures import BlockFigures, GpuFigures
from gpuadvisor.monitoring.block_integrals import (
    ENERGY_SHARE,
    GAP_S,
    Average,
    Count,
    Counter,
    Level,
)

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
"""The metric that a figure needs."""

SILENT = "The NVIDIA driver has not answered."


def summarize(frames: Iterable[Frame], began_s: float, ended_s: float) -> BlockFigures:
    """Return the figures of all GPUs between two Unix times, from frames in order of time."""
    tally = Tally()
    tally.begin(began_s)
    for frame in frames:
        tally.add(frame, ended_s)
        if frame.time_s >= ended_s:
            break
    return tally.figures(ended_s)


class Tally:
    """All GPUs, before, during and just after the block."""

    def __init__(self) -> None:
        self.gpus: tuple[Gpu, ...] = ()
        self._began_s = inf
        self._problem: str | None = None
        self._tallies: dict[str, _GpuTally] = {}

    def begin(self, began_s: float) -> None:
        """Begin the block; what was added before is what was known then."""
        self._began_s = began_s
        if self.gpus:
            self._problem = None  # of the driver's start, which is over

    def add(self, frame: Frame, ended_s: float = inf) -> None:
        """Take in a frame; frames come in order of time, and one from after the end is enough."""
        if frame.gpus is not None:
            self.gpus = frame.gpus
        if frame.problem and not (self.gpus and self._problem):
            self._problem = frame.problem  # those after the first say less: "it is starting"
        for uuid, sample in frame.samples.items():
            if uuid != HOST:
                tally = self._tallies.setdefault(uuid, _GpuTally())
                tally.add(frame, sample, self._began_s, ended_s)

    def figures(self, ended_s: float, gpus: Iterable[Gpu] | None = None) -> BlockFigures:
        """End the block: return the figures of these GPUs, or of all that are there at its end."""
        found = tuple(
            self._tallies.get(gpu.uuid, _GpuTally()).figures(gpu, self._began_s, ended_s)
            for gpu in (self.gpus if gpus is None else gpus)
        )
        problem = self._problem or (None if self.gpus else SILENT)
        return BlockFigures(ended_s - self._began_s, found, problem)


class _GpuTally:
    """One GPU."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, Number]] = {}
        self._after: dict[str, tuple[float, Number]] = {}
        self._levels = {name: Level() for name in LEVELS}
        self._averages = {name: Average() for name in AVERAGES}
        self._presence = Level()
        self._masks: set[int] = set()
        self._counter = Counter()
        self._troubles: Mapping[str, Trouble] = {}
        self._samples = 0

    def add(self, frame: Frame, sample: Sample, began_s: float, ended_s: float) -> None:
        if frame.whole:
            lasting = self._troubles
            self._troubles = {
                name: lasting[name]
                if name in lasting and lasting[name].state is trouble.state
                else trouble
                for name, trouble in sample.troubles.items()
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

    def figures(self, gpu: Gpu, began_s: float, ended_s: float) -> GpuFigures:
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
        """Memory is as it was at the edges, which count for its peak too."""
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
        trouble = self._troubles.get(metric)
        if trouble is not None:
            state = str(trouble.state).replace("_", " ")
            return f"{state}: {trouble.reason}" if trouble.reason else state
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
        words.removeprefix("by ")
        for key, (_, _, words) in throttling.REASONS.items()
        if any(holds(mask, key) for mask in masks)
    )
