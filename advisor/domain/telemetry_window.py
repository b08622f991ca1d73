"""What telemetry said of GPUs over some time, summed up for the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuadvisor.domain.telemetry import Event, Gpu, GpuProcess, Trouble


@dataclass(frozen=True)
class Series:
    """One metric of one GPU."""

    count: int
    """Of the samples that had a value; at least one."""
    mean: float
    low: float
    high: float
    first: float
    last: float


@dataclass(frozen=True)
class GpuWindow:
    """One GPU."""

    gpu: Gpu
    series: Mapping[str, Series] = field(default_factory=dict)
    """By the metric's name; those that never had a value are in `troubles` or nowhere."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of metrics that are sets of bits (clocks-event reasons): `metric/reason` to the share of the
    samples in which the reason held, 0 to 1."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    processes: tuple[GpuProcess, ...] | None = None
    """The last known; None where they were not asked for."""


@dataclass(frozen=True)
class TelemetryWindow:
    """All GPUs of a machine, over the same time."""

    begin_s: float
    """Unix time."""
    end_s: float
    gpus: tuple[GpuWindow, ...] = ()
    events: tuple[Event, ...] = ()
    """That lasted or happened within."""

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s
