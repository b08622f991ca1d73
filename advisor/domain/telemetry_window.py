"""What telemetry said of GPUs over some time, summed up for the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuadvisor.domain.telemetry import Event, Gpu, GpuProcess, Unavailable

BUSY_PCT = 50
"""Utilization from which a GPU is at work. It is an average over up to a second, so in the second
in which work begins or ends either may be said."""


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

    @property
    def grown(self) -> float:
        """By how much a counter grew; 0 where it began anew."""
        return max(self.last - self.first, 0.0)


@dataclass(frozen=True)
class GpuWindow:
    """One GPU."""

    gpu: Gpu
    series: Mapping[str, Series] = field(default_factory=dict)
    """By the metric's name; those that never had a value are in `unavailable` or nowhere. What is
    read every ten seconds or less often begins with the last value from before, if that still
    held. Of sets of bits only the count says something."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of metrics that are sets of bits (clocks-event reasons): `metric/reason` to the share of the
    samples in which the reason held, 0 to 1. All reasons are there if the metric was read."""
    busy: Mapping[str, Series] = field(default_factory=dict)
    """As `series`, of the samples that found the GPU at work (`BUSY_PCT`)."""
    busy_shares: Mapping[str, float] = field(default_factory=dict)
    """As `shares`, of the samples that found the GPU at work."""
    unavailable: Mapping[str, Unavailable] = field(default_factory=dict)
    processes: tuple[GpuProcess, ...] | None = None
    """The last known; None where they were not asked for."""

    @property
    def busy_share(self) -> float:
        """In what share of the samples the GPU was at work; 0 where utilization was not read."""
        every, busy = (each.get("gpu_utilization_pct") for each in (self.series, self.busy))
        return busy.count / every.count if every and busy else 0.0


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
