"""From what was recorded to a timeline that can be played again (`playback`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Call, Direction, Memory
from gpuadvisor.rules.facts.calls import Calls, Launches
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import (
    HOST_PACE_NS,
    REACH_NS,
    RESOLUTION_NS,
    Waits,
    launching_times,
)
from gpuadvisor.rules.facts.intervals import (
    Intervals,
    Mask,
    Whole,
    covered_ns,
    either,
    none,
    one,
    union,
    without,
)
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.what_if import Host, Real, Timeline

FETCH_BYTES = 1 << 20
"""Of a copy to the host of at most so many (`.item()`, predictions) the wait costs, not the copy,
which takes 0.1 ms at the most."""
PAUSE_NS = 1_000_000
"""Between two launches: up to so long it is the framework's, which a profiler makes longer as well
(up to 0.44 ms around backward passes and optimizers under Kineto on an H200's host, of a step that
takes 0.3 ms without it). [own]"""
_CALLS = {
    Host.SYNCHRONIZING: (Call.SYNCHRONIZE,),
    Host.ALLOCATING: (Call.ALLOCATE, Call.FREE),
}


def timeline(
    work: DeviceWork,
    host: Calls,
    launched: Launches,
    launching: Operators,
    waits: Waits,
    begin_ns: int,
) -> Timeline | None:
    """Return the part of the device with most work; None where nothing tells what launched it."""
    rows = max((rows for _, rows in work.lasting_by_device()), key=len, default=None)
    if rows is None or not launched.known[rows].any():
        return None
    rows = rows[np.lexsort((work.end_ns[rows], work.begin_ns[rows]))]
    begin, end = work.begin_ns[rows], work.end_ns[rows]
    known, call = launched.known[rows], launched.call[rows]
    reached = np.maximum.accumulate(np.concatenate(([begin_ns], end)))
    before, after = reached[:-1], reached[1:]
    called = np.where(known, launched.begin_ns[rows], begin_ns)
    blocked = _blocked(work, host, rows, call, end)
    lag = np.clip(begin - called, 0, launched.end_ns[rows] - called + REACH_NS)
    staged = np.isin(call, blocked.call) & known & (before > called)
    lag = np.where(staged, np.minimum(np.maximum(begin - before, 0), lag), lag)
    could = np.maximum(before, np.where(known, called + lag, begin_ns))
    times = _host_times(host, call[known], launching, waits, blocked)
    return Timeline(
        device=int(work.device[rows[0]]),
        begin_ns=begin_ns,
        not_working=times.taken,
        away=times.away(begin_ns, int(max(end.max(), host.end_ns.max(initial=begin_ns)))),
        rows=rows,
        work_ns=np.maximum(end - np.maximum(begin, before), 0).astype(np.float64),
        delay_ns=np.maximum(begin - could, 0).astype(np.float64),
        pageable=_pageable(work, rows),
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
class _Blocked:
    """Calls in which the host waited for the device, in their order; none within another."""

    begin_ns: Whole
    end_ns: Whole
    kind: Whole
    row: Whole
    call: Whole


def _pageable(work: DeviceWork, rows: Whole) -> Mask:
    found = np.zeros(len(rows), np.bool_)
    copies = np.flatnonzero(rows >= work.kernels)
    number = rows[copies] - work.kernels
    source, destination = work.copies["source"][number], work.copies["destination"][number]
    found[copies] = (source == Memory.PAGEABLE) | (destination == Memory.PAGEABLE)
    return found


def _blocked(work: DeviceWork, host: Calls, rows: Whole, call: Whole, end: Whole) -> _Blocked:
    """Return the calls that came back just after what they waited for was done."""
    kind, own = _waiting_kinds(work, host, rows, call)
    threads = np.unique(host.thread_key[call[call != UNKNOWN]])
    chosen = np.flatnonzero((kind != UNKNOWN) & np.isin(host.thread_key, threads))
    chosen = chosen[np.argsort(host.begin_ns[chosen], kind="stable")]
    begin, stop = host.begin_ns[chosen], host.end_ns[chosen]
    finished = np.argsort(end, kind="stable")
    last = np.searchsorted(end[finished], stop + RESOLUTION_NS, "right") - 1
    row = np.where(own[chosen] != UNKNOWN, own[chosen], finished[np.maximum(last, 0)])
    outermost = np.ones(len(chosen), np.bool_)
    outermost[1:] = begin[1:] >= np.maximum.accumulate(stop)[:-1]
    came_back = (last >= 0) & (end[row] > begin) & (end[row] <= stop + RESOLUTION_NS)
    # Of pageable memory the host moves the last bytes itself, and comes back a little earlier.
    staged = (own[chosen] != UNKNOWN) & _pageable(work, rows)[row]
    waited = (came_back | staged) & outermost
    return _Blocked(begin[waited], stop[waited], kind[chosen][waited], row[waited], chosen[waited])


def _waiting_kinds(work: DeviceWork, host: Calls, rows: Whole, call: Whole) -> tuple[Whole, Whole]:
    """Return as what each call may wait for the device, UNKNOWN for those that do not; and for what
    of it, UNKNOWN where that is all before."""
    kind, own = np.full(len(host), UNKNOWN, np.int64), np.full(len(host), UNKNOWN, np.int64)
    kind[host.kind == Call.SYNCHRONIZE] = Host.SYNCHRONIZING
    kind[host.kind == Call.FREE] = Host.ALLOCATING
    copies = np.flatnonzero((rows >= work.kernels) & (call != UNKNOWN))
    copies = copies[host.kind[call[copies]] == Call.COPY]
    number = rows[copies] - work.kernels
    to_host = work.copies["direction"][number] == Direction.DEVICE_TO_HOST
    fetches = to_host & (work.copies["bytes"][number] <= FETCH_BYTES)
    waits = np.flatnonzero(to_host | _pageable(work, rows)[copies])
    kind[call[copies[waits]]] = np.where(fetches, Host.SYNCHRONIZING, Host.COPYING)[waits]
    own[call[copies[waits]]] = copies[waits]
    after = _right_after(host, kind == Host.COPYING)
    kind[after] = Host.COPYING
    return kind, own


def _right_after(host: Calls, copying: Mask) -> Whole:
    """Return the synchronisations that belong to a copy: PyTorch waits for its stream after each
    copy of pageable memory."""
    order = np.lexsort((host.begin_ns, host.thread_key))
    order = order[(host.kind[order] != Call.OTHER) & (host.kind[order] != Call.EVENT)]
    before, after = order[:-1], order[1:]
    follows = (host.thread_key[before] == host.thread_key[after]) & copying[before]
    soon = host.begin_ns[after] - host.end_ns[before] <= HOST_PACE_NS
    found: Whole = after[follows & soon & (host.kind[after] == Call.SYNCHRONIZE)]
    return found


@dataclass(frozen=True, eq=False)
class _Times:
    """When the threads that launch did what."""

    kinds: Mapping[Host, Intervals]
    taken: Intervals
    """By these and by waiting for the device."""
    working: Intervals
    """The part of the rest that is launching."""

    def before(self, begin_ns: int, until_ns: Whole) -> Real:
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
    host: Calls, call: Whole, launching: Operators, waits: Waits, blocked: _Blocked
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
    busy, working = launching_times(host, launching, PAUSE_NS), none()
    for process in np.unique(host.process[call]).tolist():
        working = either(working, busy.get(process, none()))
    return _Times(found, taken, without(working, taken))
