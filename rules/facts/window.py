"""The run that a profile shows: from when to when it lasted, its steps, and each device's part.

Text, pages, comparisons and rules take spans and shares from here, so that no two of them state
different shares of the same run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpuadvisor.rules.facts.intervals import Intervals
from gpuadvisor.rules.facts.steps import Steps
from gpuadvisor.rules.facts.time_breakdown import BusyTime

FILLED = 0.95
"""Share of the run from which on what is known fills it: well-fed programs are idle for 2 to 4 % of
it (the threshold of `launch_bound`)."""


@dataclass(frozen=True)
class Stretch:
    """The part of a large recording that is looked at (`facts.excerpt`)."""

    begin_ns: int
    end_ns: int
    events: int
    """Number of events (rows of all tables) in it."""
    of_events: int
    """Number of events of the recording."""
    first_step: int | None = None
    """Number of its first step among those of the recording, from 1; None where no steps are
    marked."""
    last_step: int | None = None
    of_steps: int | None = None
    """Number of steps of the recording."""


@dataclass(frozen=True)
class Fitness:
    """What a recording can show."""

    note: str = ""
    """Which part of it is looked at, or why it can tell little, in a sentence without a full stop;
    empty where all of it is fit."""
    no_idle: str | None = None
    """Why nothing can be said about idle time; None where something can."""
    not_before_ns: int | None = None
    """When the part that is looked at begins; None for all of it."""
    share: float = 1.0
    """Share of the recorded run that is looked at, 0 to 1."""
    excerpt: Stretch | None = None
    """The part that is looked at of a recording too large to be judged as a whole."""

    def noted(self, told: str) -> str:
        """Return the note with one more sentence."""
        return f"{self.note}. {told}" if self.note else told


@dataclass(frozen=True, eq=False)
class Window:
    """When the run of a profile began and ended, and how much of it each device was busy."""

    begin_ns: int
    end_ns: int
    steps: Steps | None
    """The steps of the run; None where none are certain."""
    busy: tuple[BusyTime, ...]
    """The busy time of each device on which something ran."""

    @property
    def run_ns(self) -> int:
        """The time of the steps and the devices' work."""
        return self.end_ns - self.begin_ns

    @property
    def busy_share(self) -> float:
        """Share of the run (0 to 1) in which the devices were busy, their mean."""
        whole = len(self.busy) * self.run_ns
        return sum(each.busy_ns for each in self.busy) / whole if whole else 0.0

    @property
    def span(self) -> tuple[int, int]:
        """When the run began and ended."""
        return self.begin_ns, self.end_ns

    def share(self, time_ns: float) -> float:
        """Return which share of the run a time is; 0 where the run's time is not known."""
        return time_ns / self.run_ns if self.run_ns > 0 else 0.0

    def span_ns(self, device: int | None = None) -> int:
        """Return the time from a device's first work to its last one; of the longest by default.

        Thresholds are shares of it rather than of the run, which is longer by what came before:
        that is known only where steps or waits for data were recorded.
        """
        spans = (each.span_ns for each in self.busy if device is None or each.device == device)
        return max(spans, default=0)


def window(
    busy: tuple[BusyTime, ...],
    steps: Steps | None,
    loader_waits: Iterable[Intervals],
    not_before_ns: int | None = None,
) -> Window:
    """Return the run's window: from the first step, or the first work where that is earlier.

    The wait for the batch that a device's work is about belongs to the run as well: a trace that
    begins with it has as many waits as batches. It ends with the devices' last work, or with the
    last step where that is later. Of a part of a recording the begin is told.
    """
    each_step = steps.steps if steps is not None else ()
    begins = [each.begin_ns for each in busy] + [step.begin_ns for step in each_step[:1]]
    begin = min(begins, default=0)
    if busy:
        waited = [times.begin_ns[times.end_ns <= begin] for times in loader_waits]
        begin = max((int(each[-1]) for each in waited if len(each)), default=begin)
    if not_before_ns is not None:
        begin = min([not_before_ns, *(each.begin_ns for each in busy)])
    ends = [each.begin_ns + each.span_ns for each in busy]
    ends += [step.begin_ns + step.duration_ns for step in each_step[-1:]]
    return Window(begin, max(ends, default=0), steps, busy)
