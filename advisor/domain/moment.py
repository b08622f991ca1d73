"""What was known of a machine at one moment: values, processes, and the events that lasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.accumulators import MISSED_READINGS, Latest, Reading
from gpuadvisor.domain.metrics import SamplingInterval
from gpuadvisor.domain.telemetry import Event, Gpu, GpuProcess, Number

LOOK_BACK_S = MISSED_READINGS * SamplingInterval.RARE.period_s
"""How far back the newest reading of the rarest metric can lie before it is stale."""
PROCESSES_LOOK_BACK_S = 20.0
"""Processes are listed every five seconds: a list that is older tells nothing of the moment."""


@dataclass(frozen=True)
class Moment:
    """What was known at a Unix time."""

    time_s: float
    gpus: tuple[Gpu, ...] = ()
    readings: Mapping[str, Mapping[str, Reading]] = field(default_factory=dict)
    """The newest readings at or before the moment by device (UUID or HOST) and metric, with the
    state that they have by then; of `row_s`, the means of the row that has the moment in it."""
    ranges: Mapping[str, Mapping[str, tuple[Number, Number]]] = field(default_factory=dict)
    """The least and the greatest of such a row's readings."""
    row_s: float = 0.0
    """What a value stands for: 60 the minute, 3600 the hour, 0 a single reading."""
    processes: tuple[GpuProcess, ...] | None = None
    """The processes as listed last before; None where they are not known."""
    listed_s: float | None = None
    """Unix time of that list."""
    why_no_processes: str | None = None
    """One sentence; also where some are left out."""
    events: tuple[Event, ...] = ()
    """What lasted then, the oldest first."""
    problem: str | None = None
    """Why nothing could be read at all, in one sentence; None where something could."""

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the moment."""
        return any(self.readings.values())


def readings_of(
    latest: Latest, metrics: Mapping[str, Sequence[str]], time_s: float
) -> dict[str, dict[str, Reading]]:
    """Return the readings of these metrics by device, as they are at a Unix time."""
    found = {
        device: {name: latest.reading(device, name, time_s) for name in names}
        for device, names in metrics.items()
    }
    return {
        device: {name: reading for name, reading in readings.items() if reading is not None}
        for device, readings in found.items()
    }
