"""Which operator of the forward pass each operator of the backward pass belongs to.

PyTorch's autograd runs the backward pass on threads of its own, which have no Python functions and
no modules. Its operators (`autograd::engine::evaluate_function: MmBackward0`) carry the sequence
number of the node that they evaluate, and the number of the thread that made the node; the forward
operator that made it has the same sequence number. The number of a thread is PyTorch's own, counted
from 1, and no trace says which thread of the system that is: it is the one whose operators have the
same sequence numbers. Where two threads have equally many of them nothing is linked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Profile
from gpuadvisor.rules.facts.intervals import BoolArray, IntArray, ends, grouped
from gpuadvisor.rules.facts.joins import enclosing, latest_before, thread_keys

MARK = "autograd::engine::evaluate_function"
"""How the names of operators begin that evaluate a node of the backward pass."""
MOST_THREADS = 64
"""Threads of a process whose sequence numbers are compared, those with most operators: programs
have a forward pass on one, or on one for each GPU. [own]"""
MOST_PASSES = 4
"""Backward passes within backward passes that are followed: of a gradient's gradient, or of what a
checkpoint computes again. [own]"""

_NUMBERS = ("sequence", "forward_thread")

Moments: TypeAlias = tuple[IntArray, IntArray, IntArray]
"""Times in ns, processes and threads."""


@dataclass(frozen=True, eq=False)
class Backward:
    """Operators of the backward pass whose forward operator is known."""

    begin_ns: IntArray
    end_ns: IntArray
    process: IntArray
    thread: IntArray
    forward_ns: IntArray
    """When the forward operator of each began."""
    forward_thread: IntArray
    """The thread on which it ran, of the same process."""

    def __len__(self) -> int:
        return len(self.begin_ns)

    def moved(self, time_ns: IntArray, process: IntArray, thread: IntArray) -> Moments:
        """Return moments with those within the backward pass moved to where the forward operator
        began."""
        for _ in range(MOST_PASSES):
            row = self.row_at(time_ns, process, thread)
            held = row != UNKNOWN
            if not held.any():
                break
            time_ns = np.where(held, self.forward_ns[row], time_ns)
            thread = np.where(held, self.forward_thread[row], thread)
        return time_ns, process, thread

    def row_at(self, time_ns: IntArray, process: IntArray, thread: IntArray) -> IntArray:
        """Return the row of the innermost one that ran at each time on its thread."""
        found = np.full(len(time_ns), UNKNOWN, np.int64)
        # Most moments are of other threads, which need not be looked up.
        here = np.flatnonzero(np.isin(thread, self._threads))
        if len(here):
            own, asked = thread_keys(self.process, self.thread, process[here], thread[here])
            found[here] = enclosing(self.begin_ns, self.end_ns, own, time_ns[here], asked)
        return found

    @cached_property
    def _threads(self) -> IntArray:
        return np.unique(self.thread)


def backward(profile: Profile) -> Backward:
    """Return the backward pass of a profile; empty where no operator tells its sequence number."""
    names = ("begin_ns", "duration_ns", "process", "thread", *_NUMBERS)
    columns = profile.columns("operators", names)
    known = columns["sequence"] >= 0
    later = np.flatnonzero(known & (columns["forward_thread"] > 0))
    made = np.flatnonzero(known & (columns["forward_thread"] <= 0))
    begin, end = ends(columns["begin_ns"], columns["duration_ns"])
    process, thread, sequence = (columns[name] for name in ("process", "thread", "sequence"))
    key, _ = thread_keys(process[made], thread[made], process[:0], thread[:0])
    on = _threads(
        grouped(process[later], columns["forward_thread"][later]),
        sequence[later], process[later], key, sequence[made], process[made],
    )  # fmt: skip
    later, on = later[on != UNKNOWN], on[on != UNKNOWN]
    node = grouped(np.concatenate((key, on)), np.concatenate((sequence[made], sequence[later])))
    # Operators that make no node have the number of the next one, and begin before what makes it.
    found = latest_before(node[: len(made)], begin[made], node[len(made) :], begin[later])
    forward = made[np.maximum(found, 0)] if len(made) else found
    linked = (found != UNKNOWN) & (begin[forward] <= begin[later])
    rows, forward = later[linked], forward[linked]
    own = begin[rows], end[rows], process[rows], thread[rows]
    return Backward(*own, begin[forward], thread[forward])


def is_backward(profile: Profile) -> BoolArray:
    """Return which operators evaluate a node of the backward pass."""
    texts, names = profile.header.texts, profile.columns("operators", ("name",))["name"]
    named = np.array([text for text in np.unique(names).tolist() if texts[text].startswith(MARK)])
    found: BoolArray = np.isin(names, named)
    return found


def makes_node(profile: Profile) -> BoolArray:
    """Return which operators surely made a node for a backward pass: of those with a number the
    last on its thread, as who makes no node has the number of the next one, and one with a later
    number follows it."""
    columns = profile.columns("operators", ("begin_ns", "process", "thread", *_NUMBERS))
    rows = np.flatnonzero((columns["sequence"] >= 0) & (columns["forward_thread"] <= 0))
    process, thread = columns["process"][rows], columns["thread"][rows]
    key, _ = thread_keys(process, thread, process[:0], thread[:0])
    sequence = columns["sequence"][rows]
    order = np.lexsort((columns["begin_ns"][rows], sequence, key))
    ordered = key[order], sequence[order]
    is_last = (ordered[0][1:] == ordered[0][:-1]) & (ordered[1][1:] > ordered[1][:-1])
    found = np.zeros(len(columns["sequence"]), np.bool_)
    found[rows[order[:-1][is_last]]] = True
    return found


def _threads(
    numbers: IntArray,
    sequence: IntArray,
    process: IntArray,
    key: IntArray,
    made: IntArray,
    made_in: IntArray,
) -> IntArray:
    """Return for each backward operator the key of the thread that its `numbers` stand for.

    `key`, `made` and `made_in` are thread, sequence number and process of each forward operator.
    """
    found = np.full(len(numbers), UNKNOWN, np.int64)
    if not len(numbers) or not len(key):
        return found
    threads = _most_frequent(key)
    made_by = {each: np.unique(made[key == each]) for each in threads}
    home = {each: int(made_in[np.flatnonzero(key == each)[0]]) for each in threads}
    for number in _most_frequent(numbers):
        rows = np.flatnonzero(numbers == number)
        wanted = np.unique(sequence[rows])
        mine = [each for each in threads if home[each] == process[rows[0]]]
        shared = [int(np.isin(wanted, made_by[each], assume_unique=True).sum()) for each in mine]
        best = max(shared, default=0)
        if best and shared.count(best) == 1:
            found[rows] = mine[shared.index(best)]
    return found


def _most_frequent(numbers: IntArray) -> list[int]:
    """Return the numbers that occur most often, at most `MOST_THREADS`."""
    used, count = np.unique(numbers, return_counts=True)
    return used[np.argsort(-count, kind="stable")[:MOST_THREADS]].tolist()  # type: ignore[no-any-return]
