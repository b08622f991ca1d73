"""What was known of a machine at one moment: values, processes, and the events that lasted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.domain.accumulators import MISSED_READINGS, Latest, Reading
from gpuadvisor.domain.metrics import BY_NAME, SamplingInterval
from gpuadvisor.domain.telemetry import Event, Gpu, GpuProcess, Number

LOOK_BACK_S = MISSED_READINGS * SamplingInterval.RARE.period_s
"""How far back the newest reading of the rarest metric can lie before it is stale."""
PROCESSES_LOOK_BACK_S = 10.0
"""Processes are listed every five seconds: a list that is older tells nothing of the moment."""
NOT_LISTED_THEN = "No processes were listed then."
SILENT_THEN = "Nothing could be read then, so the processes are not known."


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
    unlisted: tuple[str, ...] = ()
    """GPUs (UUID) whose processes the driver did not list then."""
    events: tuple[Event, ...] = ()
    """What lasted then, and what happened just before without lasting, the oldest first."""
    measured_s: float | None = None
    """Seconds of the roll-up's span (`row_s`) that were measured; None for a single reading."""
    problem: str | None = None
    """Why nothing could be read at all, in one sentence; None where something could."""

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the moment."""
        return any(self.readings.values())

    @property
    def is_measured(self) -> bool:
        """Whether anything was measured then, and not only before: a limit holds for minutes."""
        return any(
            each.is_ok and BY_NAME[name].interval.period_s <= SamplingInterval.NORMAL.period_s
            for readings in self.readings.values()
            for name, each in readings.items()
        )

    @property
    def untold(self) -> str | None:
        """What is not known of processes and why, in one sentence; None where all is."""
        numbers = [str(gpu.index) for gpu in self.gpus if gpu.uuid in self.unlisted]
        if self.why_no_processes or not numbers:
            return self.why_no_processes
        which = f"GPU{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
        return f"The driver did not list the processes on {which} then."

    def without_what_was_before(self) -> Moment:
        """Return it without processes where nothing was measured: their list is of before."""
        if self.is_measured or self.processes is None:
            return self
        return replace(self, processes=None, listed_s=None, why_no_processes=NOT_LISTED_THEN)


JUST_BEFORE_S = 60.0
"""Seconds for which an event that does not last, as an Xid, is still told of a moment. [own]"""
MOMENTARY_S = 1.0
"""An event that took less does not last: times are given to the second."""


def looked_at(time_s: float, row_s: float = 0.0) -> tuple[float, float]:
    """Return the span whose momentary events are told of a moment: the time just before it to the
    end of its second, or the row that stands for it."""
    if row_s:
        begin_s = time_s // row_s * row_s
        return begin_s, begin_s + row_s
    return time_s - JUST_BEFORE_S, time_s // 1 + 1


def events_at(events: Iterable[Event], time_s: float, row_s: float = 0.0) -> tuple[Event, ...]:
    """Return those that lasted at a Unix time, or happened in the span that is looked at."""
    since_s, until_s = looked_at(time_s, row_s)
    return tuple(
        each
        for each in events
        if (each.began_s <= time_s and (each.ended_s is None or each.ended_s >= time_s))
        or (
            since_s <= each.began_s < until_s
            and each.ended_s is not None
            and each.ended_s - each.began_s < MOMENTARY_S
        )
    )


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
