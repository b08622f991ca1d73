"""Rounds in which the host copies one tensor after the other from a device and works with them.

From the first call of such a copy until the host next launches anything else: in between the device
has nothing to do but these copies, and the host waits for each, computes with what came, writes it
to a file, or does whatever else it does. That is one stall, whoever is busy at a moment of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Direction
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import AGAIN
from gpuadvisor.rules.facts.intervals import BoolArray, IntArray, Intervals, covered_ns, none
from gpuadvisor.rules.facts.launches import LaunchingCalls
from gpuadvisor.rules.facts.operators import Operators

LEAST_BYTES = 65_536
"""Bytes of a round, from which on tensors are copied: fewer are values that are read one by one
(`.item()`), of which the host's work between is launching. [own]"""


@dataclass(frozen=True, eq=False)
class CopiedOut:
    """The rounds of one device."""

    rows: IntArray
    """Rows of the device's work: the copies."""
    of_round: IntArray
    """Number of the round of each of them."""
    times: Intervals
    """The host's time of each round, from its first copy's call to the next launch."""

    def sums(self, values: IntArray) -> IntArray:
        """Return the sum of each round's copies' values."""
        found = np.zeros(len(self.times), np.int64)
        np.add.at(found, self.of_round, values)
        return found

    def chosen(self, rounds: BoolArray) -> CopiedOut:
        """Return some of these rounds only."""
        number = np.cumsum(rounds) - 1
        kept = rounds[self.of_round]
        times = Intervals(self.times.begin_ns[rounds], self.times.end_ns[rounds])
        return CopiedOut(self.rows[kept], number[self.of_round[kept]], times)


def stalls(found: CopiedOut, other: Intervals, waiting: Intervals) -> CopiedOut:
    """Return the rounds in which the host spent more time on something else, at some `other` times,
    than in waits: as in writing a checkpoint, where the copies are only a part of the stall."""
    begin, end = found.times.begin_ns, found.times.end_ns
    return found.chosen(covered_ns(other, begin, end) > covered_ns(waiting, begin, end))


def computing(found: CopiedOut, ran: Operators) -> IntArray:
    """Return the operators within these rounds that call nothing of CUDA, the outermost ones: they
    compute on the CPU."""
    calls = np.zeros(len(ran), np.int64)
    np.add.at(calls, ran.of_call[ran.of_call != UNKNOWN], 1)
    tree = ran.call_tree
    is_of_cpu = tree.sums(calls) == 0
    held = np.zeros(len(ran), np.bool_)
    has_parent = tree.parent != UNKNOWN
    held[tree.row[has_parent]] = is_of_cpu[tree.row[tree.parent[has_parent]]]
    inside = covered_ns(found.times, ran.begin_ns, ran.begin_ns + 1) > 0
    rows: IntArray = np.flatnonzero(is_of_cpu & ~held & inside)
    return rows


def copied_out(work: DeviceWork, launched: LaunchingCalls) -> CopiedOut:
    """Return the rounds of copies to the host with nothing else launched between, of the device
    with most work."""
    rows = max((rows for _, rows in work.lasting_by_device()), key=len, default=None)
    if rows is None or not launched.known[rows].any():
        return CopiedOut(np.empty(0, np.int64), np.empty(0, np.int64), none())
    rows = rows[launched.known[rows]]
    rows = rows[np.argsort(launched.begin_ns[rows], kind="stable")]
    copies = np.flatnonzero(rows >= work.kernels)
    to_host = np.zeros(len(rows), np.bool_)
    direction = work.copies["direction"][rows[copies] - work.kernels]
    to_host[copies] = direction == Direction.DEVICE_TO_HOST
    change = np.flatnonzero(np.diff(to_host.astype(np.int8), prepend=0, append=0))
    first, stop = change[0::2], change[1::2]
    size = np.zeros(len(rows) + 1, np.int64)
    size[copies + 1] = np.maximum(work.copies["bytes"][rows[copies] - work.kernels], 0)
    size = np.cumsum(size)
    several = (stop - first >= AGAIN) & (size[stop] - size[first] >= LEAST_BYTES)
    first, stop = first[several], stop[several]
    next_ns = np.append(launched.begin_ns[rows], launched.end_ns[rows[-1:]])[stop]
    end = np.maximum(next_ns, launched.end_ns[rows[stop - 1]])
    of_round = np.repeat(np.arange(len(first)), stop - first)
    inside = np.arange(len(of_round)) - np.searchsorted(of_round, of_round)
    return CopiedOut(
        rows[first[of_round] + inside], of_round, Intervals(launched.begin_ns[rows[first]], end)
    )
