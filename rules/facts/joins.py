"""Which row belongs to which: by correlation, and by what encloses what on a thread.

Real files have correlations that are missing, repeat (several processes, a driver call within a
runtime call, a CUDA graph's one launch for many kernels) and calls that were not recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.intervals import LATEST_NS, BoolArray, IntArray, numbered


def latest_before(
    keys: IntArray, times_ns: IntArray, wanted: IntArray, wanted_ns: IntArray
) -> IntArray:
    """Return for each wanted key the row that has it: of several the last one not after its time.

    Where all are later (clocks of host and device drift apart) it is the first; where none has the
    key, or it is UNKNOWN, it is UNKNOWN.
    """
    if not len(keys) or not len(wanted):
        return np.full(len(wanted), UNKNOWN, np.int64)
    order = np.lexsort((times_ns, keys))
    ordered = keys[order]
    first = np.searchsorted(ordered, wanted)
    found = ordered[np.minimum(first, len(keys) - 1)] == wanted
    place = first
    if (ordered[1:] == ordered[:-1]).any():
        place = np.maximum(_not_after(ordered, times_ns[order], wanted, wanted_ns), first)
    known = found & (wanted != UNKNOWN)
    rows: IntArray = np.where(known, order[np.minimum(place, len(keys) - 1)], UNKNOWN)
    return rows


def _not_after(
    ordered: IntArray, times_ns: IntArray, wanted: IntArray, wanted_ns: IntArray
) -> IntArray:
    """Return the last place whose (key, time) is not after the wanted ones."""
    keys, times = np.concatenate((ordered, wanted)), np.concatenate((times_ns, wanted_ns))
    is_wanted = np.concatenate((np.zeros(len(ordered), np.int8), np.ones(len(wanted), np.int8)))
    merged = np.lexsort((is_wanted, times, keys))
    passed = np.cumsum(is_wanted[merged] == 0) - 1
    place = np.empty(len(merged), np.int64)
    place[merged] = passed
    return place[len(ordered) :]


def enclosing(
    begin_ns: IntArray, end_ns: IntArray, thread: IntArray, at_ns: IntArray, at_thread: IntArray
) -> IntArray:
    """Return for each time the innermost interval of its thread that holds it, else UNKNOWN.

    That is the last to begin of those that have not ended. The end belongs to it: traces of whole
    microseconds cut the calls within an operator off its end otherwise.
    """
    at_ns = np.clip(at_ns, -LATEST_NS, LATEST_NS)  # intervals have no other times either
    row, before = _in_order(begin_ns, end_ns, thread, at_ns, at_thread)
    count = len(begin_ns)
    result = np.full(len(at_ns), UNKNOWN, np.int64)
    asked = row >= count
    holder = before[asked]
    result[row[asked] - count] = np.where(holder >= 0, row[np.maximum(holder, 0)], UNKNOWN)
    return result


@dataclass(frozen=True, eq=False)
class CallTree:
    """How intervals nest on their threads. Places are positions in the order of thread and begin,
    in which whatever an interval holds follows it directly."""

    row: IntArray
    """The row at each place."""
    parent: IntArray
    """Place of the innermost other interval that outlasts it; UNKNOWN where there is none."""
    stop: IntArray
    """The place after the last one that it holds."""

    def sums(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return each row's value and those of all that it holds, together."""
        before = np.concatenate((values[:0].sum(keepdims=True), np.cumsum(values[self.row])))
        result = np.empty_like(values)
        result[self.row] = before[self.stop] - before[:-1]
        return result

    def outermost(self, names: npt.NDArray[Any]) -> BoolArray:
        """Return which rows no other of the same name holds."""
        named = names[self.row]
        order = np.argsort(named, kind="stable")
        number = np.cumsum(np.concatenate(([0], named[order][1:] != named[order][:-1])))
        # Later names lie beyond earlier ones, so that one maximum runs through all of them.
        place = number[: len(order)] * (len(order) + 1)
        until = np.maximum.accumulate(np.concatenate(([0], place + self.stop[order])))[:-1]
        result = np.empty(len(order), np.bool_)
        result[self.row[order]] = place + order >= until
        return result


def call_tree(begin_ns: IntArray, end_ns: IntArray, thread: IntArray) -> CallTree:
    """Return how intervals nest."""
    nothing = np.empty(0, np.int64)
    row, parent = _in_order(begin_ns, end_ns, thread, nothing, nothing)
    last = np.arange(len(row), dtype=np.int64)
    held = np.flatnonzero(parent >= 0)
    last[parent[held]] = held  # of several values for a place numpy keeps the last
    while True:
        further = last[last]
        if np.array_equal(further, last):
            return CallTree(row, parent, last + 1)
        last = further


def _in_order(
    begin_ns: IntArray, end_ns: IntArray, thread: IntArray, at_ns: IntArray, at_thread: IntArray
) -> tuple[IntArray, IntArray]:
    """Return intervals and times in the order of thread and begin, and the holder's place of each.

    Times are rows after the intervals'. The holder is the nearest place before whose end is not
    earlier: what a stack would have on top. A time holds nothing, so it reaches less than it needs.
    """
    begin = np.concatenate((begin_ns, at_ns))
    needed = np.concatenate((np.maximum(end_ns, begin_ns), at_ns))
    threads = np.concatenate((thread, at_thread))
    is_time = (np.arange(len(begin)) >= len(begin_ns)).astype(np.int64)
    row = np.lexsort((-needed, is_time, begin, threads))
    needed, group = needed[row], threads[row]
    starts = np.ones(len(row), np.bool_)
    starts[1:] = group[1:] != group[:-1]
    return row, _nearest_reaching(needed - is_time[row], needed, starts)


def _nearest_reaching(reached: IntArray, needed: IntArray, starts: BoolArray) -> IntArray:
    """Return the nearest place before in the same group that reaches what a place needs, else -1.

    All places climb at once from their neighbour along what is found already: nothing between a
    place and where it points reaches more than the place itself, so a jump skips nothing. There
    are about as many rounds as intervals nest.
    """
    place = np.arange(len(needed), dtype=np.int64) - 1
    place[starts] = UNKNOWN
    active = np.flatnonzero(place >= 0)
    while len(active):
        active = active[reached[place[active]] < needed[active]]
        place[active] = place[place[active]]
        active = active[place[active] >= 0]
    return place


def thread_keys(
    process: IntArray, thread: IntArray, other_process: IntArray, other_thread: IntArray
) -> tuple[IntArray, IntArray]:
    """Return a number for each row's process and thread, the same in both tables."""
    _, of_process = numbered(np.concatenate((process, other_process)))
    threads, of_thread = numbered(np.concatenate((thread, other_thread)))
    # Without overflow, as both are at most as many as rows.
    _, numbers = numbered(of_process * len(threads) + of_thread)
    return numbers[: len(process)], numbers[len(process) :]


@dataclass(frozen=True, eq=False)
class Ran:
    """Times in which something with a number ran on a thread, one within another or apart."""

    begin_ns: IntArray
    end_ns: IntArray
    process: IntArray
    thread: IntArray
    number: IntArray
    """The number of what ran."""

    def row_at(self, time_ns: IntArray, process: IntArray, thread: IntArray) -> IntArray:
        """Return the row of the innermost that ran at each time on its thread, or UNKNOWN."""
        if not len(self.begin_ns) or not len(time_ns):
            return np.full(len(time_ns), UNKNOWN, np.int64)
        own, asked = thread_keys(self.process, self.thread, process, thread)
        return enclosing(self.begin_ns, self.end_ns, own, time_ns, asked)

    def of_rows(self, rows: IntArray) -> IntArray:
        """Return the number of what ran in each row; UNKNOWN of UNKNOWN."""
        if not len(self.begin_ns):
            return rows
        found: IntArray = np.where(rows == UNKNOWN, UNKNOWN, self.number[np.maximum(rows, 0)])
        return found
