"""Why a device did not compute: each gap between its kernels, split by cause.

Looked at is the time of the run in which no kernel runs on a device. Where copies or memsets run in
it, that is `copying`. The rest is idle, gap by gap: what ended it is the next kernel or copy, which
a call of some thread of the host launched. Then, up to the end of that call:

- where the process does what a run does once (`facts.starting`): `starting`,
- where the profiler itself is at work: `profiler`,

and else, before that call:

- in a DataLoader's `__next__` on that thread: `waiting_for_data`,
- else, in a call that allocates or frees the device's memory: `allocating`,
- else, where that thread was in a call that waits for the device (synchronise, a blocking copy or
  free) when the gap began: `synchronizing`, for the queue ran empty because the host waited; but
  what it does besides launching is not, where that takes longer than `PAUSE_NS`,
- else, where that is most of the gap before the call: `allocating` as well, while launching,
- else, where its process is busy launching: `launching`, as the host works at its pace but the
  device is done sooner. It is busy in calls that give a device work and in the operators that make
  such calls directly, and between these where they follow each other within `HOST_PACE_NS`,
- else `other_host`: Python and whatever else the script does between launches; `not_recorded` in
  a profile without anything of the host but its calls into CUDA;

from the begin of that call to its end and the time a device needs to begin: `launching`, or
`synchronizing` or `allocating` as before it, for else it had been launched earlier; and after that
`device`: what was launched did not begin, and nothing tells why. Where no call was recorded it is
`unknown`. Pages of managed memory move as the host or a kernel touches them, and nothing launches
that: the time that a page fault takes before them (`FAULT_NS`) is `migrating`, and what is before
that is the host's own work (`other_host`), where no thread starts something or allocates. What is
no longer than a device needs to begin is neither: `between_kernels`. After the last work of a
device the rest of the run is `starting` or `allocating` where a thread that launches does that, and
else `finished`. Without ranges (Nsight Systems without NVTX) nothing is `waiting_for_data`, which
is then part of `other_host`.

The causes exclude each other and sum to the time without a kernel exactly.

The launching in a gap is blamed on a wait in which it began, as nothing was queued behind it;
`host_idle` tells what the host did at each moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, CallKind
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    both,
    by_key,
    covered_ns,
    either,
    gaps,
    none,
    numbered,
    union,
    without,
)
from gpuadvisor.rules.facts.launches import BLOCKING, ENQUEUING, Calls, LaunchingCalls
from gpuadvisor.rules.facts.loading import Waits
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.starting import Starting

NEVER = none()

HOST_PACE_NS = 100_000
"""Pauses between two launches of eager PyTorch are shorter: 90 % of them below 42 to 142 us in
traces of V100, A100, H100 and MI300X hosts, operators included."""
PAUSE_NS = 1_000_000
"""Longest pause between two launches that is the framework's, which a profiler makes longer as well
(up to 0.44 ms around backward passes and optimizers under Kineto on an H200's host, of a step that
takes 0.3 ms without it). [own]"""
REACH_NS = 5_000
"""A kernel begins on an idle device so soon after its call returned: 95 % within 2.1 us on an H100
and 3 us on a V100 and an A100. Other devices need longer (`reach_ns`)."""
USUAL_TIMES = 2
"""A kernel begins on an idle device within so many times the median of its trace: in traces of six
kinds of GPU, of NVIDIA and AMD, 90 % begin within 0.9 to 2 times a median of 1.1 to 24 us."""
RESOLUTION_NS = 2_000
"""Traces of whole microseconds cut off both begin and duration."""
FAULT_NS = 50_000
"""Time to handle a page fault of a GPU, at most: 20 to 50 us (T. Zheng et al., "Towards High
Performance Paged Memory for GPUs", HPCA 2016). Who touches a page waits no longer before it moves:
the time before that is its own."""
AGAIN = 3
"""Times that something has to come to be what a program does again and again: of two times, the
first and the last, nothing tells which one is usual."""
MOST_GAPS = 20
"""Listed by themselves, the longest ones."""


class Cause(StrEnum):
    """Why no kernel runs."""

    COPYING = "copying"
    LAUNCHING = "launching"
    WAITING_FOR_DATA = "waiting_for_data"
    SYNCHRONIZING = "synchronizing"
    ALLOCATING = "allocating"
    OTHER_HOST = "other_host"
    STARTING = "starting"
    PROFILER = "profiler"
    MIGRATING = "migrating"
    """From when the CPU touched pages of managed memory until they moved."""
    BETWEEN_KERNELS = "between_kernels"
    FINISHED = "finished"
    NOT_RECORDED = "not_recorded"
    """Between calls into CUDA, where nothing else of the host was recorded."""
    DEVICE = "device"
    UNKNOWN = "unknown"


IDLE_CAUSES = tuple(cause for cause in Cause if cause is not Cause.COPYING)
NOT_BEGUN = (Cause.DEVICE, Cause.UNKNOWN)
"""Causes that are none for all that the trace shows of calls and devices."""
UNEXPLAINED = (Cause.NOT_RECORDED, *NOT_BEGUN)
"""Causes that are none: what the trace shows does not tell why the device was idle."""
_ALLOCATING = np.array((CallKind.ALLOCATE, CallKind.FREE), np.int8)


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


@dataclass(frozen=True, eq=False)
class Gaps:
    """The gaps of a device and how long each had which cause."""

    times: Intervals
    before: IntArray
    """Row of the work that ended last; UNKNOWN where nothing had run."""
    after: IntArray
    """Row of the work that began then, if possible one of known call."""
    causes_ns: npt.NDArray[np.int64]
    """A row for each gap, a column for each of `IDLE_CAUSES`."""


def launching_times(
    host: Calls, launching: Operators, pause_ns: int = HOST_PACE_NS
) -> dict[int, Intervals]:
    """Return when each process was busy launching, with pauses of at most that time."""
    calls = np.flatnonzero(host.of_kinds(ENQUEUING))
    owner = launching.of_call[calls]
    called = owner != UNKNOWN
    begin = np.concatenate((host.begin_ns[calls], launching.begin_ns[owner[called]]))
    end = np.concatenate((host.end_ns[calls], launching.end_ns[owner[called]]))
    process = np.concatenate((host.process[calls], host.process[calls][called]))
    longer = {key: union(begin[at], end[at] + pause_ns) for key, at in by_key(process)}
    return {key: Intervals(each.begin_ns, each.end_ns - pause_ns) for key, each in longer.items()}


def launching_at(
    host: Calls, launching: Operators, call: IntArray, pause_ns: int = HOST_PACE_NS
) -> Intervals:
    """Return when at least one of the processes that made some calls was busy launching."""
    times, found = launching_times(host, launching, pause_ns), none()
    for process in np.unique(host.process[call]).tolist():
        found = either(found, times.get(process, NEVER))
    return found


def idle(
    work: DeviceWork,
    host: Calls,
    launched: LaunchingCalls,
    launching: Operators,
    waits: Waits,
    starting: Starting,
    host_recorded: bool,
    span: tuple[int, int],
) -> tuple[IdleTime, ...]:
    """Return why each device did not compute between two times, none for devices on which nothing
    ran; all work of the devices lies between them.

    `host_recorded` says whether anything of the host was recorded but its calls into CUDA."""
    threads = _Threads(host, launching_times(host, launching), waits, starting, host_recorded)
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
    host: Calls,
    launched: LaunchingCalls,
    launching: Operators,
    waits: Waits,
    starting: Starting,
    host_recorded: bool,
    begin_ns: int,
    shortest_ns: int,
) -> Iterator[tuple[int, int, Iterator[IdleGap]]]:
    """Yield each device's number, how many of its gaps are shorter, and the others in time order,
    from the run's begin to the device's last work.

    They are described one by one, as they are asked for: a profile may have a million.
    """
    parts = work, host, launched, launching, waits, starting, host_recorded, begin_ns
    for device, found in split_gaps(*parts):
        places = np.flatnonzero(found.times.end_ns - found.times.begin_ns >= shortest_ns)
        described = (_gap(work, host, launched, found, place) for place in places.tolist())
        yield device, len(found.times) - len(places), described


def split_gaps(
    work: DeviceWork,
    host: Calls,
    launched: LaunchingCalls,
    launching: Operators,
    waits: Waits,
    starting: Starting,
    host_recorded: bool,
    begin_ns: int,
) -> Iterator[tuple[int, Gaps]]:
    """Yield each device's number and its gaps with their causes, from the run's begin to the
    device's last work."""
    threads = _Threads(host, launching_times(host, launching), waits, starting, host_recorded)
    reach = reach_ns(work, launched)
    for device, rows in work.lasting_by_device():
        ran = work.intervals(rows)
        times = gaps(ran, begin_ns, ran.span[1])
        yield device, _split(work, launched, threads, rows, times, reach)


class _Threads:
    """What the threads of the host waited for."""

    def __init__(
        self,
        host: Calls,
        launching: Mapping[int, Intervals],
        waits: Waits,
        starting: Starting,
        recorded: bool,
    ) -> None:
        self.host = host
        self.recorded = recorded
        self.starting = starting
        self.launching = launching
        self.rows = dict(by_key(host.thread_key))
        self.waits = waits
        self.blocking = host.of_kinds(BLOCKING)

    def waits_for_data(self, key: int) -> Intervals:
        row = self.rows[key][0]
        name = int(self.host.process[row]), int(self.host.thread[row])
        return self.waits.get(name, NEVER)

    def launches(self, key: int) -> Intervals:
        return self.launching.get(int(self.host.process[self.rows[key][0]]), NEVER)

    def starts(self, key: int) -> Intervals:
        return self.starting.once.get(int(self.host.process[self.rows[key][0]]), NEVER)

    @cached_property
    def start_any(self) -> Intervals:
        found = none()
        for times in self.starting.once.values():
            found = either(found, times)
        return found

    @cached_property
    def allocate_any(self) -> Intervals:
        rows = np.isin(self.host.kind, _ALLOCATING)
        return union(self.host.begin_ns[rows], self.host.end_ns[rows])

    def allocates(self, key: int) -> Intervals:
        rows = self.rows[key]
        rows = rows[np.isin(self.host.kind[rows], _ALLOCATING)]
        return union(self.host.begin_ns[rows], self.host.end_ns[rows])

    def allocating_within(self, keys: IntArray, begin_ns: int, end_ns: int) -> int:
        """Return for how long between two times a thread among some handled memory, and no process
        did what a run does once."""
        found = none()
        for key in np.unique(keys).tolist():
            found = either(found, self.allocates(key))
        left = without(found, self.start_any)
        return int(covered_ns(left, np.array([begin_ns]), np.array([end_ns]))[0])

    def waits_for_device(self, key: int) -> Intervals:
        rows = self.rows[key]
        rows = rows[self.blocking[rows]]
        return union(self.host.begin_ns[rows], self.host.end_ns[rows] + RESOLUTION_NS)


def _of_device(
    work: DeviceWork,
    launched: LaunchingCalls,
    threads: _Threads,
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
    found = _split(work, launched, threads, rows, without(no_kernel, copies), reach)
    totals = dict(zip(IDLE_CAUSES, found.causes_ns.sum(axis=0).tolist(), strict=True))
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
        for number, (cause, place) in enumerate(zip(IDLE_CAUSES, most, strict=False))
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
    idle = idle - found.causes_ns[:, IDLE_CAUSES.index(Cause.WAITING_FOR_DATA)]
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


def _split(
    work: DeviceWork,
    launched: LaunchingCalls,
    threads: _Threads,
    rows: IntArray,
    times: Intervals,
    reach: int,
) -> Gaps:
    before, after = _neighbours(work, launched, rows, times)
    all_causes = np.zeros((len(IDLE_CAUSES), len(times)), np.int64)
    causes: dict[Cause, IntArray] = dict(zip(IDLE_CAUSES, all_causes, strict=True))
    known = launched.known[after]
    length = times.end_ns - times.begin_ns
    moved = ~known & work.is_migration[after]
    _blame_pages(causes, threads, times, np.flatnonzero(moved))
    causes[Cause.UNKNOWN][~known & ~moved] = length[~known & ~moved]
    gap = np.flatnonzero(known)
    for key, at in by_key(launched.thread_key[after[gap]]):
        _blame(causes, launched, threads, key, times, after, gap[at], reach)
    if not threads.recorded:
        causes[Cause.NOT_RECORDED] += causes[Cause.OTHER_HOST]
        causes[Cause.OTHER_HOST][:] = 0
    for cause in NOT_BEGUN:
        short = causes[cause] <= reach
        causes[Cause.BETWEEN_KERNELS] += np.where(short, causes[cause], 0)
        causes[cause][short] = 0
    return Gaps(times, before, after, all_causes.T)


def _blame_pages(
    causes: Mapping[Cause, IntArray], threads: _Threads, times: Intervals, gap: IntArray
) -> None:
    """Split the gaps that pages of managed memory ended: which thread touched them is not known."""
    begin, end = times.begin_ns[gap], times.end_ns[gap]
    touched = np.maximum(end - FAULT_NS, begin)
    causes[Cause.MIGRATING][gap] = end - touched
    rest, taken = touched - begin, none()
    for cause, found in (
        (Cause.STARTING, threads.start_any),
        (Cause.ALLOCATING, threads.allocate_any),
    ):
        mine = without(found, taken)
        taken = either(taken, mine)
        took = covered_ns(mine, begin, touched)
        causes[cause][gap] = took
        rest = rest - took
    causes[Cause.OTHER_HOST][gap] = rest


def _neighbours(
    work: DeviceWork, launched: LaunchingCalls, rows: IntArray, times: Intervals
) -> tuple[IntArray, IntArray]:
    """Return what ended last before each gap, UNKNOWN before all work, and what began after it, if
    possible of known call."""
    by_end = rows[np.lexsort((work.begin_ns[rows], work.end_ns[rows]))]
    last = np.searchsorted(work.end_ns[by_end], times.begin_ns, "right") - 1
    # Of several that began at once the order in the file must not decide.
    ties = (launched.thread_key, launched.end_ns, launched.begin_ns, ~launched.known)
    by_begin = rows[np.lexsort((*(each[rows] for each in ties), work.begin_ns[rows]))]
    first = np.searchsorted(work.begin_ns[by_begin], times.end_ns, "left")
    return np.where(last >= 0, by_end[last], UNKNOWN), by_begin[first]


def _blame(
    causes: Mapping[Cause, IntArray],
    launched: LaunchingCalls,
    threads: _Threads,
    key: int,
    times: Intervals,
    after: IntArray,
    gap: IntArray,
    reach: int,
) -> None:
    """Split the gaps that a thread's launches ended."""
    begin, end, ended_by = times.begin_ns[gap], times.end_ns[gap], after[gap]
    called = np.clip(launched.begin_ns[ended_by], begin, end)
    reached = np.clip(launched.end_ns[ended_by] + reach, called, end)
    causes[Cause.DEVICE][gap] += end - reached
    rest, calling, taken = called - begin, reached - called, none()
    for cause, times_of in (
        (Cause.STARTING, threads.starts(key)),
        (Cause.PROFILER, threads.starting.profiler),
        (Cause.WAITING_FOR_DATA, threads.waits_for_data(key)),
        (Cause.ALLOCATING, threads.allocates(key)),
    ):
        if not len(times_of):
            continue
        mine = without(times_of, taken)
        taken = either(taken, mine)
        before = covered_ns(mine, begin, called)
        causes[cause][gap] += before
        rest = rest - before
        if cause in (Cause.STARTING, Cause.PROFILER):
            meanwhile = covered_ns(mine, called, reached)
            causes[cause][gap] += meanwhile
            calling = calling - meanwhile
    waited = covered_ns(threads.waits_for_device(key), begin, begin + 1) > 0
    at_work = covered_ns(without(threads.launches(key), taken), begin, called)
    other = rest - at_work
    # What a host does for long after it waited is slow for itself, not for the wait.
    for_wait = np.where(other <= PAUSE_NS, rest, at_work)
    # Without the wait or the allocation, what ended the gap would have been launched before it.
    allocated = ~waited & (2 * causes[Cause.ALLOCATING][gap] > called - begin)
    causes[Cause.SYNCHRONIZING][gap] += np.where(waited, for_wait + calling, 0)
    causes[Cause.ALLOCATING][gap] += np.where(allocated, at_work + calling, 0)
    causes[Cause.LAUNCHING][gap] += np.where(waited | allocated, 0, at_work + calling)
    causes[Cause.OTHER_HOST][gap] += np.where(waited, rest - for_wait, other)


def _gap(
    work: DeviceWork,
    host: Calls,
    launched: LaunchingCalls,
    found: Gaps,
    place: int,
    cause: Cause | None = None,
) -> IdleGap:
    """Describe a gap, with one of its causes or the largest one."""
    largest = int(found.causes_ns[place].argmax()) if cause is None else IDLE_CAUSES.index(cause)
    begin, end = int(found.times.begin_ns[place]), int(found.times.end_ns[place])
    before, after = int(found.before[place]), int(found.after[place])
    call = int(launched.call[after])
    return IdleGap(
        begin,
        end - begin,
        IDLE_CAUSES[largest],
        int(found.causes_ns[place][largest]),
        work.describe(before) if before != UNKNOWN else "",
        work.describe(after),
        "" if call == UNKNOWN else work.texts[host.name[call]],
    )
