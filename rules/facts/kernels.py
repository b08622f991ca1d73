"""Kernels that are the same: of one name, launched in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Columns, Profile
from gpuadvisor.rules.facts.intervals import Whole, ends, exact_sum, numbered, percentile

SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
KEYS = ("name", *SHAPE, "registers", "shared_bytes", "device", "stream")
"""What tells kernels apart."""


@dataclass(frozen=True)
class KernelTime:
    """Of all kernels that agree in what stands here first; UNKNOWN (-1) where not recorded."""

    name: str
    grid: tuple[int, int, int]
    """Blocks."""
    block: tuple[int, int, int]
    """Threads."""
    registers: int
    """A thread."""
    shared_bytes: int
    """A block."""
    device: int
    stream: int
    count: int
    time_ns: int
    """Added up."""
    p50_ns: int
    p95_ns: int
    first_row: int
    """Of the table of kernels: the first one to begin."""


def kernel_times(profile: Profile) -> tuple[KernelTime, ...]:
    """Return the kernels of a profile together with their like, the longest in sum first."""
    columns = profile.columns("kernels", (*KEYS, "begin_ns", "duration_ns"))
    begin, end = ends(columns["begin_ns"], columns["duration_ns"])
    if not len(begin):
        return ()
    group = _groups(columns)
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


def _groups(columns: Columns) -> Whole:
    """Return a number for each row that rows share which agree in all keys."""
    group = np.zeros(len(columns["name"]), np.int64)
    for key in KEYS:
        values = columns[key]
        if (values == values[0]).all():
            continue
        used, place = numbered(values)
        _, group = numbered(group * len(used) + place)
    return group


def _time(columns: Columns, texts: Sequence[str], row: int, duration_ns: Whole) -> KernelTime:
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
