"""How long a run would have taken without one of the things that held it up.

The run is played again with what was recorded: the host does its work between two calls in the
same time, each piece of the device's work begins when it was launched and what came before it on
the device is done, and where the host waited for the device it waits for the same piece of work.
Take the waits away, let copies move faster or the host launch sooner, and what overlaps or is
exposed then follows by itself: a synchronisation costs nothing where the host is the slower one
anyway, and more than its own idle time where it keeps the host from running ahead.

Not played again: streams of one device that overlap keep their overlap, gaps that are no matter of
the host stay as long as they were, and other devices and processes are not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuadvisor.rules.facts.intervals import Intervals, Mask, Whole

Real = npt.NDArray[np.float64]


class Host(IntEnum):
    """What the threads that launch do while they do not wait for the device."""

    LOADING = 0
    """Waiting for a DataLoader's batch."""
    SYNCHRONIZING = 1
    """In a call that could wait for the device, but need not."""
    ALLOCATING = 2
    """In a call that allocates or frees memory of the device."""
    COPYING = 3
    """Never: what calls that copy take is a wait, or work."""
    WORKING = 4
    """Launching: operators that do, their calls, and what lies shortly between them."""
    AWAY = 5
    """Everything else that lasts: Python, and operators of the CPU. A profiler records little of
    it, and so makes it hardly longer."""


@dataclass(frozen=True)
class Change:
    """What is different when the run is played again."""

    host: Mapping[Host, float] = field(default_factory=dict, hash=False)
    """What becomes of the host's time of a kind, as a factor. Where it is 0, the host does not wait
    for the device in calls of that kind either."""
    pageable: float = 1.0
    """What becomes of the time of copies from or to pageable memory, as a factor."""

    def factor(self, kind: Host) -> float:
        """Return what becomes of the host's time of a kind."""
        return self.host.get(kind, 1.0)


AS_IT_WAS = Change()


@dataclass(frozen=True, eq=False)
class Timeline:
    """One device's part of a run, ready to be played."""

    device: int
    begin_ns: int
    """Of the run."""
    not_working: Intervals
    """When the threads that launch waited, for the device or for data, or handled its memory."""
    away: Intervals
    """When they were `AWAY`."""
    rows: Whole
    """Of the device's work, in the order of their begins, as all that follows."""
    work_ns: Real
    """The time of each that none before it covers."""
    delay_ns: Real
    """By how much it began later than it could have, for no reason of the host's."""
    pageable: Mask
    """Whether it copies from or to pageable memory."""
    lag_ns: Real
    """From the begin of its call to its own, on an idle device; -inf where the call is unknown."""
    launch_ns: Real
    """The host's time before its call: a row for each kind."""
    waits_before: Whole
    """How many waits were over when its call began."""
    wait_ns: Real
    """The host's time before each wait for the device: a row for each kind."""
    wait_kind: Whole
    """`Host`."""
    wait_call: Whole
    """Row of the call."""
    waited_for: Whole
    """The last piece of work, in the order of begins, that was done when the wait was over."""
    covered_ns: Real
    """How long before that work of an earlier begin was done."""
    tail_ns: Real
    """What the call took after what it waited for."""

    def takes_ns(self, change: Change = AS_IT_WAS) -> float:
        """Return how long the run takes, until the device's last work is done."""
        if change not in self._took:
            self._took[change] = self._takes_ns(change) if len(self.work_ns) else 0.0
        return self._took[change]

    @cached_property
    def _took(self) -> dict[Change, float]:
        return {}

    @cached_property
    def _stops(self) -> list[int]:
        """How much of the work was launched when each wait, and all of them, were over."""
        asked = np.maximum.accumulate(self.waits_before)
        stops: list[int] = np.searchsorted(
            asked, np.arange(len(self.wait_kind) + 1), "right"
        ).tolist()
        return stops

    def _takes_ns(self, change: Change) -> float:
        factors = np.array([change.factor(kind) for kind in Host])
        work = np.where(self.pageable, change.pageable, 1.0) * self.work_ns
        done = np.cumsum(work + self.delay_ns)
        earliest = factors @ self.launch_ns + self.lag_ns - done + work
        waits = factors[self.wait_kind] > 0
        wait = np.where(waits, factors @ self.wait_ns, np.inf)
        latest = self._played(earliest, done, wait, np.where(waits, self.tail_ns, 0.0))
        return float(done[-1] + max(latest, 0.0))

    def _played(self, earliest: Real, done: Real, wait: Real, tail: Real) -> float:
        """Go from wait to wait, and through the work between two of them; return the last offset.

        Work is done at its `done` and an offset: the latest by which it, or one before it, had to
        wait for its launch.
        """
        stalled = np.zeros(len(wait) + 1)
        """By how much the host is later than without any wait, after each of them."""
        offset = np.full(len(done), -np.inf)
        columns = (wait, tail, self.waited_for, self.covered_ns)
        waits = zip(*(column.tolist() for column in columns), strict=True)
        latest, at, stall = 0.0, 0, 0.0  # nothing is done before the run begins
        for number, stop in enumerate(self._stops):
            if number:
                began, after, row, covered = next(waits)
                row = min(row, at - 1)
                if row >= 0:
                    stall = max(stall, float(done[row] + offset[row]) - covered - began)
                stall += after
                stalled[number] = stall
            if stop == at + 1:  # the usual case where a program waits often; arrays are slow for it
                ready = float(earliest[at] + stalled[self.waits_before[at]])
                offset[at] = latest = max(ready, latest)
            elif stop > at:
                many = earliest[at:stop] + stalled[self.waits_before[at:stop]]
                many[0] = max(many[0], latest)
                np.maximum.accumulate(many, out=offset[at:stop])
                latest = float(offset[stop - 1])
            at = max(at, stop)
        return latest
