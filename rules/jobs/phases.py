"""What a job did in a slice of its time, poll by poll: it worked, it paused, or that is not known.

A mean over a slice mixes what follows one another: a job that starts, or is profiled, looks as if
it waited for a fifth of the time. So seconds in which whole polls saw no kernel, some in a row, are
kept apart from those with kernels, and each part has a cause of its own. What repeats itself
several times in a slice is how the job works, as a loop that waits seconds for each batch, and is
no pause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from gpuadvisor.domain.metrics import NO_KERNELS_SM_ACTIVE_PCT
from gpuadvisor.domain.telemetry import Number

NO_KERNELS_PCT = 1.0
"""Utilization that is none: an H200 whose last process had ended still read 1 for a second
(`examples/four_h200.gpr`)."""
LEAST_PAUSE_S = 3.0
"""Seconds without any kernel that are apart from the rest: three polls in a row. The cause that is
named for most of a job's time is the same from half to twice of it: `tests/unit/rules`."""
LEAST_KNOWN_S = 10.0
"""Seconds without any kernel of which a cause is named: two lists of processes, of which the later
tells what the CPU did within; there is one every 5 s (`PROCESSES_S` of `nvml.sampler`)."""
REPEATED = 3
"""Pauses in a slice and the one before from which on they are how the job works; the same holds of
it."""


class Phase(Enum):
    """What the job did during a poll."""

    WORKED = "worked"
    """Its kernels ran, or it waited for seconds and less between them."""
    PAUSED = "paused"
    """No kernel ran for LEAST_KNOWN_S and longer."""
    UNTOLD = "untold"
    """It started; or it paused for so short a time that nobody knows what its CPU did; or a poll
    saw the begin or the end of a pause."""


@dataclass(frozen=True)
class Poll:
    """What was read of a GPU, and for how long it holds."""

    end_s: float
    """Unix time at which it was read."""
    seconds: float
    values: Mapping[str, Number]

    @property
    def utilization_pct(self) -> float | None:
        return self.values.get("gpu_utilization_pct")

    @property
    def is_empty(self) -> bool:
        """Whether it is known that no kernel ran."""
        used, active = self.utilization_pct, self.values.get("sm_active_pct")
        if used is None or used > NO_KERNELS_PCT:
            return False
        return active is None or active <= NO_KERNELS_SM_ACTIVE_PCT


@dataclass(frozen=True)
class Before:
    """What is known of a job on a GPU from the slices before."""

    has_worked: bool = False
    """Whether a kernel ran while it held the GPU."""
    empty_s: float = 0.0
    """For how long none had run when the last slice ended."""
    pauses: int = 0
    """Pauses of the last slice that were too short for a cause."""


def phases(polls: Sequence[Poll], before: Before) -> tuple[list[Phase], Before]:
    """Return what the job did in each poll of a slice, and what the next slice needs to know."""
    runs = list(_runs(polls, before))
    short = [run for run in runs if run.is_pause and run.whole_s < LEAST_KNOWN_S]
    is_rhythm = before.has_worked and len(short) + before.pauses >= REPEATED
    found: list[Phase] = []
    for run in runs:
        if not run.is_empty:
            phase = Phase.WORKED if before.has_worked else Phase.UNTOLD
        elif run.whole_s >= LEAST_KNOWN_S:
            phase = Phase.PAUSED
        elif is_rhythm or not (run.is_pause or run.is_cut):
            phase = Phase.WORKED
        else:
            phase = Phase.UNTOLD
        found += [phase] * run.polls
    if not is_rhythm:
        _cut_edges(found)
    last = runs[-1] if runs and runs[-1].is_empty else None
    has_worked = before.has_worked or any(not run.is_empty for run in runs)
    return found, Before(has_worked, last.whole_s if last else 0.0, len(short))


@dataclass(frozen=True)
class _Run:
    """Polls in a row that all saw a kernel, or none."""

    is_empty: bool
    polls: int
    whole_s: float
    """How long it lasts, with what was of it before the slice."""
    is_start: bool
    """Whether no kernel of the job has ever run before."""
    is_cut: bool
    """Whether the slice ended before it did, so that nobody knows how long it will last, and it is
    the slice's only one."""

    @property
    def is_pause(self) -> bool:
        return self.is_empty and (self.is_start or self.whole_s >= LEAST_PAUSE_S)


def _runs(polls: Sequence[Poll], before: Before) -> Iterator[_Run]:
    groups = [
        (empty, list(found)) for empty, found in groupby(polls, key=lambda poll: poll.is_empty)
    ]
    empties = sum(empty for empty, _ in groups)
    for place, (empty, found) in enumerate(groups):
        earlier_s = before.empty_s if place == 0 and empty else 0.0
        yield _Run(
            empty,
            len(found),
            earlier_s + sum(poll.seconds for poll in found),
            is_start=place == 0 and not before.has_worked,
            is_cut=place == len(groups) - 1 and empties == 1,
        )


def _cut_edges(found: list[Phase]) -> None:
    """Leave out of the work the polls beside one that saw none: they may have seen a part of it."""
    was = list(found)
    for place, phase in enumerate(was):
        beside = [*was[max(place - 1, 0) : place], *was[place + 1 : place + 2]]
        if phase is Phase.WORKED and any(each is not Phase.WORKED for each in beside):
            found[place] = Phase.UNTOLD
