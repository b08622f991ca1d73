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

import numpy as np

from gpuadvisor.domain.profile import Columns, Profile, Range
from gpuadvisor.rules.facts.calls import Launches
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import (
    LATEST_NS,
    Intervals,
    Whole,
    by_key,
    covered_ns,
    ends,
    union,
)
from gpuadvisor.rules.facts.joins import thread_keys

MARKED = re.compile(
    r"(train|training|eval|global)?[ _-]?(step|iteration|iter|batch)[\W_]*\d*", re.I
)
"""How programs name the ranges of their steps."""
OPTIMIZER = re.compile(r"Optimizer\.step#")
"""PyTorch's own range around `step()` of an optimizer, followed by its class."""
FEWEST = 2
"""Ranges of a name that are taken for steps: one could be anything."""


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
    """In which at least one device worked."""
    data_wait_ns: int
    """In which the step's thread waited for a DataLoader's batch."""
    device_span_ns: int | None
    """From the begin to the end of what the step launched, which can be long after the step where
    the host runs ahead; None where it launched nothing that is known."""


@dataclass(frozen=True)
class Steps:
    """The steps of a profile, in their order."""

    source: StepSource
    steps: tuple[Step, ...]

    @property
    def median_ns(self) -> float:
        return float(np.median([step.duration_ns for step in self.steps]))

    @property
    def data_wait_share(self) -> float:
        """Of the time of all steps."""
        total = sum(step.duration_ns for step in self.steps)
        return sum(step.data_wait_ns for step in self.steps) / total if total else 0.0


@dataclass(frozen=True, eq=False)
class _Ranges:
    begin_ns: Whole
    end_ns: Whole
    process: Whole
    thread: Whole
    names: Sequence[str]


def find_steps(
    profile: Profile,
    work: DeviceWork,
    launched: Launches,
    waits: Mapping[tuple[int, int], Intervals],
) -> Steps | None:
    """Return the steps of a profile; None where it has none that are certain."""
    columns = profile.columns("ranges")
    texts = profile.header.texts
    for source, rows in _candidates(columns, texts):
        marked = _of_one_thread(columns, texts, rows)
        if marked is not None and source is StepSource.OPTIMIZER:
            marked = _between(marked)
        if marked is not None:
            return Steps(source, _steps(marked, work, launched, waits))
    return None


def _candidates(columns: Columns, texts: Sequence[str]) -> list[tuple[StepSource, Whole]]:
    kind, name = columns["kind"], columns["name"]
    user = np.flatnonzero(kind == Range.USER)
    used = np.unique(name[user]).tolist()
    marked = [each for each in used if MARKED.fullmatch(texts[each].strip())]
    optimizers = [each for each in used if OPTIMIZER.match(texts[each])]
    return [
        (StepSource.PROFILER, np.flatnonzero(kind == Range.STEP)),
        (StepSource.RANGES, user[np.isin(name[user], marked)]),
        (
            StepSource.OPTIMIZER,
            user[np.isin(name[user], optimizers if len(optimizers) == 1 else [])],
        ),
    ]


def _of_one_thread(columns: Columns, texts: Sequence[str], rows: Whole) -> _Ranges | None:
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


def _between(marked: _Ranges) -> _Ranges:
    """Return from the end of each range to the end of the next one."""
    names = [f"step {number}" for number in range(1, len(marked.names))]
    return _Ranges(
        marked.end_ns[:-1], marked.end_ns[1:], marked.process[1:], marked.thread[1:], names
    )


def _steps(
    marked: _Ranges,
    work: DeviceWork,
    launched: Launches,
    waits: Mapping[tuple[int, int], Intervals],
) -> tuple[Step, ...]:
    thread = int(marked.process[0]), int(marked.thread[0])
    busy = covered_ns(union(work.begin_ns, work.end_ns), marked.begin_ns, marked.end_ns)
    waiting = waits.get(thread)
    data = np.zeros_like(busy)
    if waiting is not None:
        data = covered_ns(waiting, marked.begin_ns, marked.end_ns)
    duration = marked.end_ns - marked.begin_ns
    columns = (marked.begin_ns, duration, busy, data)
    spans = _device_spans(marked, work, launched)
    rows = zip(marked.names, *(each.tolist() for each in columns), spans, strict=True)
    return tuple(Step(*row) for row in rows)


def _device_spans(marked: _Ranges, work: DeviceWork, launched: Launches) -> list[int | None]:
    """Return how long what was launched in each range took on the devices."""
    known = np.flatnonzero(launched.known)
    place = np.searchsorted(marked.begin_ns, launched.begin_ns[known], "right") - 1
    within = (place >= 0) & (launched.begin_ns[known] < marked.end_ns[np.maximum(place, 0)])
    rows, place = known[within], place[within]
    first = np.full(len(marked.names), LATEST_NS, np.int64)
    last = np.full(len(marked.names), -LATEST_NS, np.int64)
    np.minimum.at(first, place, work.begin_ns[rows])
    np.maximum.at(last, place, work.end_ns[rows])
    spans = (last - first).tolist()
    return [span if span >= 0 else None for span in spans]
