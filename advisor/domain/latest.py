"""The newest value of every metric, gathered from frames that each hold only what was due."""

from __future__ import annotations

from dataclasses import dataclass

from gpuadvisor.domain.metrics import BY_NAME, SamplingInterval
from gpuadvisor.domain.telemetry import Frame, Gpu, GpuProcess, Number, State, Unavailable

MISSED_READINGS = 3
"""A value is stale once so many readings of it are overdue."""
STALE_AFTER_S = 2.0
"""And not before: what is read ten times a second may be late for once."""


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


class Latest:
    """What is known now, after `update` with every frame of a source."""

    def __init__(self) -> None:
        self.gpus: tuple[Gpu, ...] = ()
        self.processes: tuple[GpuProcess, ...] | None = None
        """None until they were listed once."""
        self.problem: str | None = None
        self.time_s = 0.0
        """Unix time of the newest frame; 0 before the first."""
        self._values: dict[str, dict[str, tuple[float, Number]]] = {}
        self._unavailable: dict[str, dict[str, Unavailable]] = {}

    def update(self, frame: Frame) -> None:
        """Take in a frame; frames come in order of time."""
        self.time_s = frame.time_s
        self.problem = frame.problem
        if frame.gpus is not None:
            self.gpus = frame.gpus
        if frame.processes is not None:
            self.processes = frame.processes
        for device, sample in frame.samples.items():
            values = self._values.setdefault(device, {})
            values.update((name, (frame.time_s, value)) for name, value in sample.values.items())
            if frame.full:
                self._unavailable[device] = dict(sample.unavailable)

    def reading(self, device: str, metric: str, now_s: float | None = None) -> Reading | None:
        """Return a metric of a GPU (its UUID) or of HOST; None where it was never read.

        `now_s` is the Unix time by which its age is judged, the newest frame's unless given.
        """
        absence = self._unavailable.get(device, {}).get(metric)
        known = self._values.get(device, {}).get(metric)
        if absence is not None:
            last = known[1] if known and absence.state is State.STALE else None
            return Reading(last, absence.state, absence.since_s, absence.reason)
        if known is None:
            return None
        time_s, value = known
        age_s = (self.time_s if now_s is None else now_s) - time_s
        state = State.OK if age_s <= _PATIENCE_S[metric] else State.STALE
        return Reading(value, state, time_s)

    def value(self, device: str, metric: str) -> Number | None:
        """Return a metric's value, None unless it is OK."""
        reading = self.reading(device, metric)
        return reading.value if reading and reading.is_ok else None


_PATIENCE_S = {
    name: max(
        STALE_AFTER_S,
        MISSED_READINGS * max(metric.interval.period_s, SamplingInterval.NORMAL.period_s),
    )
    for name, metric in BY_NAME.items()
}
"""For each metric, the age from which its value is stale."""
