"""When the threads that launch waited for the device, in calls and in none that was recorded.

Some programs wait without a call into CUDA that a profiler records: Julia's runtime has the device
call back (`cuLaunchHostFunc`) and yields until then, others read a flag in memory that both sides
see. Such a wait looks like work of the host, and then the host seems to set the pace. It gives
itself away by its end: the host goes on just after the last work that was launched is done, again
and again, whatever that work takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, CallKind, Direction, Memory
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import HOST_PACE_NS
from gpuadvisor.rules.facts.idle_causes import PAUSE_NS, RESOLUTION_NS
from gpuadvisor.rules.facts.intervals import BoolArray, IntArray
from gpuadvisor.rules.facts.launches import Calls

FETCH_BYTES = 1 << 20
"""Most bytes of a copy to the host (`.item()`, predictions) whose wait is what costs, not the copy
itself, which takes 0.1 ms at the most."""
LATE = 0.02
"""The host goes on after the work is done within so much of its pause. Of work that ends at any
time of a pause, one in fifty does so by chance; of three in a row, one of 125,000."""
_OFTEN = 3
_HALF = 0.5
"""Part of the pauses in which the device has work that end so, at least: three of six do so by
chance once in 6,000 (binomially)."""


class Host(IntEnum):
    """What the threads that launch do while they do not wait for the device."""

    LOADING = 0
    """Waiting for a DataLoader's batch."""
    SYNCHRONIZING = 1
    """In a call that could wait for the device, but need not."""
    ALLOCATING = 2
    """In a call that allocates or frees memory of the device."""
    COPYING = 3
    """No time has this kind: what calls that copy take is a wait, or work."""
    WORKING = 4
    """Launching: operators that do, their calls, and what lies shortly between them."""
    AWAY = 5
    """Everything else that lasts: Python, and operators of the CPU. A profiler records little of
    it, and so makes it hardly longer."""
    WAITING = 6
    """No time has this kind: waiting in no call that was recorded."""


@dataclass(frozen=True, eq=False)
class Blocked:
    """Calls in which the host waited for the device, in their order; none within another."""

    begin_ns: IntArray
    end_ns: IntArray
    kind: IntArray
    row: IntArray
    call: IntArray


def pageable(work: DeviceWork, rows: IntArray) -> BoolArray:
    """Say of each piece of work whether it copies from or to pageable memory."""
    found = np.zeros(len(rows), np.bool_)
    copies = np.flatnonzero(rows >= work.kernels)
    number = rows[copies] - work.kernels
    source, destination = work.copies["source"][number], work.copies["destination"][number]
    found[copies] = (source == Memory.PAGEABLE) | (destination == Memory.PAGEABLE)
    return found


def waits_of(
    work: DeviceWork, host: Calls, rows: IntArray, call: IntArray, called: IntArray, end: IntArray
) -> Blocked:
    """Return the calls that came back just after what they waited for was done, and the waits
    between calls, each with the call after it."""
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
    staged = (own[chosen] != UNKNOWN) & pageable(work, rows)[row]
    waited = (came_back | staged) & outermost
    mine = np.flatnonzero(np.isin(host.thread_key, threads))
    mine = mine[np.argsort(host.begin_ns[mine], kind="stable")]
    left, done, number = _unrecorded_waits(
        host.begin_ns[mine], host.end_ns[mine], np.sort(called), end[finished]
    )
    found = (
        np.append(begin[waited], left),
        np.append(stop[waited], done),
        np.append(kind[chosen][waited], np.full(len(left), Host.WAITING)),
        np.append(row[waited], finished[np.searchsorted(end[finished], done, "right") - 1]),
        np.append(chosen[waited], mine[number]),
    )
    order = np.argsort(found[0], kind="stable")
    return Blocked(*(each[order] for each in found))


def _waiting_kinds(
    work: DeviceWork, host: Calls, rows: IntArray, call: IntArray
) -> tuple[IntArray, IntArray]:
    """Return as what each call may wait for the device, UNKNOWN for those that do not; and for what
    of it, UNKNOWN where that is all before."""
    kind, own = np.full(len(host), UNKNOWN, np.int64), np.full(len(host), UNKNOWN, np.int64)
    kind[host.kind == CallKind.SYNCHRONIZE] = Host.SYNCHRONIZING
    kind[host.kind == CallKind.FREE] = Host.ALLOCATING
    copies = np.flatnonzero((rows >= work.kernels) & (call != UNKNOWN))
    copies = copies[host.kind[call[copies]] == CallKind.COPY]
    number = rows[copies] - work.kernels
    to_host = work.copies["direction"][number] == Direction.DEVICE_TO_HOST
    fetches = to_host & (work.copies["bytes"][number] <= FETCH_BYTES)
    waits = np.flatnonzero(to_host | pageable(work, rows)[copies])
    kind[call[copies[waits]]] = np.where(fetches, Host.SYNCHRONIZING, Host.COPYING)[waits]
    own[call[copies[waits]]] = copies[waits]
    after = _right_after(host, kind == Host.COPYING)
    kind[after] = Host.COPYING
    return kind, own


def _right_after(host: Calls, copying: BoolArray) -> IntArray:
    """Return the synchronisations that belong to a copy: PyTorch waits for its stream after each
    copy of pageable memory."""
    order = np.lexsort((host.begin_ns, host.thread_key))
    order = order[(host.kind[order] != CallKind.OTHER) & (host.kind[order] != CallKind.EVENT)]
    before, after = order[:-1], order[1:]
    follows = (host.thread_key[before] == host.thread_key[after]) & copying[before]
    soon = host.begin_ns[after] - host.end_ns[before] <= HOST_PACE_NS
    found: IntArray = after[follows & soon & (host.kind[after] == CallKind.SYNCHRONIZE)]
    return found


def _unrecorded_waits(
    begin_ns: IntArray, end_ns: IntArray, launched_ns: IntArray, done_ns: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the waits between the calls of the threads that launch: when each begins and ends, in
    nanoseconds, and the call after it; nothing where the host's pauses do not follow the device.

    `begin_ns` and `end_ns` are of the calls, in the order of their begins; `launched_ns` and
    `done_ns` are when the device's work was launched and done, each in its own order.
    """
    nothing = np.empty(0, np.int64)
    left, after = np.maximum.accumulate(end_ns)[:-1], begin_ns[1:]
    long = np.flatnonzero(after - left >= PAUSE_NS)
    left, after = left[long], after[long]
    count = np.searchsorted(done_ns, after, "right")
    done = np.append(done_ns, 0)[count - 1]
    worked = (count > 0) & (done > left)
    # Who launched more than was done did not wait.
    ahead = count < np.searchsorted(launched_ns, left, "right")
    follows = worked & ~ahead & (after - done <= LATE * (after - left))
    if follows.sum() < max(_OFTEN, _HALF * (worked | ahead).sum()):
        return nothing, nothing, nothing
    return left[follows], done[follows], long[follows] + 1
