"""Copies and memsets by direction and by the memory at either end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Direction, Memory
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import Intervals, Whole, by_key, exact_sum, uncovered_ns


@dataclass(frozen=True)
class CopyTime:
    """Of one device, direction and memory kind."""

    device: int
    direction: Direction
    source: Memory
    destination: Memory
    count: int
    bytes: int
    """Of those whose size is known."""
    time_ns: int
    """Added up even where they ran at the same time."""
    exposed_ns: int
    """In which at least one of them and no kernel ran."""
    bandwidth_bytes_per_s: float | None
    """Of those whose size is known; None where that is none or they took no time."""


def copy_times(work: DeviceWork) -> tuple[CopyTime, ...]:
    """Return the copies of each device by what they are, those that took longest first."""
    return tuple(sorted(_all(work), key=lambda each: -each.time_ns))


def _all(work: DeviceWork) -> Iterator[CopyTime]:
    for device, rows in work.by_device():
        copies = rows[~work.is_kernel[rows]]
        kernels = work.intervals(rows[work.is_kernel[rows]])
        number = copies - work.kernels
        code = np.zeros(len(copies), np.int64)
        for column in ("direction", "source", "destination"):
            code = code * _KINDS + (work.copies[column][number].astype(np.int64) % _KINDS)
        for kinds, at in by_key(code):
            yield _of_kind(work, device, kinds, copies[at], kernels)


_KINDS = 256
"""More than there are values of a column, which is a byte."""


def _of_kind(
    work: DeviceWork, device: int, kinds: int, rows: Whole, kernels: Intervals
) -> CopyTime:
    size = work.copies["bytes"][rows - work.kernels]
    known = size >= 0
    duration = work.duration_ns[rows]
    moved, took = exact_sum(size[known]), exact_sum(duration[known])
    direction, ends = divmod(kinds, _KINDS * _KINDS)
    source, destination = divmod(ends, _KINDS)
    return CopyTime(
        device,
        Direction(direction if direction in list(Direction) else Direction.OTHER),
        Memory(source if source in list(Memory) else Memory.NOT_KNOWN),
        Memory(destination if destination in list(Memory) else Memory.NOT_KNOWN),
        len(rows),
        moved,
        exact_sum(duration),
        uncovered_ns(work.intervals(rows), kernels),
        moved / took * 1e9 if took and known.any() else None,
    )
