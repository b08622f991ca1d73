"""Pages of managed memory that moved between a host and its GPUs, and what waited for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Memory
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import IdleTime
from gpuadvisor.rules.facts.idle_causes import FAULT_NS, Cause
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, both, covered_ns, union
from gpuadvisor.rules.facts.starting import SLOW_CALL_NS

WHOLE_BYTES = 1 << 20
"""Bytes of a piece from which on no page fault moves it: faults move 4 KiB to just below 1 MiB at
once, and a prefetch up to 2 MiB (nvprof's tables of unified memory in NVIDIA's "Unified Memory for
CUDA Beginners", 2017)."""


@dataclass(frozen=True, eq=False)
class Migrations:
    """Pages that moved to or from one device."""

    device: int
    rows: IntArray
    """Rows of the device's work."""
    bytes: int
    """All that moved, in both directions."""
    bytes_to_gpu: int
    moving_ns: int
    """Time in which at least one page moved."""
    alone_ns: int
    """The part of that in which no kernel ran."""
    waiting_ns: int
    """Time in which the device was idle from the touch of pages until they moved (`FAULT_NS`)."""
    host_ns: int
    """Time in which the device was idle before that: what the host did between two pages."""
    bytes_asked_in_kernels: int
    """What moved to the GPU while a kernel ran: the rest was moved beforehand, as no kernel touched
    it."""
    back_ns: int
    """Time in which at least one page moved to the host."""
    kernels_ns: int
    """Time in which at least one kernel ran."""
    in_kernels_ns: Mapping[str, int]
    """Time of kernels while pages moved or would soon move again (`FAULT_NS`), by their names."""
    unseen_ns: int
    """The rest of the time of kernels in which faults moved pages to the GPU: they may have waited
    in it for pages that nobody had touched before, which move nothing, so that no recording has
    them."""

    @property
    def bytes_back(self) -> int:
        """What moved to the host."""
        return self.bytes - self.bytes_to_gpu

    @property
    def exposed_ns(self) -> int:
        """Time without a kernel in which pages moved or the device was idle until they did."""
        return self.alone_ns + self.waiting_ns

    @property
    def inside_ns(self) -> int:
        """Time of kernels while pages moved or would soon move again."""
        return sum(self.in_kernels_ns.values())


def migrations(work: DeviceWork, idle: Sequence[IdleTime]) -> tuple[Migrations, ...]:
    """Return what moved on each device on which pages did."""
    waiting = {each.device: each.causes_ns[Cause.MIGRATING] for each in idle}
    moved = work.is_migration
    return tuple(
        _of_device(work, device, rows, waiting.get(device, 0))
        for device, rows in work.lasting_by_device()
        if moved[rows].any()
    )


def _of_device(work: DeviceWork, device: int, rows: IntArray, waiting_ns: int) -> Migrations:
    pages = rows[work.is_migration[rows]]
    kernels = rows[work.is_kernel[rows]]
    number = pages - work.kernels
    size = np.maximum(work.copies["bytes"][number], 0)
    moving = work.intervals(pages)
    faulting = _faulting(work, pages)
    begin, end = work.begin_ns[kernels], work.end_ns[kernels]
    # Of kernels that run at once the one that began first has the time, as in the account.
    begin = np.minimum(np.maximum(begin, _reached(begin, end)), end)
    within = covered_ns(faulting, begin, end)
    to_gpu = work.copies["destination"][number] == Memory.DEVICE
    idle_before = np.maximum(
        work.begin_ns[rows] - _reached(work.begin_ns[rows], work.end_ns[rows]), 0
    )
    before_pages = idle_before[np.isin(rows, pages)]
    running = work.intervals(kernels)
    asked = to_gpu & (covered_ns(running, work.begin_ns[pages], work.end_ns[pages]) > 0)
    faults = work.intervals(pages[to_gpu & (size < WHOLE_BYTES)])
    faulted = covered_ns(faults, begin, end) > 0
    names: dict[str, int] = {}
    for name, time_ns in zip(work.name[kernels].tolist(), within.tolist(), strict=True):
        if time_ns:
            names[work.texts[name]] = names.get(work.texts[name], 0) + time_ns
    return Migrations(
        device,
        pages,
        int(size.sum()),
        int(size[to_gpu].sum()),
        moving.total_ns,
        moving.total_ns - both(moving, running).total_ns,
        waiting_ns,
        int(np.maximum(before_pages - FAULT_NS, 0).sum()),
        int(size[asked].sum()),
        work.intervals(pages[~to_gpu]).total_ns,
        running.total_ns,
        names,
        int((end - begin - within)[faulted].sum()),
    )


def _faulting(work: DeviceWork, pages: IntArray) -> Intervals:
    """Return when pages moved or would soon move again."""
    joined = union(work.begin_ns[pages], work.end_ns[pages] + FAULT_NS)
    return Intervals(joined.begin_ns, joined.end_ns - FAULT_NS)


def waiting_in_kernels_ns(work: DeviceWork, rows: IntArray) -> IntArray:
    """Return how long each of some kernels of a device may have waited for pages, by their rows:
    while pages moved to the GPU or would soon move again, and before the first one did. What a
    kernel does before its first fault is not told apart, but takes no longer than `SLOW_CALL_NS`
    where it is the fault that takes long: a first one maps and loads what a first launch does.
    """
    begin, end = work.begin_ns[rows], work.end_ns[rows]
    pages = np.flatnonzero(work.is_migration)
    pages = pages[work.copies["destination"][pages - work.kernels] == Memory.DEVICE]
    if len(rows):
        pages = pages[work.device[pages] == work.device[rows[0]]]
    if not len(pages):
        return np.zeros(len(rows), np.int64)
    waited = covered_ns(_faulting(work, pages), begin, end)
    moved = np.sort(work.begin_ns[pages])
    first = np.append(moved, np.iinfo(np.int64).max)[np.searchsorted(moved, begin)]
    before = np.where(first < end, np.minimum(first - begin, SLOW_CALL_NS), 0)
    both_ns: IntArray = np.minimum(waited + before, end - begin)
    return both_ns


def _reached(begin_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return until when the kernels before each had run, in the order of their begins."""
    order = np.lexsort((end_ns, begin_ns))
    found = begin_ns.copy()
    found[order[1:]] = np.maximum.accumulate(end_ns[order])[:-1]
    return found
