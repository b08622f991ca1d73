"""Why a device did not compute: a gap between its kernels, split by cause.

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
- else `other_host`: Python and whatever else the script does between launches; of a profile
  without anything of the host but its calls into CUDA only the time in such calls, and the rest is
  `not_recorded`;

from the begin of that call to its end and the time a device needs to begin: `launching`, or
`synchronizing` or `allocating` as before it, for else it had been launched earlier; and after that
`device`: what was launched did not begin, and nothing tells why; `starting` where the call itself
was, a first launch that brings its kernel's code. Where no call was recorded it is `unknown`, as is
what comes before all that was recorded of the host: its recording began while the device still had
work of before, and what the host did until then (start the profiler, at least) is not known. Pages
of managed memory move as the host or a kernel touches them, and nothing launches that: the time
that a page fault takes before them (`FAULT_NS`) is `migrating`, and what is before that is the
host's own work (`other_host`), where no thread starts something or allocates. What is no longer
than a device needs to begin is neither: `between_kernels`. After the last work of a device the rest
of the run is `starting` or `allocating` where a thread that launches does that, and else
`finished`. Without ranges (Nsight Systems without NVTX) nothing is `waiting_for_data`, which is
then part of `other_host`.

The causes exclude each other and sum to the time without a kernel exactly.

The launching in a gap is blamed on a wait in which it began, as nothing was queued behind it;
`host_idle` tells what the host did at each moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    Intervals,
    by_key,
    covered_ns,
    either,
    none,
    union,
    without,
)
from gpuadvisor.rules.facts.launches import ALLOCATING, BLOCKING, Calls, LaunchingCalls
from gpuadvisor.rules.facts.loading import Waits
from gpuadvisor.rules.facts.starting import Starting
from gpuadvisor.rules.facts.time_breakdown import IDLE, TimeCategory

NEVER = none()

PAUSE_NS = 1_000_000
"""Longest pause between two launches that is the framework's, which a profiler makes longer as well
(up to 0.44 ms around backward passes and optimizers under Kineto on an H200's host, of a step that
takes 0.3 ms without it). [own]"""
RESOLUTION_NS = 2_000
"""Traces of whole microseconds cut off both begin and duration."""
FAULT_NS = 50_000
"""Time to handle a page fault of a GPU, at most: 20 to 50 us (T. Zheng et al., "Towards High
Performance Paged Memory for GPUs", HPCA 2016). Who touches a page waits no longer before it moves:
the time before that is its own."""


Cause = TimeCategory
"""Why no kernel runs: it copies (`COPYING`), or is idle (`time_breakdown.IDLE`)."""
NOT_BEGUN = (Cause.DEVICE, Cause.UNKNOWN)
"""Causes that are none for all that the trace shows of calls and devices."""
UNEXPLAINED = NOT_BEGUN
"""Causes that are none: what the trace shows does not tell why the device was idle."""


@dataclass(frozen=True, eq=False)
class Gaps:
    """The gaps of a device and how long each had which cause."""

    times: Intervals
    before: IntArray
    """Row of the work that ended last; UNKNOWN where nothing had run."""
    after: IntArray
    """Row of the work that began then, if possible one of known call."""
    causes_ns: npt.NDArray[np.int64]
    """A row for each gap, a column for each of `IDLE`."""


class Threads:
    """What the threads of the host waited for."""

    def __init__(
        self,
        host: Calls,
        launching: Mapping[int, Intervals],
        waits: Waits,
        starting: Starting,
        recorded: bool,
        unseen: Intervals = NEVER,
    ) -> None:
        self.host = host
        self.recorded = recorded
        self.unseen = unseen
        """When nothing of the host was recorded yet."""
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

    def calling(self, key: int) -> Intervals:
        """Return when a thread was in a call into CUDA."""
        rows = self.rows[key]
        return union(self.host.begin_ns[rows], self.host.end_ns[rows])

    @cached_property
    def call_any(self) -> Intervals:
        return union(self.host.begin_ns, self.host.end_ns)

    @cached_property
    def allocate_any(self) -> Intervals:
        rows = self.host.of_kinds(ALLOCATING)
        return union(self.host.begin_ns[rows], self.host.end_ns[rows])

    def allocates(self, key: int) -> Intervals:
        rows = self.rows[key]
        rows = rows[np.isin(self.host.kind[rows], ALLOCATING)]
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


def split(
    work: DeviceWork,
    launched: LaunchingCalls,
    threads: Threads,
    rows: IntArray,
    times: Intervals,
    reach: int,
) -> Gaps:
    """Return the gaps of a device with their causes.

    `rows` are its work, `times` when nothing of that ran, and `reach` is how long the device needs
    to begin what was launched, in nanoseconds.
    """
    before, after = _neighbours(work, launched, rows, times)
    all_causes = np.zeros((len(IDLE), len(times)), np.int64)
    causes: dict[Cause, IntArray] = dict(zip(IDLE, all_causes, strict=True))
    known = launched.known[after]
    length = times.end_ns - times.begin_ns
    moved = ~known & work.is_migration[after]
    _blame_pages(causes, threads, times, np.flatnonzero(moved))
    causes[Cause.UNKNOWN][~known & ~moved] = length[~known & ~moved]
    gap = np.flatnonzero(known)
    for key, at in by_key(launched.thread_key[after[gap]]):
        _blame(causes, launched, threads, key, times, after, gap[at], reach)
    for cause in NOT_BEGUN:
        short = causes[cause] <= reach
        causes[Cause.BETWEEN_KERNELS] += np.where(short, causes[cause], 0)
        causes[cause][short] = 0
    return Gaps(times, before, after, all_causes.T)


def _blame_pages(
    causes: Mapping[Cause, IntArray], threads: Threads, times: Intervals, gap: IntArray
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
    in_calls = rest
    if not threads.recorded:
        in_calls = np.minimum(covered_ns(without(threads.call_any, taken), begin, touched), rest)
    causes[Cause.OTHER_HOST][gap] = in_calls
    causes[Cause.NOT_RECORDED][gap] = rest - in_calls


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
    threads: Threads,
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
    late = end - reached
    starts = covered_ns(threads.starts(key), called, called + 1) > 0
    causes[Cause.STARTING][gap] += np.where(starts, late, 0)
    causes[Cause.DEVICE][gap] += np.where(starts, 0, late)
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
    unseen = covered_ns(without(threads.unseen, taken), begin, called)
    causes[Cause.UNKNOWN][gap] += unseen
    rest = rest - unseen
    other = rest - at_work
    # What a host does for long after it waited is slow for itself, not for the wait.
    for_wait = np.where(other <= PAUSE_NS, rest, at_work)
    # Without the wait or the allocation, what ended the gap would have been launched before it.
    allocated = ~waited & (2 * causes[Cause.ALLOCATING][gap] > called - begin)
    causes[Cause.SYNCHRONIZING][gap] += np.where(waited, for_wait + calling, 0)
    causes[Cause.ALLOCATING][gap] += np.where(allocated, at_work + calling, 0)
    causes[Cause.LAUNCHING][gap] += np.where(waited | allocated, 0, at_work + calling)
    left = np.where(waited, rest - for_wait, other)
    in_calls = left
    if not threads.recorded:
        free = without(threads.calling(key), either(taken, threads.launches(key)))
        in_calls = np.minimum(covered_ns(free, begin, called), left)
    causes[Cause.OTHER_HOST][gap] += in_calls
    causes[Cause.NOT_RECORDED][gap] += left - in_calls
