"""What `gpuadvisor.monitor()` found out about a block, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gpuadvisor.domain.telemetry import Number

UNKNOWN = "-"


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
    """Why a figure is None, by its name here."""


@dataclass(frozen=True)
class BlockFigures:
    """A block, and the GPUs during it."""

    seconds: float
    """How long the block took."""
    gpus: tuple[GpuFigures, ...] = ()
    problem: str | None = None
    """Why nothing could be read, in one sentence: of all GPUs, or at some time in the block."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)

    def __str__(self) -> str:
        title = f"{len(self.gpus)} GPU{'s' * (len(self.gpus) != 1)} for {self.seconds:.2f} s"
        lines = [title if self.problem is None else f"{title}. {self.problem}"]
        if self.gpus:
            lines.extend(_aligned([_HEADER, *map(_row, self.gpus)]))
        if any(gpu.unknown for gpu in self.gpus):
            lines.append(f"{UNKNOWN}: not known; `unknown` of each GPU says why")
        return "\n".join(lines)


_HEADER = ("GPU", "util %", "SM %", "tensor %", "power W", "energy J", "memory GiB", "C",
           "held down by")  # fmt: skip


def _row(gpu: GpuFigures) -> tuple[str, ...]:
    energy = _number(gpu.energy_j)
    held = gpu.throttle_reasons
    return (
        f"{gpu.index} {gpu.name.removeprefix('NVIDIA ')}",
        _mean_and_max(gpu.gpu_utilization_mean_pct, gpu.gpu_utilization_max_pct),
        _number(gpu.sm_active_mean_pct),
        _number(gpu.tensor_active_mean_pct),
        _mean_and_max(gpu.power_mean_w, gpu.power_max_w),
        energy if gpu.energy_source is None else f"{energy} ({gpu.energy_source})",
        _gib(gpu.memory_peak_bytes),
        _number(gpu.temperature_max_c),
        UNKNOWN if held is None else ", ".join(held) or "nothing",
    )


def _mean_and_max(mean: Number | None, most: Number | None) -> str:
    return UNKNOWN if mean is most is None else f"{_number(mean)} (max {_number(most)})"


def _number(value: Number | None) -> str:
    return UNKNOWN if value is None else f"{value:,.{0 if abs(value) >= 10 else 1}f}"


def _gib(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value / 2**30:.2f}"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ((text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
    return ["  ".join(row).rstrip() for row in padded]
