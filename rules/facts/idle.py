"""When no kernel ran on a device, and why: the gaps between its kernels, and those that are alike.

How a gap is split by cause stands in `idle_causes`; what the host did meanwhile in `host_idle`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle_causes import NEVER, Cause, Gaps, Threads, split
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    both,
    by_key,
    either,
    gaps,
    none,
    numbered,
    union,
    without,
)
from gpuadvisor.rules.facts.launches import ENQUEUING, Calls, LaunchingCalls
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.starting import long_before
from gpuadvisor.rules.facts.time_breakdown import IDLE

HOST_PACE_NS = 100_000
"""Pauses between two launches of eager PyTorch are shorter: 90 % of them below 42 to 142 us in
traces of V100, A100, H100 and MI300X hosts, operators included."""
REACH_NS = 5_000
"""A kernel begins on an idle device so soon after its call returned: 95 % within 2.1 us on an H100
and 3 us on a V100 and an A100. Other devices need longer (`reach_ns`)."""
USUAL_TIMES = 2
"""A kernel begins on an idle device within so many times the median of its trace: in traces of six
kinds of GPU, of NVIDIA and AMD, 90 % begin within 0.9 to 2 times a median of 1.1 to 24 us."""
AGAIN = 3
"""Times that something has to come to be what a program does again and again: of two times, the
first and the last, nothing tells which one is usual."""
MOST_GAPS = 20
"""Listed by themselves, the longest ones."""


@dataclass(frozen=True)
class Alike:
    """Gaps between the same kinds of work as one of them, with at least half as much of a cause."""

    count: int
    shortest_ns: int
    longest_ns: int
    cause_ns: int
    """Time of the cause in all of them."""


@dataclass(frozen=True)
class IdleGap:
    """A stretch in which nothing runs."""

    begin_ns: int
    duration_ns: int
    cause: Cause
    """The cause with the largest part, unless one was asked for."""
    cause_ns: int
    """Time of that cause."""
    before: str
    """What ended last, for people; empty where nothing had run."""
    after: str
    """What began after the gap, for people."""
    launched_by: str
    """The call that launched what began then; empty where it was not recorded."""
    alike: Alike | None = None
    """This gap and those like it; None where they come fewer than `AGAIN` times."""


@dataclass(frozen=True)
class IdleTime:
    """Why one device did not compute, and its longest gaps."""

    device: int
    without_kernel_ns: int
    causes_ns: Mapping[Cause, int]
    """Time of every cause; the sum is `without_kernel_ns`."""
    gaps: int
    """Number of stretches in which nothing runs."""
    longest: tuple[IdleGap, ...]
    longest_of: Mapping[Cause, IdleGap]
    """The gap with most time of each cause that has some."""
    once_ns: int = 0
    """Idle time, without waiting for data, between two kinds of work that follow each other fewer
    than `AGAIN` times: of events that come once, and not of a loop."""
    seldom_ns: int = 0
    """The same, and by how much other gaps are longer than the third longest (`AGAIN`) between the
    same two kinds of work: of a kind and length that come once or twice."""

    @property
    def idle_ns(self) -> int:
        """Time in which nothing runs at all."""
        return self.without_kernel_ns - self.causes_ns[Cause.COPYING]


def launching_times(
    host: Calls, launching: Operators, pause_ns: int = HOST_PACE_NS
) -> dict[int, Intervals]:
    """Return when each process was busy launching, with pauses of at most that time.

    Operators that launch do so all of their time, but for what they compute or load for long
    before.
    """
    calls = np.flatnonzero(host.of_kinds(ENQUEUING))
    owner = launching.of_call[calls]
    called = owner != UNKNOWN
    begin = np.concatenate((host.begin_ns[calls], launching.begin_ns[owner[called]]))
    end = np.concatenate((host.end_ns[calls], launching.end_ns[owner[called]]))
    process = np.concatenate((host.process[calls], host.process[calls][called]))
    late, since = long_before(host, launching)
    found = {}
    for key, at in by_key(process):
        longer = union(begin[at], end[at] + pause_ns)
        mine = host.process[late] == key
        found[key] = without(
            Intervals(longer.begin_ns, longer.end_ns - pause_ns),
            union(since[mine], host.begin_ns[late[mine]]),
        )
    return found


def launching_at(
    host: Calls, launching: Operators, call: IntArray, pause_ns: int = HOST_PACE_NS
) -> Intervals:
    """Return when at least one of the processes that made some calls was busy launching."""
    times, found = launching_times(host, launching, pause_ns), none()
    for process in np.unique(host.process[call]).tolist():
        found = either(found, times.get(process, NEVER))
    return found


def idle(
    work: DeviceWork, launched: LaunchingCalls, threads: Threads, span: tuple[int, int]
) -> tuple[IdleTime, ...]:
    """Return why each device did not compute between two times, none for devices on which nothing
    ran; all work of the devices lies between them."""
    reach = reach_ns(work, launched)
    return tuple(
        _of_device(work, launched, threads, device, rows, span, reach)
        for device, rows in work.lasting_by_device()
    )


def reach_ns(work: DeviceWork, launched: LaunchingCalls) -> int:
    """Return how soon a kernel begins on an idle device of this trace after its call returned."""
    longest = REACH_NS
    for _, rows in work.lasting_by_device():
        rows = rows[launched.known[rows]]
        rows = rows[np.argsort(work.begin_ns[rows], kind="stable")]
        reached = np.maximum.accumulate(work.end_ns[rows])
        idle = rows[1:][launched.begin_ns[rows[1:]] >= reached[:-1]]
        if len(idle):
            usual = float(np.median(work.begin_ns[idle] - launched.end_ns[idle]))
            longest = max(longest, min(int(USUAL_TIMES * usual), HOST_PACE_NS))
    return longest


def idle_gaps(
    work: DeviceWork,
    launched: LaunchingCalls,
    threads: Threads,
    begin_ns: int,
    shortest_ns: int,
) -> Iterator[tuple[int, int, Iterator[IdleGap]]]:
    """Yield each device's number, how many of its gaps are shorter, and the others in time order,
    from the run's begin to the device's last work.

    They are described one by one, as they are asked for: a profile may have a million.
    """
    for device, found in split_gaps(work, launched, threads, begin_ns):
        places = np.flatnonzero(found.times.end_ns - found.times.begin_ns >= shortest_ns)
        described = (_gap(work, threads.host, launched, found, place) for place in places.tolist())
        yield device, len(found.times) - len(places), described


def split_gaps(
    work: DeviceWork, launched: LaunchingCalls, threads: Threads, begin_ns: int
) -> Iterator[tuple[int, Gaps]]:
    """Yield each device's number and its gaps with their causes, from the run's begin to the
    device's last work."""
    reach = reach_ns(work, launched)
    for device, rows in work.lasting_by_device():
        ran = work.intervals(rows)
        times = gaps(ran, begin_ns, ran.span[1])
        yield device, split(work, launched, threads, rows, times, reach)


def _of_device(
    work: DeviceWork,
    launched: LaunchingCalls,
    threads: Threads,
    device: int,
    rows: IntArray,
    span: tuple[int, int],
    reach: int,
) -> IdleTime:
    kernels = work.intervals(rows[work.is_kernel[rows]])
    copies = work.intervals(rows[~work.is_kernel[rows]])
    done = int(work.end_ns[rows].max())
    no_kernel = gaps(kernels, span[0], done)
    copying = both(no_kernel, copies)
    found = split(work, launched, threads, rows, without(no_kernel, copies), reach)
    totals = dict(zip(IDLE, found.causes_ns.sum(axis=0).tolist(), strict=True))
    once = threads.starting.all_within(done, span[1])
    keys = launched.thread_key[rows[launched.known[rows]]]
    allocating = threads.allocating_within(keys, done, span[1])
    totals[Cause.STARTING] += once
    totals[Cause.ALLOCATING] += allocating
    totals[Cause.FINISHED] += span[1] - done - once - allocating
    length = found.times.end_ns - found.times.begin_ns
    listed = np.argsort(-length, kind="stable")[:MOST_GAPS].tolist()
    host = threads.host
    most = found.causes_ns.argmax(axis=0).tolist() if len(length) else []
    pair = _pairs(work, found)
    longest_of: dict[Cause, IdleGap] = {
        cause: replace(
            _gap(work, host, launched, found, place, cause),
            alike=_alike(found, pair, number, place),
        )
        for number, (cause, place) in enumerate(zip(IDLE, most, strict=False))
        if found.causes_ns[place][number]
    }
    return IdleTime(
        device,
        no_kernel.total_ns + span[1] - done,
        {Cause.COPYING: copying.total_ns, **totals},
        len(found.times),
        tuple(_gap(work, host, launched, found, place) for place in listed),
        longest_of,
        *_once_ns(found, pair),
    )


def _pairs(work: DeviceWork, found: Gaps) -> IntArray:
    """Return a number for the kinds of work before and after each gap together."""
    _, before = numbered(_what(work, found.before))
    others, after = numbered(_what(work, found.after))
    return numbered(before * len(others) + after)[1]


def alike_counts(work: DeviceWork, found: Gaps) -> IntArray:
    """Return how many gaps between the same kinds of work are at least half as long as each one,
    itself among them."""
    pair, lasts = _pairs(work, found), found.times.end_ns - found.times.begin_ns
    counts = np.zeros(len(pair), np.int64)
    for _, at in by_key(pair):
        ordered = np.sort(2 * lasts[at])
        counts[at] = len(at) - np.searchsorted(ordered, lasts[at], "left")
    return counts


def _alike(found: Gaps, pair: IntArray, cause: int, place: int) -> Alike | None:
    """Return the gaps like one of them, with a cause by its number."""
    lost = found.causes_ns[:, cause]
    mine = np.flatnonzero((pair == pair[place]) & (2 * lost >= lost[place]))
    if len(mine) < AGAIN:
        return None
    lasts = found.times.end_ns[mine] - found.times.begin_ns[mine]
    return Alike(len(mine), int(lasts.min()), int(lasts.max()), int(lost[mine].sum()))


def _once_ns(found: Gaps, pair: IntArray) -> tuple[int, int]:
    """Return the time, without waiting for data, of gaps of a kind that seldom comes, and of those
    of a kind and length that seldom come."""
    if not len(found.times):
        return 0, 0
    idle = found.times.end_ns - found.times.begin_ns
    idle = idle - found.causes_ns[:, IDLE.index(Cause.WAITING_FOR_DATA)]
    order = np.lexsort((-idle, pair))
    count = np.bincount(pair)
    first = np.cumsum(count) - count
    usual = np.zeros(len(count), np.int64)
    again = np.flatnonzero(count >= AGAIN)
    usual[again] = idle[order[first[again] + AGAIN - 1]]
    longer = np.maximum(idle - usual[pair], 0)
    return int(idle[count[pair] < AGAIN].sum()), int(longer.sum())


def _what(work: DeviceWork, rows: IntArray) -> IntArray:
    """Return a number for what each row is: a kernel's name or a copy's direction."""
    what = work.name[rows].astype(np.int64)
    copies = np.flatnonzero(rows >= work.kernels)
    what[copies] = -2 - work.copies["direction"][rows[copies] - work.kernels].astype(np.int64)
    what[rows == UNKNOWN] = UNKNOWN
    return what


def _gap(
    work: DeviceWork,
    host: Calls,
    launched: LaunchingCalls,
    found: Gaps,
    place: int,
    cause: Cause | None = None,
) -> IdleGap:
    """Describe a gap, with one of its causes or the largest one."""
    largest = int(found.causes_ns[place].argmax()) if cause is None else IDLE.index(cause)
    begin, end = int(found.times.begin_ns[place]), int(found.times.end_ns[place])
    before, after = int(found.before[place]), int(found.after[place])
    call = int(launched.call[after])
    return IdleGap(
        begin,
        end - begin,
        IDLE[largest],
        int(found.causes_ns[place][largest]),
        work.describe(before) if before != UNKNOWN else "",
        work.describe(after),
        "" if call == UNKNOWN else work.texts[host.name[call]],
    )
