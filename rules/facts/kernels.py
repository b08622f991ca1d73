"""Kernels that are the same, and what operators the device's kernel time is spent on.

`kernel_times` is about all devices, `kernel_uses` and `kernel_shapes` about the one with most
kernel time: on the others of a process the same happens. The latter two leave communication out, as
its kernels wait for other GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from gpuadvisor.domain.profile import NO_TEXT, UNKNOWN, Columns, DeviceLimits, Profile
from gpuadvisor.rules.facts.device_work import SHAPE, DeviceWork, Work
from gpuadvisor.rules.facts.intervals import (
    IntArray,
    by_key,
    ends,
    exact_sum,
    grouped,
    percentile,
)
from gpuadvisor.rules.facts.kernel_families import Family, KernelKind, kind_of
from gpuadvisor.rules.facts.operators import Operators
from gpuadvisor.rules.facts.roofline import PRECISIONS, element_type

KEYS = ("name", *SHAPE, "registers", "shared_bytes", "device", "stream")
"""What tells kernels apart."""


@dataclass(frozen=True)
class KernelTime:
    """The launches of a kernel that agree in name, shape, registers, shared memory, device and
    stream; UNKNOWN (-1) stands for what was not recorded."""

    name: str
    grid: tuple[int, int, int]
    """Blocks."""
    block: tuple[int, int, int]
    """Threads."""
    registers: int
    """Registers of a thread."""
    shared_bytes: int
    """Shared memory of a block."""
    device: int
    stream: int
    count: int
    time_ns: int
    """Sum of the launches' times."""
    p50_ns: int
    p95_ns: int
    first_row: int
    """Row of the table of kernels of the launch that began first."""

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)

    @property
    def mean_ns(self) -> float:
        return self.time_ns / self.count


def kernel_times(profile: Profile) -> tuple[KernelTime, ...]:
    """Return the kernels of a profile together with their like, the longest in sum first."""
    columns = profile.columns("kernels", (*KEYS, "begin_ns", "duration_ns"))
    begin, end = ends(columns["begin_ns"], columns["duration_ns"])
    if not len(begin):
        return ()
    group = grouped(*(columns[key] for key in KEYS))
    order = np.lexsort((begin, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    stops = np.append(starts[1:], len(order))
    duration = (end - begin)[order]
    texts = profile.header.texts
    found = [
        _time(columns, texts, int(order[start]), duration[start:stop])
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    found.sort(key=lambda each: (-each.time_ns, each.first_row))
    return tuple(found)


def _time(columns: Columns, texts: Sequence[str], row: int, duration_ns: IntArray) -> KernelTime:
    shape = tuple(int(columns[key][row]) for key in SHAPE)
    p50, p95 = percentile(duration_ns, 50), percentile(duration_ns, 95)
    return KernelTime(
        texts[int(columns["name"][row])],
        (shape[0], shape[1], shape[2]),
        (shape[3], shape[4], shape[5]),
        int(columns["registers"][row]),
        int(columns["shared_bytes"][row]),
        int(columns["device"][row]),
        int(columns["stream"][row]),
        len(duration_ns),
        exact_sum(duration_ns),
        p50 or 0,
        p95 or 0,
        row,
    )


@dataclass(frozen=True, eq=False)
class KernelUse:
    """All kernels of one name that operators of one name, shapes and types launched."""

    name: str
    kind: KernelKind
    operator: str
    """Empty where it is not known, like the next two."""
    shapes: str
    types: str
    rows: IntArray
    """Rows of the device's work."""
    time_ns: int

    @property
    def count(self) -> int:
        return len(self.rows)

    @property
    def mean_ns(self) -> float:
        return self.time_ns / self.count

    @property
    def precision(self) -> str | None:
        """Data type by the kernel's name, else by what the operator got."""
        return self.kind.precision or PRECISIONS.get(element_type(self.types))


@dataclass(frozen=True, eq=False)
class KernelUses:
    """What the kernel time of the device with most of it is spent on."""

    device: int | None
    """None where no kernel ran."""
    uses: tuple[KernelUse, ...]
    """The uses, those with most time first."""

    @cached_property
    def time_ns(self) -> int:
        """Time of all uses together."""
        return sum(each.time_ns for each in self.uses)

    @cached_property
    def rows(self) -> IntArray:
        """Rows of the device's work of all uses."""
        parts = [each.rows for each in self.uses]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def rows_of(self, name: str) -> IntArray:
        """Return those of one kernel."""
        return np.concatenate([self.rows[:0], *(e.rows for e in self.uses if e.name == name)])

    def of(self, *families: str) -> tuple[KernelUse, ...]:
        """Return those of these families."""
        return tuple(each for each in self.uses if each.kind.family in families)

    def share(self, uses: tuple[KernelUse, ...]) -> float:
        """Return which part of the time some of them take."""
        return sum(each.time_ns for each in uses) / self.time_ns if self.time_ns else 0.0


def kernel_uses(profile: Profile, work: DeviceWork, launching: Operators) -> KernelUses:
    """Return what the kernel time of a profile is spent on."""
    computing = np.flatnonzero(work.kind == Work.COMPUTE)
    duration = work.duration_ns
    device = work.most_computing
    if device is None:
        return KernelUses(None, ())
    rows = computing[work.device[computing] == device]
    texts = profile.header.texts
    found = []
    for at, operator in _alike(profile, work, launching, rows):
        mine = rows[at]
        name, time = texts[int(work.name[mine[0]])], exact_sum(duration[mine])
        called, shapes, types = (texts[each] for each in operator)
        found.append(KernelUse(name, kind_of(name), called, shapes, types, mine, time))
    found.sort(key=lambda each: (-each.time_ns, int(each.rows[0])))
    return KernelUses(device, tuple(found))


def limits_of(profile: Profile, device: int | None) -> DeviceLimits | None:
    """Return what a profile says of a device; of the only one where numbers differ."""
    listed = profile.header.devices
    named = next((each for each in listed if each.index == device), None)
    return named or (listed[0] if len({each.name for each in listed}) == 1 else None)


def _alike(
    profile: Profile, work: DeviceWork, launching: Operators, rows: IntArray
) -> list[tuple[IntArray, tuple[int, int, int]]]:
    """Return which rows are of one use, with the texts of their operator."""
    columns = profile.columns("operators", ("name", "shapes", "types"))
    operator = launching.of_like_work[rows]
    known = operator != UNKNOWN
    texts = []
    for name in ("name", "shapes", "types"):
        of_row = np.full(len(rows), NO_TEXT, np.int64)
        of_row[known] = columns[name][operator[known]]
        texts.append(of_row)
    return [
        (at, (int(texts[0][at[0]]), int(texts[1][at[0]]), int(texts[2][at[0]])))
        for _, at in by_key(grouped(work.name[rows], *texts))
    ]


LIBRARY = (Family.GEMM, Family.CONVOLUTION, Family.ATTENTION)
"""Families whose kernels need few warps and blocks by design: they keep tiles in registers."""


@dataclass(frozen=True)
class KernelShape:
    """How launches of one kernel name are shaped."""

    name: str
    launches: tuple[KernelTime, ...]
    """Its launches, those of one grid, block and resources as one entry; most time first."""

    @cached_property
    def time_ns(self) -> int:
        return sum(each.time_ns for each in self.launches)

    @cached_property
    def count(self) -> int:
        return sum(each.count for each in self.launches)

    @property
    def is_library(self) -> bool:
        return kind_of(self.name).family in LIBRARY

    def of(self, chosen: Callable[[KernelTime], bool]) -> KernelShape | None:
        """Return the same of some of its launches; None where none is chosen."""
        found = tuple(each for each in self.launches if chosen(each))
        return KernelShape(self.name, found) if found else None

    def mean(self, figures: Sequence[float]) -> float:
        """Return the mean of a figure of each of the launches, weighted by their time."""
        if not self.time_ns:
            return figures[0]
        times = (each.time_ns for each in self.launches)
        weighed = (figure * ns for figure, ns in zip(figures, times, strict=True))
        return sum(weighed) / self.time_ns

    def words(self, whole: KernelShape) -> str:
        """Return how many of a kernel's launches they are, where they are not all: ` in 1 of its 2
        launches`."""
        if self.count == whole.count:
            return ""
        return f" in {self.count:,} of its {whole.count:,} launches"

    def rows(self, profile: Profile, of_name: IntArray) -> IntArray:
        """Return those of a name's rows of the kernels' table that are of these launches."""
        columns = profile.columns("kernels", SHAPE)
        found = np.zeros(len(of_name), np.bool_)
        for shape in {(*each.grid, *each.block) for each in self.launches}:
            alike = [
                columns[name][of_name] == size for name, size in zip(SHAPE, shape, strict=True)
            ]
            found |= np.logical_and.reduce(alike)
        return of_name[found]


def kernel_shapes(kernels: Sequence[KernelTime], device: int | None) -> tuple[KernelShape, ...]:
    """Return the kernels of a device, those with most time first; without communication."""
    by_name: dict[str, list[KernelTime]] = {}
    for each in kernels:
        if each.device == device and min(*each.grid, *each.block) > 0:
            by_name.setdefault(each.name, []).append(each)
    found = [
        KernelShape(name, tuple(launches))
        for name, launches in by_name.items()
        if kind_of(name).family is not Family.COMMUNICATION
    ]
    return tuple(sorted(found, key=lambda each: -each.time_ns))
