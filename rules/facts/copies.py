"""Copies and memsets by direction and memory, and how much of them no kernel hides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Direction, Memory
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import (
    BoolArray,
    IntArray,
    Intervals,
    by_key,
    exact_sum,
    grouped,
    uncovered_ns,
)
from gpuadvisor.rules.facts.what_if import Timeline


@dataclass(frozen=True)
class CopyTime:
    """Copies of one device, direction and pair of memory kinds."""

    device: int
    direction: Direction
    source: Memory
    destination: Memory
    count: int
    bytes: int
    """Bytes of the copies whose size is known."""
    time_ns: int
    """Sum of the copies' times, even where they ran at the same time."""
    ran_ns: int
    """Time in which at least one of the copies ran."""
    exposed_ns: int
    """Time in which at least one of the copies and no kernel ran."""
    bandwidth_bytes_per_s: float | None
    """Bandwidth of the copies whose size is known; None where there is none or they took no
    time."""


def copy_times(work: DeviceWork) -> tuple[CopyTime, ...]:
    """Return the copies of each device by what they are, those that took longest first."""
    return tuple(sorted(_all(work), key=lambda each: -each.time_ns))


def _all(work: DeviceWork) -> Iterator[CopyTime]:
    for device, rows in work.by_device():
        copies = rows[~work.is_kernel[rows]]
        kernels = work.intervals(rows[work.is_kernel[rows]])
        number = copies - work.kernels
        kinds = (work.copies[column][number] for column in ("direction", "source", "destination"))
        for _, at in by_key(grouped(*kinds)):
            yield _of_kind(work, device, copies[at], kernels)


def _of_kind(work: DeviceWork, device: int, rows: IntArray, kernels: Intervals) -> CopyTime:
    size = work.copies["bytes"][rows - work.kernels]
    known = size >= 0
    duration = work.duration_ns[rows]
    moved, took = exact_sum(size[known]), exact_sum(duration[known])
    direction, source, destination = (
        int(work.copies[column][rows[0] - work.kernels])
        for column in ("direction", "source", "destination")
    )
    return CopyTime(
        device,
        Direction(direction if direction in list(Direction) else Direction.OTHER),
        Memory(source if source in list(Memory) else Memory.NOT_KNOWN),
        Memory(destination if destination in list(Memory) else Memory.NOT_KNOWN),
        len(rows),
        moved,
        exact_sum(duration),
        work.intervals(rows).total_ns,
        uncovered_ns(work.intervals(rows), kernels),
        moved / took * 1e9 if took and known.any() else None,
    )


STAGED_BYTES = 65_536
"""Copies of pageable memory to the device of at most so many come back at once (CUDA Runtime API,
"API synchronization behavior")."""
LESSER = 0.25
"""Part of the copies' time from which on their lesser direction is named as well. [own]"""
BETWEEN = (Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST)


@dataclass(frozen=True, eq=False)
class Transfers:
    """Some copies of the device that is played."""

    rows: IntArray
    """Rows of the device's work."""
    bytes: int
    time_ns: int
    exposed_ns: int
    """Time in which a copy and no kernel ran."""
    to_host_ns: int
    """The part of `time_ns` that goes to the host."""
    hideable_ns: int
    """Time that would be saved if kernels, copies to the host and copies from it each went on at
    the same time as the other two: a link carries both directions at once."""
    rounds: int
    """Number of times that such copies came, with kernels between."""

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def to_host(self) -> bool:
        """Whether most of the time goes into copies to the host."""
        return 2 * self.to_host_ns > self.time_ns

    @property
    def both_ways(self) -> bool:
        """Whether a good part of the time goes into either direction."""
        return min(self.to_host_ns, self.time_ns - self.to_host_ns) >= LESSER * self.time_ns

    @property
    def mixed(self) -> bool:
        """Whether some go in either direction."""
        return 0 < self.to_host_ns < self.time_ns

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.time_ns * 1e9 if self.time_ns else 0.0


def large_pageable(work: DeviceWork, line: Timeline | None) -> Transfers:
    """Return the copies between device and pageable memory that the host waits for."""
    copies = work.copies
    pageable = (copies["source"] == Memory.PAGEABLE) | (copies["destination"] == Memory.PAGEABLE)
    return _chosen(work, line, pageable & (copies["bytes"] > STAGED_BYTES))


def pinned(work: DeviceWork, line: Timeline | None) -> Transfers:
    """Return the copies between device and pinned memory."""
    copies = work.copies
    at_host = np.where(
        copies["direction"] == Direction.HOST_TO_DEVICE, copies["source"], copies["destination"]
    )
    return _chosen(work, line, at_host == Memory.PINNED)


def small_to_device(work: DeviceWork, line: Timeline | None) -> Transfers:
    """Return the copies to the device of so few bytes that it is their number that costs."""
    copies = work.copies
    small = (copies["bytes"] != UNKNOWN) & (copies["bytes"] <= STAGED_BYTES)
    return _chosen(work, line, small & (copies["direction"] == Direction.HOST_TO_DEVICE))


def exposed_ns(work: DeviceWork, rows: IntArray) -> int:
    """Return the time in which one of these copies and no kernel ran."""
    return uncovered_ns(work.intervals(rows), work.intervals(np.arange(work.kernels)))


def _chosen(work: DeviceWork, line: Timeline | None, chosen: BoolArray) -> Transfers:
    between = np.isin(work.copies["direction"], BETWEEN)
    rows = np.flatnonzero(chosen & between) + work.kernels
    if line is not None:
        rows = rows[work.device[rows] == line.device]
        kernels = line.rows[line.rows < work.kernels]
    else:
        kernels = np.arange(work.kernels)
    number = rows - work.kernels
    to_host = work.copies["direction"][number] == Direction.DEVICE_TO_HOST
    duration = work.duration_ns[rows]
    # Copies after as many kernels came one after the other, as those that load weights.
    kernels_before = np.searchsorted(np.sort(work.begin_ns[kernels]), work.begin_ns[rows])
    every = np.concatenate((kernels, rows))
    longest = max(
        work.intervals(each).total_ns for each in (kernels, rows[to_host], rows[~to_host])
    )
    return Transfers(
        rows,
        int(np.maximum(work.copies["bytes"][number], 0).sum()),
        int(duration.sum()),
        uncovered_ns(work.intervals(rows), work.intervals(kernels)),
        int(duration[to_host].sum()),
        work.intervals(every).total_ns - longest,
        len(np.unique(kernels_before)),
    )
