"""The steps of a training loop or of requests, and how each went.

In order of preference: the profiler's own steps; ranges that the program marked as steps (`step 3`,
`iteration_12`); what lies between two calls of the one optimizer that PyTorch marks. What is none
of these is no step: nothing is guessed from patterns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Columns, Profile, Range
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    by_key,
    covered_ns,
    ends,
    grouped,
    none,
    union,
)
from gpuadvisor.rules.facts.joins import thread_keys
from gpuadvisor.rules.facts.launches import Calls, LaunchingCalls, of_graphs
from gpuadvisor.rules.facts.what_if import Timeline

MARKED = re.compile(
    r"(train|training|eval|global)?[ _-]?(step|iteration|iter|batch)[\W_]*\d*", re.I
)
"""How programs name the ranges of their steps."""
OPTIMIZER = "Optimizer.step#"
"""How PyTorch's own ranges around `step()` of an optimizer begin, followed by its class."""
FEWEST = 2
"""Ranges of a name that are taken for steps: one could be anything."""


MOST_OPTIMIZERS = 4
"""Optimizers that a step calls one after the other, at most. [own]"""
CLEARLY = 4
"""Times as long as the pauses within a step those between two steps must be. [own]"""


class StepSource(StrEnum):
    """Where the steps are known from."""

    PROFILER = "profiler"
    RANGES = "ranges"
    OPTIMIZER = "optimizer"


@dataclass(frozen=True)
class Step:
    """One step, in the host's time."""

    name: str
    begin_ns: int
    duration_ns: int
    device_busy_ns: int
    """Part of the step in which at least one device worked."""
    data_wait_ns: int
    """Part of the step in which its thread waited for a DataLoader's batch."""


@dataclass(frozen=True)
class Steps:
    """The steps of a profile, in their order."""

    source: StepSource
    steps: tuple[Step, ...]

    @property
    def median_ns(self) -> float:
        return float(np.median([step.duration_ns for step in self.steps]))

    @property
    def mean_ns(self) -> float:
        return sum(step.duration_ns for step in self.steps) / len(self.steps)

    @property
    def data_wait_share(self) -> float:
        """Share of the time of all steps that their thread waited for data."""
        total = sum(step.duration_ns for step in self.steps)
        return sum(step.data_wait_ns for step in self.steps) / total if total else 0.0

    @cached_property
    def begin_ns(self) -> IntArray:
        return np.array([step.begin_ns for step in self.steps], np.int64)

    @cached_property
    def end_ns(self) -> IntArray:
        return self.begin_ns + np.array([step.duration_ns for step in self.steps], np.int64)

    def place_of(self, times_ns: IntArray) -> IntArray:
        """Return the place of the step in which each time lies; UNKNOWN where it lies in none."""
        place = np.searchsorted(self.begin_ns, times_ns, "right") - 1
        ends_ns = np.append(self.end_ns, 0)[place]  # -1 is the last: before all steps
        found: IntArray = np.where(times_ns < ends_ns, place, UNKNOWN)
        return found


NO_STEPS = Steps(StepSource.RANGES, ())
"""What to ask where a profile has none that are certain."""


@dataclass(frozen=True, eq=False)
class _Ranges:
    begin_ns: IntArray
    end_ns: IntArray
    process: IntArray
    thread: IntArray
    names: Sequence[str]


def find_steps(
    profile: Profile, work: DeviceWork, waits: Mapping[tuple[int, int], Intervals]
) -> Steps | None:
    """Return the steps of a profile; None where it has none that are certain."""
    columns = profile.columns("ranges")
    texts = profile.header.texts
    for source, rows in _candidates(columns, texts):
        marked = _of_one_thread(columns, texts, rows)
        if marked is not None:
            if source is StepSource.OPTIMIZER:
                marked = _between(_joined(marked))
            return Steps(source, _steps(marked, work, waits))
    return None


def _candidates(columns: Columns, texts: Sequence[str]) -> list[tuple[StepSource, IntArray]]:
    kind, name = columns["kind"], columns["name"]
    user = np.flatnonzero(kind == Range.USER)
    used = np.unique(name[user]).tolist()
    marked = [each for each in used if MARKED.fullmatch(texts[each].strip())]
    optimizers = [each for each in used if texts[each].startswith(OPTIMIZER)]
    return [
        (StepSource.PROFILER, np.flatnonzero(kind == Range.STEP)),
        (StepSource.RANGES, user[np.isin(name[user], marked)]),
        (
            StepSource.OPTIMIZER,
            user[np.isin(name[user], optimizers if len(optimizers) == 1 else [])],
        ),
    ]


def _of_one_thread(columns: Columns, texts: Sequence[str], rows: IntArray) -> _Ranges | None:
    """Return the ranges of the thread that has most; None if they are too few or overlap."""
    process, thread = columns["process"][rows], columns["thread"][rows]
    key = thread_keys(process, thread, process[:0], thread[:0])[0]
    most = max((at for _, at in by_key(key)), key=len, default=rows[:0])
    at = rows[most]
    at = at[np.argsort(columns["begin_ns"][at], kind="stable")]
    begin, end = ends(columns["begin_ns"][at], columns["duration_ns"][at])
    single = len(at) == 1 and columns["kind"][at[0]] == Range.STEP
    if (len(at) < FEWEST and not single) or (begin[1:] < end[:-1]).any():
        return None
    names = [texts[name] for name in columns["name"][at].tolist()]
    return _Ranges(begin, end, columns["process"][at], columns["thread"][at], names)


def _joined(marked: _Ranges) -> _Ranges:
    """Return the calls of several optimizers of one class, which each step makes one after the
    other, as one range a step: of their pauses all within a step are much shorter than all
    others."""
    pause, count = marked.begin_ns[1:] - marked.end_ns[:-1], len(marked.names)
    for each in range(2, MOST_OPTIMIZERS + 1):
        if count % each or count // each < FEWEST:
            continue
        between = np.arange(1, count) % each == 0
        if CLEARLY * int(pause[~between].max()) <= int(pause[between].min()):
            first, last = slice(None, None, each), slice(each - 1, None, each)
            names = marked.names[first]
            threads = marked.process[first], marked.thread[first]
            return _Ranges(marked.begin_ns[first], marked.end_ns[last], *threads, names)
    return marked


def _between(marked: _Ranges) -> _Ranges:
    """Return from the end of each range to the end of the next one."""
    names = [f"step {number}" for number in range(1, len(marked.names))]
    return _Ranges(
        marked.end_ns[:-1], marked.end_ns[1:], marked.process[1:], marked.thread[1:], names
    )


def _steps(
    marked: _Ranges, work: DeviceWork, waits: Mapping[tuple[int, int], Intervals]
) -> tuple[Step, ...]:
    thread = int(marked.process[0]), int(marked.thread[0])
    busy = covered_ns(union(work.begin_ns, work.end_ns), marked.begin_ns, marked.end_ns)
    data = covered_ns(waits.get(thread, none()), marked.begin_ns, marked.end_ns)
    duration = marked.end_ns - marked.begin_ns
    columns = (marked.begin_ns, duration, busy, data)
    rows = zip(marked.names, *(each.tolist() for each in columns), strict=True)
    return tuple(Step(*row) for row in rows)


@dataclass(frozen=True)
class LaunchedInSteps:
    """The work of the devices that each step launched."""

    time_ns: tuple[int, ...]
    count: tuple[int, ...]
    """Kernels and copies."""


def launched_in_steps(work: DeviceWork, launched: LaunchingCalls, steps: Steps) -> LaunchedInSteps:
    """Return what each step launched of all devices' work, as far as launches were recorded."""
    rows = np.flatnonzero(launched.known)
    step = steps.place_of(launched.begin_ns[rows])
    step, lasted = step[step >= 0], work.duration_ns[rows[step >= 0]]
    count = np.bincount(step, minlength=len(steps.steps))
    time = np.zeros(len(steps.steps), np.int64)
    np.add.at(time, step, lasted)
    return LaunchedInSteps(tuple(time.tolist()), tuple(count.tolist()))


MOST_DIFFERENT = 0.1
"""Share of a step's kernels that may be others than in the median step, or part of a graph already.
[own]"""


@dataclass(frozen=True)
class Repetition:
    """Whether the steps of a run repeat each other."""

    kernels_a_step: float
    """0 where neither steps are known nor does anything repeat."""
    alike: bool
    """Whether steps launch the same kernels."""
    can_be_graphs: bool
    """Whether steps launch the same kernels one by one, and the host does not wait for the device
    between two launches of a step."""


NONE = Repetition(0.0, False, False)


def repetition(
    profile: Profile,
    work: DeviceWork,
    host: Calls,
    launched: LaunchingCalls,
    line: Timeline | None,
    steps: Steps | None,
) -> Repetition:
    """Return what repeats: from step to step, or without steps as often as each kernel ran."""
    if not work.kernels or line is None:
        return NONE
    columns = profile.columns("kernels", ("name", "grid_x", "grid_y", "grid_z"))
    number = grouped(*columns.values())
    # The greatest number of times of which each kernel ran a multiple.
    times = int(np.gcd.reduce(np.bincount(number)))
    if steps is not None and len(steps.steps) > 1:
        usual, alike = _in_steps(number, launched, steps)
    elif times > 1:
        usual, alike = work.kernels / times, True
    else:
        return NONE
    if usual <= 0:
        return NONE
    mine = launched.known[: work.kernels] & (work.device[: work.kernels] == line.device)
    called = np.sort(launched.begin_ns[: work.kernels][mine])
    waits = np.searchsorted(np.sort(host.begin_ns[line.wait_call]), called, "right")
    if steps is not None and len(steps.steps) > 1:
        interrupted = _waits_within(called, waits, steps)
    else:
        # Where a step begins is not known: of more kernels than one, one wait may stand at its end.
        each = np.count_nonzero(np.diff(waits)) / max(len(called) / usual, 1.0)
        interrupted = each if usual == 1 else max(each - 1.0, 0.0)
    alone = of_graphs(work, host, launched).mean() < MOST_DIFFERENT
    undivided = interrupted <= MOST_DIFFERENT
    return Repetition(usual, alike, bool(alike and undivided and alone))


def _waits_within(called: IntArray, waits: IntArray, steps: Steps) -> float:
    """Return in which share of the steps (0 to 1) the host waits for the device between two of the
    step's launches. `called` is when each kernel is launched, in order, and `waits` how often the
    host had waited until then."""
    step = steps.place_of(called)
    step, waits = step[step >= 0], waits[step >= 0]
    within = (np.diff(step) == 0) & (np.diff(waits) > 0)
    return len(np.unique(step[1:][within])) / len(steps.steps)


def _in_steps(number: IntArray, launched: LaunchingCalls, steps: Steps) -> tuple[float, bool]:
    """Return how many kernels the median step launches, and whether the others launch the same."""
    rows = np.flatnonzero(launched.known[: len(number)])
    step = steps.place_of(launched.begin_ns[rows])
    # Only as many columns as there are kernels, and few steps: 5 by 2,000 in real profiles.
    counts = np.zeros((len(steps.steps), int(number.max()) + 1), np.int64)
    np.add.at(counts, (step[step >= 0], number[rows[step >= 0]]), 1)
    usual = np.median(counts, axis=0)
    total = float(usual.sum())
    # The first and the last step may be cut off, or warm up.
    different = float(np.median(np.abs(counts - usual).sum(axis=1)))
    return total, different <= MOST_DIFFERENT * total
