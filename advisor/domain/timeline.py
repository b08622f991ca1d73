"""A metric over time, thinned to the columns of a chart without hiding a spike or a gap.

A column has the least, the greatest and the mean of what was read in its time, and for how long of
it nothing is known. Rows of the store and the last minutes in memory are thinned here alike.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import NamedTuple

from gpuadvisor.domain.accumulators import PATIENCE_S
from gpuadvisor.domain.metrics import BY_NAME, Kind, Metric, SamplingInterval
from gpuadvisor.domain.telemetry import Number

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0
_MINUTES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40, 45, 60, 80, 90, 120, 180, 240, 360, 480,
            720, 1440)  # fmt: skip
STEPS_S = (
    *(0.1, 0.2, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 10.0, 12.0, 15.0, 20.0, 30.0, 40.0),
    *(minutes * MINUTE_S for minutes in _MINUTES),
)
"""Lengths of a column: those from a minute on are whole minutes, so that no row of the store, which
begins at a whole minute or hour, is in two columns."""
ROUNDING_S = 1e-3
"""Less than that is no time without readings, but how times are rounded."""


class Column(NamedTuple):
    """What was read in the time of a column."""

    low: Number
    """The least. Of a counter, all three are its increase; of flags, all that were set."""
    high: Number
    mean: float
    readings: int
    """How many, at most: rows count all sweeps. 0 where the column lies between two readings, and
    has the value of the one before."""
    missing_s: float
    """Seconds of the column's past of which nothing is known; 0 where all is."""


@dataclass(frozen=True)
class TimelineRequest:
    """Timelines that are asked for: one metric in a span of Unix times."""

    metric: str
    devices: Sequence[str] | None
    """UUIDs of GPUs, or HOST for the machine's; None means all that have the metric."""
    since_s: float
    until_s: float
    columns: int
    """About how many they are thinned to."""
    now_s: float | None = None
    """What is missing before is a gap. None: the time, or the newest known, of who answers."""
    at_least_s: float = 0.0
    """Shortest length of a column, in seconds."""


@dataclass(frozen=True)
class Timeline:
    """One metric of one GPU, or of the machine."""

    metric: str
    begin_s: float
    """Unix time at which the first column begins, a multiple of its length."""
    step_s: float
    """Length of a column, in seconds."""
    columns: tuple[Column | None, ...]
    """None where nothing is known of the column's time."""
    row_s: float = 0.0
    """What the coarsest row stands for from which it is made: 60 a minute, 3600 an hour, 0 a single
    reading. Such a row has the least and the greatest of its readings, but not when they were."""

    @property
    def end_s(self) -> float:
        """Unix time at which the last column ends, which may be in the future."""
        return self.begin_s + self.step_s * len(self.columns)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of any column."""
        return all(column is None for column in self.columns)


@dataclass(frozen=True)
class Grid:
    """The columns of a chart: when the first begins, how long each is, and how many there are."""

    begin_s: float
    step_s: float
    count: int
    now_s: float
    """Unix time from which on nothing can be known yet."""

    @property
    def end_s(self) -> float:
        return self.begin_s + self.step_s * self.count

    def time_of(self, place: int) -> float:
        """Return when a column begins."""
        return self.begin_s + place * self.step_s


def grid(
    since_s: float, until_s: float, columns: int, now_s: float, at_least_s: float = 0.0
) -> Grid:
    """Return at most `columns` + 1 columns that have the span in them, of a round length.

    They begin at multiples of their length, so that a chart that goes on in time does not flicker.
    `at_least_s` is the least length of a column.
    """
    wanted = max((until_s - since_s) / max(columns, 1), at_least_s)
    step_s = next((each for each in STEPS_S if each >= wanted), None)
    if step_s is None:
        step_s = math.ceil(wanted / DAY_S) * DAY_S
    first = math.floor(since_s / step_s)
    last = max(math.ceil(until_s / step_s), first + 1)
    return Grid(first * step_s, step_s, last - first, now_s)


Part = Sequence[Number]
"""The least, the greatest, the sum and the number of some readings."""


class Thinning:
    """The columns of one device, from its readings and from rows that sum up some."""

    def __init__(self, metric: Metric, columns: Grid) -> None:
        self._metric = metric
        self._grid = columns
        self._parts: dict[int, list[Part]] = {}
        """What was read, by the column's place."""
        self._known: list[tuple[float, float]] = []
        """Spans of which something is known."""
        self._known_s: dict[int, float] = {}
        """Seconds of a column's time that rows tell about, by its place."""
        self._unknown: list[tuple[float, float]] = []
        self._held: dict[int, Number] = {}
        """What was read last before a column that has no reading of its own."""

    def add_rows(self, place: int, known_s: float, part: Part | None) -> None:
        """Add rows of one column: for how many seconds they have sweeps, and what these read of the
        metric, if anything."""
        if part is not None:
            self._parts.setdefault(place, []).append(part)
        self._known_s[place] = self._known_s.get(place, 0.0) + known_s

    def add_unknown(self, spans: Iterable[tuple[float, float]]) -> None:
        """Take away spans in which the metric could not be read, though others could."""
        self._unknown += spans

    def add_readings(
        self, times: Sequence[float], values: Sequence[Number], from_s: float = -math.inf
    ) -> None:
        """Add readings in order of time.

        Those before `from_s`, which rows sum up already, and those outside of the columns only
        tell whether there is a gap at the edge.
        """
        if not times:
            return
        spans = known_spans(times, self._metric, self._grid.now_s)
        self._known += [(max(span[0], from_s), span[1]) for span in spans if span[1] > from_s]
        patience_s = PATIENCE_S[self._metric.name]
        if self._metric.kind is Kind.COUNTER:
            self._add_increases(times, values, patience_s, from_s)
            return
        columns = self._grid
        places = range(columns.count + 1)
        edges = [bisect_left(times, max(columns.time_of(place), from_s)) for place in places]
        for place, (first, last) in enumerate(pairwise(edges)):
            if first < last:
                part = values[first:last]
                self._parts.setdefault(place, []).append(self._summed(part))
            elif first and columns.time_of(place) - times[first - 1] <= patience_s:
                self._held[place] = values[first - 1]

    def add_increase(self, since_s: float, until_s: float, increase: Number) -> None:
        """Add what a counter grew by in a span, spread evenly over it."""
        columns = self._grid
        length_s = until_s - since_s
        for place in _places(columns, since_s, until_s):
            overlap_s = min(until_s, columns.time_of(place + 1)) - max(
                since_s, columns.time_of(place)
            )
            share = increase * overlap_s / length_s if length_s > 0 else increase
            if overlap_s > 0 or length_s <= 0:
                self._parts.setdefault(place, []).append((share, share, share, 1))

    def columns(self) -> tuple[Column | None, ...]:
        """Return the columns."""
        known_s = dict(self._known_s)
        _spread(known_s, self._known, self._grid)
        unknown_s: dict[int, float] = {}
        _spread(unknown_s, self._unknown, self._grid)
        made: list[Column | None] = []
        for place in range(self._grid.count):
            held = self._held.get(place)
            before = made[-1] if made else None
            if held is None and before is not None and self._is_rarer:
                held = before.mean
            made.append(
                self._column(
                    self._parts.get(place),
                    held,
                    known_s.get(place, 0.0),
                    unknown_s.get(place, 0.0),
                    self._expected_s(place),
                )
            )
        return tuple(made)

    @property
    def _is_rarer(self) -> bool:
        """Whether rows may lack the metric only as it is read more rarely than they begin."""
        return self._metric.interval.period_s >= self._grid.step_s

    def _column(
        self,
        parts: Sequence[Part] | None,
        held: Number | None,
        known_s: float,
        unknown_s: float,
        expected_s: float,
    ) -> Column | None:
        missing_s = min(max(expected_s - known_s, 0.0) + unknown_s, expected_s)
        missing_s = missing_s if missing_s > ROUNDING_S else 0.0
        if not parts:
            if held is None or missing_s >= expected_s:
                return None
            return Column(held, held, held, 0, missing_s)
        count = int(sum(part[3] for part in parts))
        if self._metric.kind is Kind.COUNTER:
            increase = math.fsum(part[2] for part in parts)
            return Column(increase, increase, increase, count, missing_s)
        if self._metric.kind is Kind.BITMASK:
            flags = reduce(or_, (int(part[1]) for part in parts))
            return Column(flags, flags, flags, count, missing_s)
        low, high = min(part[0] for part in parts), max(part[1] for part in parts)
        mean = math.fsum(part[2] for part in parts) / count
        return Column(low, high, min(max(mean, low), high), count, missing_s)

    def _summed(self, values: Sequence[Number]) -> Part:
        if self._metric.kind is Kind.BITMASK:
            flags = reduce(or_, map(int, set(values)))
            return flags, flags, flags, len(values)
        return min(values), max(values), math.fsum(values), len(values)

    def _add_increases(
        self, times: Sequence[float], values: Sequence[Number], patience_s: float, from_s: float
    ) -> None:
        for (since_s, before), (until_s, after) in pairwise(zip(times, values, strict=True)):
            if from_s <= until_s <= since_s + patience_s:
                self.add_increase(max(since_s, from_s), until_s, increase(before, after))

    def _expected_s(self, place: int) -> float:
        columns = self._grid
        return min(columns.time_of(place + 1), columns.now_s) - columns.time_of(place)


def increase(before: Number, after: Number) -> Number:
    """Return by how much a counter has grown; one that is less began anew, from zero."""
    return after - before if after >= before else after


def known_spans(times: Sequence[float], metric: Metric, now_s: float) -> list[tuple[float, float]]:
    """Return the spans of which readings tell: from each to the next, if that is not overdue.

    After the last one before a gap it is the time to the next reading that was due; what was
    read by now may not have come yet.
    """
    patience_s = PATIENCE_S[metric.name]
    period_s = max(metric.interval.period_s, SamplingInterval.NORMAL.period_s)
    spans, begin_s = [], times[0]
    for before, after in pairwise(times):
        if after - before > patience_s:
            spans.append((begin_s, before + period_s))
            begin_s = after
    last_s = times[-1]
    is_newest = 0 <= now_s - last_s <= patience_s
    spans.append((begin_s, now_s if is_newest else last_s + period_s))
    return spans


def _spread(seconds: dict[int, float], spans: Iterable[tuple[float, float]], columns: Grid) -> None:
    """Add to each column's seconds those that spans have of it."""
    for since_s, until_s in spans:
        for place in _places(columns, since_s, until_s):
            end_s = min(until_s, columns.time_of(place + 1), columns.now_s)
            overlap_s = end_s - max(since_s, columns.time_of(place))
            if overlap_s > 0:
                seconds[place] = seconds.get(place, 0.0) + overlap_s


def _places(columns: Grid, since_s: float, until_s: float) -> range:
    first = math.floor((since_s - columns.begin_s) / columns.step_s)
    last = math.ceil((until_s - columns.begin_s) / columns.step_s)
    return range(max(first, 0), min(max(last, first + 1), columns.count))


def thinned(
    metric: str, times: Sequence[float], values: Sequence[Number], columns: Grid
) -> Timeline:
    """Return readings in order of time as a timeline."""
    thinning = Thinning(BY_NAME[metric], columns)
    thinning.add_readings(times, values)
    return Timeline(metric, columns.begin_s, columns.step_s, thinning.columns())
