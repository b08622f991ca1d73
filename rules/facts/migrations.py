"""Pages of managed memory that moved between a host and its GPUs, and what waited for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Memory
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.idle import Cause, IdleTime
from gpuadvisor.rules.facts.intervals import IntArray, Intervals, both, covered_ns, union

FAULT_NS = 50_000
"""Time to handle a page fault of a GPU, at most: 20 to 50 us (T. Zheng et al., "Towards High
Performance Paged Memory for GPUs", HPCA 2016). Migrations that follow each other sooner leave a
kernel that waits for them no time in between."""


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
    """Time in which the device was idle until pages moved."""
    for_host_ns: int
    """The part of that until pages moved to the host, which touched them: what it did in between
    is in it."""
    in_kernels_ns: Mapping[str, int]
    """Time of kernels while pages moved or would soon move again (`FAULT_NS`), by their names."""

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
    joined = union(work.begin_ns[pages], work.end_ns[pages] + FAULT_NS)
    faulting = Intervals(joined.begin_ns, joined.end_ns - FAULT_NS)
    begin, end = work.begin_ns[kernels], work.end_ns[kernels]
    # Of kernels that run at once the one that began first has the time, as in the account.
    begin = np.minimum(np.maximum(begin, _reached(begin, end)), end)
    within = covered_ns(faulting, begin, end)
    to_gpu = work.copies["destination"][number] == Memory.DEVICE
    idle_before = np.maximum(
        work.begin_ns[rows] - _reached(work.begin_ns[rows], work.end_ns[rows]), 0
    )
    for_host = int(idle_before[np.isin(rows, pages[~to_gpu])].sum())
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
        moving.total_ns - both(moving, work.intervals(kernels)).total_ns,
        waiting_ns,
        min(for_host, waiting_ns),
        names,
    )


def _reached(begin_ns: IntArray, end_ns: IntArray) -> IntArray:
    """Return until when the kernels before each had run, in the order of their begins."""
    order = np.lexsort((end_ns, begin_ns))
    found = begin_ns.copy()
    found[order[1:]] = np.maximum.accumulate(end_ns[order])[:-1]
    return found
