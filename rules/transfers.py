"""Copies between host and device in the run, and how much of them no kernel hides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Direction, Memory
from gpuadvisor.rules.facts.intervals import Mask, Whole, uncovered_ns
from gpuadvisor.rules.facts.summary import Facts

STAGED_BYTES = 65_536
"""Copies of pageable memory to the device of at most so many come back at once (CUDA Runtime API,
"API synchronization behavior")."""
BETWEEN = (Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST)


@dataclass(frozen=True, eq=False)
class Transfers:
    """Some copies of the device that is played."""

    rows: Whole
    """Of the device's work."""
    bytes: int
    time_ns: int
    exposed_ns: int
    """In which no kernel ran."""
    to_host_ns: int
    """The part of `time_ns` that goes to the host."""

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def to_host(self) -> bool:
        """Whether most of the time goes into copies to the host."""
        return 2 * self.to_host_ns > self.time_ns

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.time_ns * 1e9 if self.time_ns else 0.0


def large_pageable(facts: Facts) -> Transfers:
    """Return the copies between device and pageable memory that the host waits for."""
    copies = facts.work.copies
    pageable = (copies["source"] == Memory.PAGEABLE) | (copies["destination"] == Memory.PAGEABLE)
    return _chosen(facts, pageable & (copies["bytes"] > STAGED_BYTES))


def pinned(facts: Facts) -> Transfers:
    """Return the copies between device and pinned memory."""
    copies = facts.work.copies
    at_host = np.where(
        copies["direction"] == Direction.HOST_TO_DEVICE, copies["source"], copies["destination"]
    )
    return _chosen(facts, at_host == Memory.PINNED)


def small_to_device(facts: Facts) -> Transfers:
    """Return the copies to the device of so few bytes that it is their number that costs."""
    copies = facts.work.copies
    small = (copies["bytes"] != UNKNOWN) & (copies["bytes"] <= STAGED_BYTES)
    return _chosen(facts, small & (copies["direction"] == Direction.HOST_TO_DEVICE))


def _chosen(facts: Facts, chosen: Mask) -> Transfers:
    work, line = facts.work, facts.timeline
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
    return Transfers(
        rows,
        int(np.maximum(work.copies["bytes"][number], 0).sum()),
        int(duration.sum()),
        uncovered_ns(work.intervals(rows), work.intervals(kernels)),
        int(duration[to_host].sum()),
    )
