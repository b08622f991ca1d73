"""Stretches of time as sorted, disjoint, half-open intervals in whole nanoseconds.

Whatever comes in may be unsorted, overlap or be empty; `union` makes `Intervals` of it, and every
operation between `Intervals` gives `Intervals`. All are exact and take O(n log n).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

LATEST_NS = 2**60
"""Times beyond this one (36 years) are none; cut there, sums and differences cannot overflow."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Sorted and disjoint: each ends before the next one begins."""

    begin_ns: IntArray
    end_ns: IntArray

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def total_ns(self) -> int:
        """How long they are together."""
        return int((self.end_ns - self.begin_ns).sum())

    @property
    def span(self) -> tuple[int, int]:
        """From the first begin to the last end; (0, 0) where there is none."""
        return (int(self.begin_ns[0]), int(self.end_ns[-1])) if len(self) else (0, 0)


def none() -> Intervals:
    """Return no interval."""
    empty = np.empty(0, np.int64)
    return Intervals(empty, empty)


def one(begin_ns: int, end_ns: int) -> Intervals:
    """Return a single interval, or none where it is empty."""
    return union(np.array([begin_ns], np.int64), np.array([end_ns], np.int64))


def ends(begin_ns: IntArray, duration_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return begins and ends that are safe to calculate with; a negative duration is none."""
    begin = np.clip(begin_ns, -LATEST_NS, LATEST_NS)
    return begin, np.minimum(begin + np.clip(duration_ns, 0, 2 * LATEST_NS), LATEST_NS)


def union(begin_ns: IntArray, end_ns: IntArray) -> Intervals:
    """Return the time that at least one of them covers; those that touch become one."""
    filled = end_ns > begin_ns
    begin, end = begin_ns[filled], end_ns[filled]
    if not len(begin):
        return none()
    if (begin[1:] < begin[:-1]).any():
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], end[order]
    reached = np.maximum.accumulate(end)
    first = np.empty(len(begin), np.bool_)
    first[0] = True
    np.greater(begin[1:], reached[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    last = np.append(starts[1:] - 1, len(begin) - 1)
    return Intervals(begin[starts], reached[last])


def both(a: Intervals, b: Intervals) -> Intervals:
    """Return the time that both cover."""
    time, depth = depths((a, b))
    inside = depth == 2
    return union(time[:-1][inside], time[1:][inside])


def either(a: Intervals, b: Intervals) -> Intervals:
    """Return the time that one or both cover."""
    return union(np.concatenate((a.begin_ns, b.begin_ns)), np.concatenate((a.end_ns, b.end_ns)))


def without(a: Intervals, b: Intervals) -> Intervals:
    """Return the time that `a` covers and `b` does not."""
    if not len(a):
        return a
    return both(a, gaps(b, *a.span))


def gaps(a: Intervals, begin_ns: int, end_ns: int) -> Intervals:
    """Return the time between two times that `a` does not cover."""
    begin = np.clip(np.concatenate(([begin_ns], a.end_ns)), begin_ns, end_ns)
    end = np.clip(np.concatenate((a.begin_ns, [end_ns])), begin_ns, end_ns)
    return union(begin, end)


def depths(sets: tuple[Intervals, ...]) -> tuple[IntArray, IntArray]:
    """Return the times at which something begins or ends, and how many cover each stretch between.

    There is one depth less than there are times.
    """
    begins = [each.begin_ns for each in sets]
    stops = [each.end_ns for each in sets]
    return depths_of(np.concatenate(begins), np.concatenate(stops))


def depths_of(begin_ns: IntArray, end_ns: IntArray) -> tuple[IntArray, IntArray]:
    """Return the times at which intervals begin or end, and how many cover each stretch between.

    They may overlap each other; empty ones count nowhere.
    """
    filled = end_ns > begin_ns
    begin, end = np.sort(begin_ns[filled]), np.sort(end_ns[filled])
    time = distinct(np.concatenate((begin, end)))
    begun = np.searchsorted(begin, time[:-1], "right")
    ended = np.searchsorted(end, time[:-1], "right")
    return time, (begun - ended).astype(np.int64)


def covered_ns(a: Intervals, begin_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return for each of other stretches how much of it `a` covers."""
    covered: IntArray = np.maximum(_covered_until(a, end_ns) - _covered_until(a, begin_ns), 0)
    return covered


def uncovered_ns(a: Intervals, b: Intervals) -> int:
    """Return how long `a` covers and `b` does not; cheaper than to tell when."""
    return a.total_ns - int(covered_ns(b, a.begin_ns, a.end_ns).sum())


def _covered_until(a: Intervals, time_ns: IntArray) -> IntArray:
    if not len(a):
        return np.zeros(len(time_ns), np.int64)
    before = np.concatenate(([0], np.cumsum(a.end_ns - a.begin_ns)))
    begun = np.searchsorted(a.begin_ns, time_ns, "right")
    last = np.maximum(begun - 1, 0)
    inside = np.minimum(time_ns, a.end_ns[last]) - a.begin_ns[last]
    until: IntArray = np.where(begun > 0, before[last] + inside, 0)
    return until


def distinct(values: IntArray) -> IntArray:
    """Return the values sorted, each once; faster than numpy's, which hashes them."""
    ordered = np.sort(values)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def grouped(*columns: npt.NDArray[Any]) -> IntArray:
    """Return a number for each row, equal where all columns are, in the order of their values."""
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if (column == column[:1]).all():
            continue
        used, place = numbered(column)
        _, group = numbered(group * len(used) + place)
    return group


def numbered(values: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return the distinct values in rising order, and the place of each value among them.

    It is `np.unique` with its inverse, without a sort where the values lie close together.
    """
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest > len(values):
        used, place = np.unique(values, return_inverse=True)
        return used.astype(np.int64), place
    above = values.astype(np.int64) - lowest
    there = np.zeros(highest - lowest + 1, np.bool_)
    there[above] = True
    return np.flatnonzero(there) + lowest, (np.cumsum(there) - 1)[above]


def exact_sum(values: IntArray) -> int:
    """Return a sum that cannot wrap around, whatever a file claims."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def percentile(values: IntArray, pct: int) -> int | None:
    """Return the nearest-rank percentile, which is one of the values; None of none."""
    if not len(values):
        return None
    place = max(-(-pct * len(values) // 100) - 1, 0)
    return int(np.partition(values, place)[place])


def by_key(keys: npt.NDArray[np.generic]) -> Iterator[tuple[int, IntArray]]:
    """Yield each key, in order, with the rows that have it, in theirs; one sort for all keys."""
    if not len(keys):
        return
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, stop in zip(starts, [*starts[1:].tolist(), len(order)], strict=True):
        yield int(ordered[start]), order[start:stop]
