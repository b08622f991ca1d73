"""How launching kernels went: how long they waited in the queue, and when it ran empty.

A kernel is starved when its stream had nothing left to do as its launch began: the device waits for
the host. What CUDA graphs launch is left out, as one call launches all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.calls import Launches
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import Mask, Whole, by_key, exact_sum

SHORT_NS = 10_000
"""A kernel below is not worth much more than the 5 to 10 us that the host takes for its launch."""


@dataclass(frozen=True)
class Queue:
    """Of the kernels of one device."""

    device: int
    kernels: int
    kernels_ns: int
    """Added up."""
    short_kernels: int
    """Of less than 10 us."""
    short_kernels_ns: int
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
        """Of the launches: those that a launch-bound program shows."""
        return self.starved / self.launched if self.launched else None


def queues(work: DeviceWork, launched: Launches) -> tuple[Queue, ...]:
    """Return how launching went for each device with kernels."""
    alone = _alone(work, launched)
    depth, starved = _stream_state(work, launched, alone)
    found = []
    for device, rows in work.by_device():
        kernels = rows[work.is_kernel[rows]]
        if len(kernels):
            found.append(_of_device(work, launched, device, kernels, alone, depth, starved))
    return tuple(found)


def _alone(work: DeviceWork, launched: Launches) -> Mask:
    """Return which rows have a call of their own that is known."""
    order = np.argsort(launched.call, kind="stable")
    call = launched.call[order]
    shared = np.zeros(len(order), np.bool_)
    same = call[1:] == call[:-1]
    shared[order[1:][same]] = True
    shared[order[:-1][same]] = True
    alone: Mask = (launched.call != UNKNOWN) & ~shared & ~work.in_graph
    return alone


def _stream_state(work: DeviceWork, launched: Launches, alone: Mask) -> tuple[Whole, Mask]:
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
    launched: Launches,
    device: int,
    kernels: Whole,
    alone: Mask,
    depth: Whole,
    starved: Mask,
) -> Queue:
    duration = work.duration_ns[kernels]
    short = duration < SHORT_NS
    rows = kernels[alone[kernels]]
    call = launched.end_ns[rows] - launched.begin_ns[rows]
    latency = work.begin_ns[rows] - launched.end_ns[rows]
    return Queue(
        device,
        len(kernels),
        exact_sum(duration),
        int(short.sum()),
        exact_sum(duration[short]),
        len(rows),
        int(starved[rows].sum()),
        percentile(call, 50),
        percentile(latency, 50),
        percentile(latency, 95),
        percentile(depth[rows], 50),
        int(depth[rows].max()) if len(rows) else None,
    )


def percentile(values: Whole, pct: int) -> int | None:
    """Return the nearest-rank percentile, which is one of the values; None of none."""
    if not len(values):
        return None
    place = max(-(-pct * len(values) // 100) - 1, 0)
    return int(np.partition(values, place)[place])
