"""What ran on the devices: kernels, copies and memsets of a profile in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN, Direction, Memory, Profile
from gpuadvisor.rules.facts.intervals import (
    BoolArray,
    IntArray,
    Intervals,
    by_key,
    ends,
    numbered,
    union,
)
from gpuadvisor.rules.facts.kernel_families import COMMUNICATION

SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
"""Columns of `kernels` that hold the grid in blocks and the block in threads."""


class Work(IntEnum):
    """What a device does."""

    COMPUTE = 0
    COMMUNICATION = 1
    """A kernel that exchanges data with other GPUs."""
    MEMORY = 2
    """A copy or a memset."""


@dataclass(frozen=True, eq=False)
class DeviceWork:
    """A row for each kernel, copy and memset: first the kernels, then the copies, as they came."""

    begin_ns: IntArray
    end_ns: IntArray
    device: npt.NDArray[np.int16]
    stream: IntArray
    correlation: IntArray
    kind: npt.NDArray[np.int8]
    """`Work`."""
    name: npt.NDArray[np.int32]
    """Text of a kernel; UNKNOWN for copies."""
    in_graph: BoolArray
    kernels: int
    """How many of the rows are kernels."""
    copies: Any
    """The columns of copies that describe them."""
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.begin_ns)

    @property
    def duration_ns(self) -> IntArray:
        return self.end_ns - self.begin_ns

    @property
    def is_kernel(self) -> BoolArray:
        return np.arange(len(self)) < self.kernels

    @property
    def is_migration(self) -> BoolArray:
        """Which rows are pages of managed memory that moved: no call launches these."""
        moved: BoolArray = self.copies["direction"] == Direction.MIGRATION
        return np.concatenate((np.zeros(self.kernels, np.bool_), moved))

    def by_device(self) -> Iterator[tuple[int, IntArray]]:
        """Yield each device with its rows."""
        return by_key(self.device)

    def lasting_by_device(self) -> Iterator[tuple[int, IntArray]]:
        """Yield each device with its rows that took some time, if there are any."""
        lasting = np.flatnonzero(self.end_ns > self.begin_ns)
        return ((device, lasting[at]) for device, at in by_key(self.device[lasting]))

    @cached_property
    def most_computing(self) -> int | None:
        """The device on which kernels that compute take most time, the first of those that tie:
        what kernels are said to cost, and the run that is played again, are of it; None where none
        computes."""
        rows = np.flatnonzero(self.kind == Work.COMPUTE)
        took = {
            device: int(self.duration_ns[rows[at]].sum())
            for device, at in by_key(self.device[rows])
        }
        return max(took, key=lambda device: took[device], default=None)

    def intervals(self, rows: IntArray | BoolArray) -> Intervals:
        """Return when at least one of these rows ran."""
        return union(self.begin_ns[rows], self.end_ns[rows])

    def kernel_times_ns(self, rows: Sequence[int] | IntArray) -> dict[str, int]:
        """Return the time of some kernels, added up by their names."""
        at = np.asarray(rows, np.int64)
        used, place = np.unique(self.name[at], return_inverse=True)
        times = np.zeros(len(used), np.int64)
        np.add.at(times, place, self.duration_ns[at])
        pairs = zip(used.tolist(), times.tolist(), strict=True)
        return {self.texts[name]: time for name, time in pairs if name != UNKNOWN}

    def describe(self, row: int) -> str:
        """Return what a row is, for people."""
        if row < self.kernels:
            return self.texts[int(self.name[row])]
        copy = row - self.kernels
        direction = _named(Direction, self.copies["direction"][copy])
        if direction == "memset":
            return "memset"
        source, destination = (
            _named(Memory, self.copies[end][copy]) for end in ("source", "destination")
        )
        if direction == "migration":
            return f"pages of managed memory to the {'GPU' if destination == 'device' else 'host'}"
        return f"copy {direction} ({source} to {destination})"


def _named(kind: type[IntEnum], value: int) -> str:
    """Return a member's name in words; the first one's where a damaged store has none such."""
    members = {int(member): member for member in kind}
    return members.get(int(value), next(iter(kind))).name.lower().replace("_", " ")


def device_work(profile: Profile) -> DeviceWork:
    """Return what ran on the devices of a profile."""
    on_device = ("begin_ns", "duration_ns", "device", "stream", "correlation", "graph_node")
    kernels = profile.columns("kernels", (*on_device, "name"))
    copies = profile.columns("copies", (*on_device, "direction", "source", "destination", "bytes"))
    joined = {name: np.concatenate((kernels[name], copies[name])) for name in on_device}
    begin, end = ends(joined["begin_ns"], joined["duration_ns"])
    texts = profile.header.texts
    names = kernels["name"]
    memory = np.full(len(copies["begin_ns"]), Work.MEMORY, np.int8)
    return DeviceWork(
        begin,
        end,
        joined["device"],
        joined["stream"],
        joined["correlation"],
        np.concatenate((kernel_kinds(names, texts), memory)),
        np.concatenate((names, np.full(len(memory), UNKNOWN, np.int32))),
        joined["graph_node"] != UNKNOWN,
        len(names),
        {name: copies[name] for name in ("direction", "source", "destination", "bytes")},
        texts,
    )


def kernel_kinds(names: npt.NDArray[np.int32], texts: Sequence[str]) -> npt.NDArray[np.int8]:
    """Return whether each kernel computes or communicates, by its name."""
    used, place = numbered(names)
    kinds = [
        Work.COMMUNICATION if COMMUNICATION.search(texts[name]) else Work.COMPUTE
        for name in used.tolist()
    ]
    return np.array(kinds, np.int8)[place] if len(used) else np.empty(0, np.int8)
