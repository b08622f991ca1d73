"""How many streams of a device worked at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import Whole, by_key, depths


@dataclass(frozen=True)
class Concurrency:
    """Of one device."""

    device: int
    streams: int
    """That had something to do."""
    time_ns: Mapping[int, int]
    """So many streams were active at the same time, to how long; without 0."""

    @property
    def mean_streams(self) -> float:
        """Active ones, over the time in which any was."""
        busy = sum(self.time_ns.values())
        return sum(n * ns for n, ns in self.time_ns.items()) / busy if busy else 0.0


def concurrency(work: DeviceWork) -> tuple[Concurrency, ...]:
    """Return how many streams of each device worked at the same time."""
    return tuple(_of_device(work, device, rows) for device, rows in work.by_device())


def _of_device(work: DeviceWork, device: int, rows: Whole) -> Concurrency:
    streams = tuple(work.intervals(rows[at]) for _, at in by_key(work.stream[rows]))
    active = tuple(each for each in streams if len(each))
    if not active:
        return Concurrency(device, 0, {})
    time, depth = depths(active)
    spent = np.zeros(len(active) + 1, np.int64)
    np.add.at(spent, depth, np.diff(time))
    return Concurrency(
        device, len(active), {n: int(spent[n]) for n in range(1, len(spent)) if spent[n]}
    )
