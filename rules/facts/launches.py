"""Calls into CUDA, which of them launched what on the device, and how long launches queued.

A kernel is starved when its stream had nothing left to do as its launch began: the device waits for
the host. What CUDA graphs launch is left out of that, as one call launches all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, CallKind, Profile
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import (
    BoolArray,
    IntArray,
    by_key,
    covered_ns,
    ends,
    percentile,
    union,
)
from gpuadvisor.rules.facts.joins import latest_before, thread_keys

ENQUEUING = (CallKind.LAUNCH, CallKind.COPY, CallKind.MEMSET, CallKind.GRAPH_LAUNCH)
"""Calls that give a device work."""
BLOCKING = (CallKind.SYNCHRONIZE, CallKind.COPY, CallKind.MEMSET, CallKind.FREE)
"""Calls in which the host may wait for a device: of copies those of pageable memory and without
`Async`, of frees those without."""
ALLOCATING = (CallKind.ALLOCATE, CallKind.FREE)
"""Calls that handle a device's memory."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The calls into CUDA, as they came."""

    begin_ns: IntArray
    end_ns: IntArray
    process: IntArray
    thread: IntArray
    correlation: IntArray
    kind: npt.NDArray[np.int8]
    name: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.begin_ns)

    @cached_property
    def thread_key(self) -> IntArray:
        """A number for each process and thread."""
        return thread_keys(self.process, self.thread, self.process[:0], self.thread[:0])[0]

    def of_kinds(self, kinds: tuple[CallKind, ...]) -> BoolArray:
        of_kinds: BoolArray = np.isin(self.kind, np.array(kinds, np.int8))
        return of_kinds

    def share_within(self, begin_ns: int, end_ns: int) -> float:
        """Return for which share of a time (0 to 1) at least one call lasted."""
        called = union(self.begin_ns, self.end_ns)
        lasted = covered_ns(called, np.array([begin_ns]), np.array([end_ns]))[0]
        return float(lasted) / (end_ns - begin_ns) if end_ns > begin_ns else 0.0

    def longest_within(self, begin_ns: int, end_ns: int) -> tuple[int, float] | None:
        """Return the name (number of its text) of the calls that lasted longest between two times,
        and for which share of that (0 to 1); None where none did."""
        rows = np.flatnonzero((self.begin_ns < end_ns) & (self.end_ns > begin_ns))
        if not len(rows) or end_ns <= begin_ns:
            return None
        lasted = np.minimum(self.end_ns[rows], end_ns) - np.maximum(self.begin_ns[rows], begin_ns)
        spent = np.bincount(self.name[rows], lasted)
        most = int(spent.argmax())
        return most, min(float(spent[most]) / (end_ns - begin_ns), 1.0)


@dataclass(frozen=True, eq=False)
class LaunchingCalls:
    """The call that launched each row of the device's work, as far as it was recorded."""

    call: IntArray
    """Row of the calls; UNKNOWN where none was recorded."""
    begin_ns: IntArray
    """Begin of the launching call; meaningless where `call` is UNKNOWN, as are `end_ns` and
    `thread_key`."""
    end_ns: IntArray
    thread_key: IntArray

    @property
    def known(self) -> BoolArray:
        known: BoolArray = self.call != UNKNOWN
        return known

    def begin_or(self, others_ns: IntArray) -> IntArray:
        """Return when each row was launched; another time where no call was recorded."""
        begin_ns: IntArray = np.where(self.known, self.begin_ns, others_ns)
        return begin_ns


def calls(profile: Profile) -> Calls:
    """Return the calls of a profile."""
    names = ("begin_ns", "duration_ns", "process", "thread", "correlation", "kind", "name")
    columns = profile.columns("calls", names)
    begin, end = ends(columns["begin_ns"], columns["duration_ns"])
    return Calls(begin, end, *(columns[name] for name in names[2:]))


def launches(work: DeviceWork, host: Calls) -> LaunchingCalls:
    """Return which call launched what."""
    rows = latest_before(host.correlation, host.begin_ns, work.correlation, work.begin_ns)
    if not len(host):
        nothing = np.zeros(len(work), np.int64)
        return LaunchingCalls(rows, nothing, nothing, nothing)
    taken = np.maximum(rows, 0)
    return LaunchingCalls(rows, host.begin_ns[taken], host.end_ns[taken], host.thread_key[taken])


def of_graphs(work: DeviceWork, host: Calls, launched: LaunchingCalls) -> BoolArray:
    """Return which kernels a CUDA graph launched: its nodes tell, or the call, where a profiler
    records no nodes."""
    replays = np.flatnonzero(host.of_kinds((CallKind.GRAPH_LAUNCH,)))
    by_call = np.isin(launched.call[: work.kernels], replays)
    found: BoolArray = work.in_graph[: work.kernels] | by_call
    return found


SHORT_NS = 10_000
"""A kernel below is not worth much more than the 5 to 10 us that the host takes for its launch."""


@dataclass(frozen=True)
class Queue:
    """How launching the kernels of one device went."""

    device: int
    kernels: int
    short_kernels: int
    """Number of kernels of less than 10 us."""
    launched: int
    """Kernels with a call of their own that was recorded: the rest is about these."""
    starved: int
    call_p50_ns: int | None
    """How long the call takes; None where nothing was launched, like the rest."""
    latency_p50_ns: int | None
    """From the end of the call to the begin of the kernel; negative where it began before."""
    latency_p95_ns: int | None
    depth_p50: int | None
    """Kernels and copies of the stream launched before and not done when the call ended."""
    depth_max: int | None

    @property
    def starved_share(self) -> float | None:
        """Share of the launches that found their stream empty, as those of a launch-bound program
        do."""
        return self.starved / self.launched if self.launched else None


def queues(work: DeviceWork, launched: LaunchingCalls) -> tuple[Queue, ...]:
    """Return how launching went for each device with kernels."""
    alone = _alone(work, launched)
    depth, starved = _stream_state(work, launched, alone)
    return tuple(
        _of_device(work, launched, device, kernels, alone, depth, starved)
        for device, rows in work.by_device()
        if len(kernels := rows[work.is_kernel[rows]])
    )


def _alone(work: DeviceWork, launched: LaunchingCalls) -> BoolArray:
    """Return which rows have a call of their own that is known."""
    order = np.argsort(launched.call, kind="stable")
    call = launched.call[order]
    shared = np.zeros(len(order), np.bool_)
    same = call[1:] == call[:-1]
    shared[order[1:][same]] = True
    shared[order[:-1][same]] = True
    alone: BoolArray = (launched.call != UNKNOWN) & ~shared & ~work.in_graph
    return alone


def _stream_state(
    work: DeviceWork, launched: LaunchingCalls, alone: BoolArray
) -> tuple[IntArray, BoolArray]:
    """Return how much was queued when each call ended, and whether nothing was as it began."""
    depth, starved = np.zeros(len(work), np.int64), np.zeros(len(work), np.bool_)
    for _, rows in work.by_device():
        for _, at in by_key(work.stream[rows]):
            stream = rows[at]
            stream = stream[alone[stream]]
            ended = np.sort(work.end_ns[stream])
            order = np.argsort(launched.end_ns[stream], kind="stable")
            before = np.empty(len(stream), np.int64)
            before[order] = np.arange(len(stream))
            done = np.searchsorted(ended, launched.end_ns[stream], "right")
            depth[stream] = np.maximum(before - done, 0)
            done = np.searchsorted(ended, launched.begin_ns[stream], "right")
            starved[stream] = before <= done
    return depth, starved


def _of_device(
    work: DeviceWork,
    launched: LaunchingCalls,
    device: int,
    kernels: IntArray,
    alone: BoolArray,
    depth: IntArray,
    starved: BoolArray,
) -> Queue:
    duration = work.duration_ns[kernels]
    short = duration < SHORT_NS
    rows = kernels[alone[kernels]]
    call = launched.end_ns[rows] - launched.begin_ns[rows]
    latency = work.begin_ns[rows] - launched.end_ns[rows]
    return Queue(
        device,
        len(kernels),
        int(short.sum()),
        len(rows),
        int(starved[rows].sum()),
        percentile(call, 50),
        percentile(latency, 50),
        percentile(latency, 95),
        percentile(depth[rows], 50),
        int(depth[rows].max()) if len(rows) else None,
    )
