"""Recordings of a script on earlier days, with which `gpuadvisor gate check` compares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from gpuadvisor.domain.measurement import Measurement, StepWindow


@dataclass(frozen=True)
class RecordedRun:
    """What is kept of one run."""

    windows: tuple[StepWindow, ...]
    samples_source: str | None
    """As of `Measurement`."""
    peak_memory_bytes: int
    """0 where it was not measured, as of a benchmark in pytest."""
    startup_s: float
    sm_clock_mhz: float | None = None
    """Mean SM clock while it was measured; None where nobody could read it."""

    @classmethod
    def of(cls, measured: Measurement, sm_clock_mhz: float | None) -> RecordedRun:
        """Return what is kept of a run."""
        return cls(
            tuple(map(_rounded, measured.windows)),
            measured.samples_source,
            measured.peak_memory_bytes,
            round(measured.startup_s, 3),
            sm_clock_mhz and round(sm_clock_mhz, 1),
        )

    @property
    def measurement(self) -> Measurement:
        """The run as it was measured, without what is not kept, such as the time of each step."""
        return Measurement(
            "recorded",
            (),
            self.windows,
            0,
            self.samples_source,
            self.peak_memory_bytes,
            self.peak_memory_bytes,
            self.startup_s,
            self.startup_s + sum(window.seconds for window in self.windows),
        )


@dataclass(frozen=True)
class Recording:
    """Some runs of a script, one after the other."""

    name: str
    """Name of the baseline, as the user calls it."""
    at: datetime
    """When it began, with its time zone."""
    key: Mapping[str, str]
    """What must be equal for two recordings to be compared, in words by what it is: `device`."""
    runs: tuple[RecordedRun, ...]
    commit: str | None = None
    """Commit of the repository that holds the script."""
    has_changes: bool | None = None
    """Whether that work tree had uncommitted changes; None where it is not known."""


@dataclass(frozen=True)
class Acceptance:
    """A new level that somebody accepted: recordings before it do not count any more."""

    name: str
    """Name of the baseline."""
    at: datetime
    by: str
    why: str


@dataclass(frozen=True)
class Change:
    """A day from which a figure of recordings had another level."""

    metric: str
    at: datetime
    """When the first recording of the new level began."""
    ratio: float
    """The new level over the one before; above 1 it got worse."""


def _rounded(window: StepWindow) -> StepWindow:
    """Return a window whose times have microseconds: what is beyond would only make files long."""
    return replace(
        window,
        seconds=round(window.seconds, 6),
        data_wait_s=round(window.data_wait_s, 6),
        energy_j=window.energy_j and round(window.energy_j, 3),
    )
