"""How long a run would have taken without one of the things that held it up.

The run is played again with what was recorded: the host does its work between two calls in the
same time, each piece of the device's work begins when it was launched and what came before it on
the device is done, and where the host waited for the device it waits for the same piece of work.
Take the waits away, let copies move faster or the host launch sooner, and what overlaps or is
exposed then follows by itself: a synchronisation costs nothing where the host is the slower one
anyway, and more than its own idle time where it keeps the host from running ahead. So does a faster
kernel: it saves nothing while the device waits for the host anyway, and all of its time where the
host waits for the device.

Not played again: streams of one device that overlap keep their overlap, gaps that are no matter of
the host stay as long as they were, and other devices and processes are not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gpuadvisor.domain.profile import CallKind
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.host_waits import LATE, Blocked, Host, pageable, waits_of
from gpuadvisor.rules.facts.idle import REACH_NS, launching_at
from gpuadvisor.rules.facts.idle_causes import PAUSE_NS
from gpuadvisor.rules.facts.intervals import (
    BoolArray,
    FloatArray,
    IntArray,
    Intervals,
    both,
    covered_ns,
    either,
    none,
    one,
    union,
    without,
)
from gpuadvisor.rules.facts.launches import ALLOCATING, Calls, LaunchingCalls
from gpuadvisor.rules.facts.loading import Waits
from gpuadvisor.rules.facts.operators import Operators


@dataclass(frozen=True)
class Scenario:
    """What is different when the run is played again."""

    host: Mapping[Host, float] = field(default_factory=dict, hash=False)
    """What becomes of the host's time of a kind, as a factor. Where it is 0, the host does not wait
    for the device in calls of that kind either."""
    pageable: float = 1.0
    """What becomes of the time of copies from or to pageable memory, as a factor."""

    def factor(self, kind: Host) -> float:
        """Return what becomes of the host's time of a kind."""
        return self.host.get(kind, 1.0)


AS_IT_WAS = Scenario()


@dataclass(frozen=True, eq=False)
class Timeline:
    """One device's part of a run, ready to be played."""

    device: int
    begin_ns: int
    """Begin of the run."""
    not_working: Intervals
    """Times in which the threads that launch waited, for the device or for data, or handled its
    memory."""
    away: Intervals
    """Times in which they were `AWAY`."""
    rows: IntArray
    """Rows of the device's work, in the order of their begins, as all that follows."""
    work_ns: FloatArray
    """The time of each that none before it covers."""
    delay_ns: FloatArray
    """Time by which each began later than it could have, for no reason of the host's."""
    pageable: BoolArray
    """Whether it copies from or to pageable memory."""
    lag_ns: FloatArray
    """From the begin of its call to its own, on an idle device; -inf where the call is unknown."""
    launch_ns: FloatArray
    """The host's time before its call: a row for each kind."""
    waits_before: IntArray
    """How many waits were over when its call began."""
    wait_ns: FloatArray
    """The host's time before each wait for the device: a row for each kind."""
    wait_kind: IntArray
    """`Host`."""
    wait_call: IntArray
    """Row of the call."""
    waited_for: IntArray
    """The last piece of work, in the order of begins, that was done when the wait was over."""
    covered_ns: FloatArray
    """How long before that work of an earlier begin was done."""
    tail_ns: FloatArray
    """What the call took after what it waited for."""

    def waiting(self, chosen: BoolArray) -> Timeline:
        """Return the same with some of the waits for the device only."""
        before = np.concatenate(([0], np.cumsum(chosen)))
        return replace(
            self,
            waits_before=before[self.waits_before],
            wait_ns=self.wait_ns[:, chosen],
            **{
                name: getattr(self, name)[chosen]
                for name in ("wait_kind", "wait_call", "waited_for", "covered_ns", "tail_ns")
            },
        )

    def takes_ns(self, change: Scenario = AS_IT_WAS) -> float:
        """Return how long the run takes, until the device's last work is done."""
        if change not in self._took:
            self._took[change] = self._takes_ns(change) if len(self.work_ns) else 0.0
        return self._took[change]

    @cached_property
    def _took(self) -> dict[Scenario, float]:
        return {}

    @cached_property
    def _stops(self) -> list[int]:
        """How much of the work was launched when each wait, and all of them, were over."""
        asked = np.maximum.accumulate(self.waits_before)
        stops: list[int] = np.searchsorted(
            asked, np.arange(len(self.wait_kind) + 1), "right"
        ).tolist()
        return stops

    def _takes_ns(self, change: Scenario) -> float:
        factors = np.array([change.factor(kind) for kind in Host])
        work = np.where(self.pageable, change.pageable, 1.0) * self.work_ns
        done = np.cumsum(work + self.delay_ns)
        earliest = factors @ self.launch_ns + self.lag_ns - done + work
        waits = factors[self.wait_kind] > 0
        wait = np.where(waits, factors @ self.wait_ns, np.inf)
        latest = self._played(earliest, done, wait, np.where(waits, self.tail_ns, 0.0))
        return float(done[-1] + max(latest, 0.0))

    def _played(
        self, earliest: FloatArray, done: FloatArray, wait: FloatArray, tail: FloatArray
    ) -> float:
        """Go from wait to wait, and through the work between two of them; return the last offset.

        Work is done at its `done` and an offset: the latest by which it, or one before it, had to
        wait for its launch.
        """
        stalled = np.zeros(len(wait) + 1)
        """Time by which the host is later than without any wait, after each of them."""
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


_CALLS = {
    Host.SYNCHRONIZING: (CallKind.SYNCHRONIZE,),
    Host.ALLOCATING: ALLOCATING,
}


def timeline(
    work: DeviceWork,
    host: Calls,
    launched: LaunchingCalls,
    launching: Operators,
    waits: Waits,
    begin_ns: int,
    reach: int = REACH_NS,
    computing: Intervals | None = None,
) -> Timeline | None:
    """Return the part of the device whose kernels take most time, or, without any, of that with
    most work; None where nothing tells what launched it.

    `reach` is how long the device needs to begin what was launched, in nanoseconds: the host that
    runs ahead hides it. `computing` is when operators certainly compute on the CPU, however
    shortly."""
    lasting = dict(work.lasting_by_device())
    device = work.most_computing
    if device is None:
        device = max(lasting, key=lambda each: len(lasting[each]), default=None)
    rows = None if device is None else lasting.get(device)
    if rows is None or not launched.known[rows].any():
        return None
    rows = rows[np.lexsort((work.end_ns[rows], work.begin_ns[rows]))]
    begin, end = work.begin_ns[rows], work.end_ns[rows]
    known, call = launched.known[rows], launched.call[rows]
    reached = np.maximum.accumulate(np.concatenate(([begin_ns], end)))
    before, after = reached[:-1], reached[1:]
    called = np.where(known, launched.begin_ns[rows], begin_ns)
    blocked = waits_of(work, host, rows, call, called, end)
    lag = np.clip(begin - called, 0, launched.end_ns[rows] - called + reach)
    # A copy whose call came back as what ran before was done was held by that: what it needs to
    # begin is what comes after.
    busy, came_back = known & (before > called), launched.end_ns[rows]
    late = (before <= came_back) & (came_back - before <= LATE * (came_back - called))
    of_copy = (rows >= work.kernels) & late & (came_back - called >= PAUSE_NS)
    held = busy & (np.isin(call, blocked.call) | of_copy)
    lag = np.where(held, np.minimum(np.maximum(begin - before, 0), lag), lag)
    could = np.maximum(before, np.where(known, called + lag, begin_ns))
    times = _host_times(host, call[known], launching, waits, blocked, computing or none())
    return Timeline(
        device=int(work.device[rows[0]]),
        begin_ns=begin_ns,
        not_working=times.taken,
        away=times.away(begin_ns, int(max(end.max(), host.end_ns.max(initial=begin_ns)))),
        rows=rows,
        work_ns=np.maximum(end - np.maximum(begin, before), 0).astype(np.float64),
        delay_ns=np.maximum(begin - could, 0).astype(np.float64),
        pageable=pageable(work, rows),
        lag_ns=np.where(known, lag.astype(np.float64), -np.inf),
        launch_ns=times.before(begin_ns, called),
        waits_before=np.searchsorted(blocked.end_ns, called, "right"),
        wait_ns=times.before(begin_ns, blocked.begin_ns),
        wait_kind=blocked.kind,
        wait_call=blocked.call,
        waited_for=blocked.row,
        covered_ns=(after - end)[blocked.row].astype(np.float64),
        tail_ns=np.maximum(
            blocked.end_ns - np.maximum(blocked.begin_ns, end[blocked.row]), 0
        ).astype(np.float64),
    )


@dataclass(frozen=True, eq=False)
class _Times:
    """What the threads that launch did when."""

    kinds: Mapping[Host, Intervals]
    taken: Intervals
    """Times taken by these kinds and by waiting for the device."""
    working: Intervals
    """The part of the rest that is launching."""

    def before(self, begin_ns: int, until_ns: IntArray) -> FloatArray:
        """Return the time of each kind between the begin of the run and other times."""
        start = np.full(len(until_ns), begin_ns, np.int64)
        spent = np.zeros((len(Host), len(until_ns)))
        for kind, times in self.kinds.items():
            spent[kind] = covered_ns(times, start, until_ns)
        elapsed = np.maximum(until_ns - begin_ns, 0)
        spent[Host.WORKING] = covered_ns(self.working, start, until_ns)
        left = elapsed - covered_ns(self.taken, start, until_ns) - spent[Host.WORKING]
        spent[Host.AWAY] = np.maximum(left, 0)
        return spent

    def away(self, begin_ns: int, end_ns: int) -> Intervals:
        """Return when they did none of all that."""
        return without(one(begin_ns, max(begin_ns, end_ns)), either(self.taken, self.working))


def _host_times(
    host: Calls,
    call: IntArray,
    launching: Operators,
    waits: Waits,
    blocked: Blocked,
    computing: Intervals,
) -> _Times:
    threads, first = np.unique(host.thread_key[call], return_index=True)
    names = {(int(host.process[row]), int(host.thread[row])) for row in call[first]}
    loading = none()
    for name in sorted(names & set(waits)):
        loading = either(loading, waits[name])
    mine = np.isin(host.thread_key, threads)
    taken = union(blocked.begin_ns, blocked.end_ns)
    found = {Host.LOADING: without(loading, taken)}
    taken = either(taken, loading)
    for kind, calls in _CALLS.items():
        rows = mine & host.of_kinds(calls)
        found[kind] = without(union(host.begin_ns[rows], host.end_ns[rows]), taken)
        taken = either(taken, found[kind])
    working = without(launching_at(host, launching, call, PAUSE_NS), computing)
    return _Times(found, taken, without(working, taken))


Spared = Sequence[tuple[IntArray | Sequence[int], float]]
"""Rows of the device's work, each at most once, and the share of their time that is saved."""


@dataclass(frozen=True, eq=False)
class FasterKernels:
    """What the run of one device saves if some of its kernels get faster."""

    _timeline: Timeline
    _place: IntArray
    """Place in the timeline of each row of the device's work; beyond its end where it is not in
    it."""
    _launched: LaunchingCalls
    _host: Calls
    _before_ns: dict[float, float] = field(default_factory=dict)

    def saved_share(
        self,
        spared: Spared,
        pace: float,
        times: Intervals | None = None,
        host_share: float = 0.0,
        besides: Mapping[Host, float] | None = None,
    ) -> float:
        """Return which share of the run is saved (0 to 1).

        `pace` is a factor on the host's recorded time, before and after; of some `times` of it a
        share is saved as well, and what `besides` says of other times of the host. Before work that
        is gone altogether there is no gap either.
        """
        given, change = self._timeline, Scenario({Host.WORKING: pace, **(besides or {})})
        if pace not in self._before_ns:
            self._before_ns[pace] = given.takes_ns(Scenario({Host.WORKING: pace}))
        before = self._before_ns[pace]
        less = self._less(spared)
        faster = replace(
            given,
            work_ns=given.work_ns * (1 - less),
            delay_ns=np.where(less < 1, given.delay_ns, 0.0),
        )
        if times is not None and len(times):
            faster = self._without(faster, times, host_share)
        return max(1.0 - faster.takes_ns(change) / before, 0.0) if before > 0 else 0.0

    def saved_without(self, times: Intervals, pace: float, waiting: bool = False) -> float:
        """Return which share of the run is saved without some times of the host: besides what goes
        with the waits for the device, or while these stay (`waiting`), which is no less."""
        as_it_was = Scenario({Host.WORKING: pace})
        ahead = Scenario({Host.WORKING: pace, Host.SYNCHRONIZING: 0.0})
        given, after = self._timeline, self._without(self._timeline, times, 1.0)
        saved_ns = given.takes_ns(as_it_was) - after.takes_ns(as_it_was)
        if not waiting:
            saved_ns = min(saved_ns, given.takes_ns(ahead) - after.takes_ns(ahead))
        return max(saved_ns / given.takes_ns(as_it_was), 0.0) if len(given.rows) else 0.0

    def saved_without_copies(self, rows: IntArray, times: Intervals, pace: float) -> float:
        """Return which share of the run is saved without some work of the device, some times of the
        host, and the waits for the device in these."""
        given, change = self._timeline, Scenario({Host.WORKING: pace})
        before = given.takes_ns(change)
        gone = self._less([(rows, 1.0)]) > 0
        after = replace(
            self._without(given, times, 1.0),
            work_ns=np.where(gone, 0.0, given.work_ns),
            delay_ns=np.where(gone, 0.0, given.delay_ns),
            lag_ns=np.where(gone, -np.inf, given.lag_ns),
        )
        began = self._host.begin_ns[given.wait_call]
        after = after.waiting(covered_ns(times, began, began + 1) == 0)
        return max(1.0 - after.takes_ns(change) / before, 0.0) if before > 0 else 0.0

    def _without(self, given: Timeline, times: Intervals, share: float) -> Timeline:
        """Return the timeline with so much less of these times, but for the host's waits."""
        times = without(times, given.not_working)
        away = both(times, given.away)
        launch, wait = given.launch_ns.copy(), given.wait_ns.copy()
        for host, until_ns in (
            (launch, self._launched.begin_ns[given.rows]),
            (wait, self._host.begin_ns[given.wait_call]),
        ):
            of_away = share * _within(away, until_ns)
            host[Host.AWAY] -= of_away
            host[Host.WORKING] -= share * _within(times, until_ns) - of_away
        return replace(given, launch_ns=launch, wait_ns=wait)

    def _less(self, spared: Spared) -> FloatArray:
        """Return which share of each piece of work is saved."""
        less = np.zeros(len(self._timeline.rows) + 1)
        if spared:
            rows = np.concatenate([np.asarray(rows, np.int64) for rows, _ in spared])
            less[self._place[rows]] = np.repeat(
                [share for _, share in spared], [len(rows) for rows, _ in spared]
            )
        return less[:-1]


def faster_kernels(
    timeline: Timeline | None, launched: LaunchingCalls, host: Calls, rows: int
) -> FasterKernels | None:
    """Return what plays a run with faster kernels, of so many rows of device work."""
    if timeline is None:
        return None
    place = np.full(rows, len(timeline.rows), np.int64)
    place[timeline.rows] = np.arange(len(timeline.rows))
    return FasterKernels(timeline, place, launched, host)


def _within(times: Intervals, until_ns: IntArray) -> IntArray:
    """Return how much of some times lies before others."""
    return covered_ns(times, np.full(len(until_ns), -(2**60), np.int64), until_ns)
