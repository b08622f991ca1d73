"""Kernels that Nsight Compute profiled, as rows of a profile; and their GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuadvisor.collectors.nsight.bounded import Names, Warnings
from gpuadvisor.domain.profile import TABLES, UNKNOWN, DeviceLimits, Header, Sink

_MOST_FACTS = 20_000
_LONGEST_FACT = 1000  # characters
_MOST_DEVICES = 1024
_EDGES = 2
"""Edges of its clock on which memory transfers: all of NVIDIA's is counted as double data rate."""
Value = tuple[float, str]
"""A value in its base unit, and that unit."""
MOST_METRICS = 20_000
"""Metrics kept of a kernel at most. `--set full` measures some 2,200 on Hopper."""
_BATCH_ROWS = 65_536
_ONLY_KERNELS = "Nsight Compute profiles kernels only"
_NO_TIMELINE = "Nsight Compute runs kernels one by one, several times each"
_NO_STALLS = "the file does not tell where in kernels warps wait"
_DURATIONS = tuple(f"gpu__time_duration.{rollup}" for rollup in ("sum", "max", "avg"))
_SHARED = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic")
_AXES = ("x", "y", "z")
_HIGHEST = {name: np.iinfo(kind).max for name, kind in TABLES["kernels"].items()}
DEVICE_ATTRIBUTE = "device__attribute_"


class Attributes:
    """Collects attributes of devices, and what is the same for all kernels."""

    def __init__(self) -> None:
        self._limits: dict[int, DeviceLimits] = {}
        self._facts: dict[str, str | None] = {}

    def add(self, device: int, launch: ProfiledKernel) -> None:
        """Take what a kernel's report tells."""
        for name, text in launch.texts.items():
            self._note(name, text)
        for name, (value, _) in launch.metrics.items():
            if name.startswith(DEVICE_ATTRIBUTE):
                self._note(name, f"{value:g}" if value % 1 else str(int(value)))
        if device not in self._limits and len(self._limits) < _MOST_DEVICES:
            self._limits[device] = _limits(device, launch)

    def _note(self, name: str, value: str) -> None:
        if name not in self._facts and len(self._facts) < _MOST_FACTS:
            self._facts[name] = value[:_LONGEST_FACT]
        elif self._facts.get(name) != value[:_LONGEST_FACT]:
            self._facts[name] = None

    def facts(self) -> Mapping[str, str]:
        """Return what all kernels have in common."""
        return {name: value for name, value in self._facts.items() if value}

    def limits(self) -> tuple[DeviceLimits, ...]:
        """Return the GPUs on which kernels were profiled."""
        return tuple(self._limits[device] for device in sorted(self._limits))


def _limits(device: int, launch: ProfiledKernel) -> DeviceLimits:
    """Return what a kernel's report tells of its GPU."""
    values = {
        name.removeprefix(DEVICE_ATTRIBUTE): value
        for name, (value, _) in launch.metrics.items()
        if name.startswith(DEVICE_ATTRIBUTE)
    }

    def whole(name: str) -> int | None:
        value = values.get(name, 0.0)
        return int(value) if value > 0 else None

    major, minor = whole("compute_capability_major"), whole("compute_capability_minor")
    clock = whole("max_gpu_frequency_khz") or whole("clock_rate")
    return DeviceLimits(
        index=device,
        name=launch.texts.get(f"{DEVICE_ATTRIBUTE}display_name", "")[:_LONGEST_FACT],
        compute_capability=launch.compute_capability if major is None else (major, minor or 0),
        sm_count=whole("multiprocessor_count"),
        memory_bytes=whole("total_memory"),
        memory_bandwidth_bytes_per_s=_bandwidth(values),
        l2_bytes=whole("l2_cache_size"),
        clock_hz=None if clock is None else clock * 1e3,
        registers_per_multiprocessor=whole("max_registers_per_multiprocessor"),
        shared_bytes_per_multiprocessor=whole("max_shared_memory_per_multiprocessor"),
        shared_bytes_per_block=whole("max_shared_memory_per_block_optin"),
        threads_per_multiprocessor=whole("max_threads_per_multiprocessor"),
    )


def _bandwidth(values: Mapping[str, float]) -> float | None:
    """Return bytes a second of the memory's clock and the width of its bus."""
    clock_khz = values.get("max_mem_frequency_khz") or values.get("memory_clock_rate") or 0.0
    bits = values.get("global_memory_bus_width", 0.0)
    return _EDGES * clock_khz * 1e3 * bits / 8 if clock_khz > 0 and bits > 0 else None


@dataclass
class ProfiledKernel:
    """A kernel that was profiled."""

    name: str
    process: int = UNKNOWN
    process_name: str = ""
    device: int | None = None
    stream: int | None = None
    compute_capability: tuple[int, int] | None = None
    grid: Sequence[int] = ()
    block: Sequence[int] = ()
    metrics: dict[str, Value] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    """Metrics that are no numbers."""
    stalls: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Line, instruction, reason and number of the samples of its warps."""

    def whole(self, *metrics: str) -> int:
        """Return the first of these metrics that was measured, as a whole number."""
        found = (self.metrics[metric][0] for metric in metrics if metric in self.metrics)
        return _fitting(next(found, UNKNOWN))


class ProfiledKernels:
    """Gives kernels and their metrics to a sink, in batches."""

    def __init__(self, sink: Sink, warnings: Warnings) -> None:
        self.warnings = warnings
        self.attributes = Attributes()
        self.count = 0
        self._sink = sink
        self._names = Names(warnings)
        self._kernels: list[dict[str, int]] = []
        self._metrics: list[tuple[int, int, float, int]] = []
        self._stalls: list[tuple[int, int, int, int, int]] = []
        self._has_stalls = False
        self._processes: dict[int, str] = {}
        self._seen: set[str] = set()
        """Columns of kernels that some kernel has."""

    def add(self, launch: ProfiledKernel) -> None:
        """Take a kernel."""
        row = self._row(launch)
        self._seen.update(column for column, value in row.items() if value != UNKNOWN)
        self.attributes.add(max(row["device"], 0), launch)
        if launch.process >= 0:
            self._processes.setdefault(launch.process, launch.process_name)
        for metric, (value, unit) in launch.metrics.items():
            if not metric.startswith(DEVICE_ATTRIBUTE):
                numbers = self._names.number(metric), self._names.number(unit)
                self._metrics.append((self.count, numbers[0], value, numbers[1]))
        for *words, samples in launch.stalls:
            line, instruction, reason = map(self._names.number, words)
            self._stalls.append((self.count, line, instruction, reason, samples))
        self._has_stalls |= bool(launch.stalls)
        self._kernels.append(row)
        self.count += 1
        if max(len(self._metrics), len(self._kernels), len(self._stalls)) >= _BATCH_ROWS:
            self._flush()

    def _row(self, launch: ProfiledKernel) -> dict[str, int]:
        seconds = next((launch.metrics[one][0] for one in _DURATIONS if one in launch.metrics), -1)
        static, dynamic = (launch.whole(metric) for metric in _SHARED)
        shared = UNKNOWN if min(static, dynamic) < 0 else static + dynamic
        device = launch.device if launch.device is not None else launch.whole("launch__device_id")
        stream = launch.stream if launch.stream is not None else launch.whole("launch__stream_id")
        row = {
            "begin_ns": UNKNOWN,
            "duration_ns": _fitting(seconds * 1e9) if seconds >= 0 else UNKNOWN,
            "device": device,
            "stream": stream,
            "correlation": UNKNOWN,
            "name": self._names.number(launch.name),
            **_extent("grid", launch.grid, launch),
            **_extent("block", launch.block, launch),
            "registers": launch.whole("launch__registers_per_thread"),
            "shared_bytes": shared,
            "graph_node": UNKNOWN,
        }
        return {name: n if 0 <= n <= _HIGHEST[name] else UNKNOWN for name, n in row.items()}

    def finish(self) -> Header:
        """Give the rest, and return what is known of all."""
        self._flush()
        not_measured = dict.fromkeys(TABLES, _ONLY_KERNELS)
        del not_measured["kernels"], not_measured["metrics"]
        not_measured["stalls"] = _NO_STALLS
        if self._has_stalls:
            del not_measured["stalls"]
        not_measured["kernels.begin_ns"] = not_measured["kernels.correlation"] = _NO_TIMELINE
        for column in ("duration_ns", "grid_x", "block_x", "registers", "shared_bytes"):
            if column not in self._seen:
                not_measured[f"kernels.{column}"] = "it is not among the metrics of the file"
        return Header(
            source="ncu",
            tool="NVIDIA Nsight Compute",
            devices=self.attributes.limits(),
            processes=self._processes,
            facts=self.attributes.facts(),
            not_measured=not_measured,
            warnings=self.warnings.all(),
            texts=self._names.all(),
        )

    def _flush(self) -> None:
        if self._kernels:
            columns = {
                name: np.array([row[name] for row in self._kernels], kind)
                for name, kind in TABLES["kernels"].items()
            }
            self._sink.add("kernels", columns)
        for table, rows in (("metrics", self._metrics), ("stalls", self._stalls)):
            if rows:
                pairs = zip(TABLES[table].items(), zip(*rows, strict=True), strict=True)
                columns = {name: np.array(cell, kind) for (name, kind), cell in pairs}
                self._sink.add(table, columns)
        self._kernels, self._metrics, self._stalls = [], [], []


def _extent(what: str, told: Sequence[int], launch: ProfiledKernel) -> Mapping[str, int]:
    """Return the grid or the block: of the metrics, else as the kernel's line tells it."""
    measured = [launch.whole(f"launch__{what}_dim_{axis}") for axis in _AXES]
    extent = told if min(measured) < 0 and len(told) == len(_AXES) else measured
    return {f"{what}_{axis}": size for axis, size in zip(_AXES, extent, strict=True)}


def _fitting(value: float) -> int:
    """Return a whole number, `UNKNOWN` where it is none that fits in 64 bits."""
    return round(value) if 0 <= value < 2**63 else UNKNOWN
