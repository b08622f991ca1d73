"""Elementwise kernels that follow each other on a stream, which one fused kernel could do.

Each reads its input from memory and writes its output there; fused, what passes between them stays
in registers. Filling a tensor computes nothing of another one, and ends a chain as anything else
does that is not elementwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import Intervals, Whole, by_key, covered_ns
from gpuadvisor.rules.facts.kernel_families import Family, kind_of

FEWEST = 3
"""Kernels of a chain: what two could save is not worth a compiler. [own]"""
FILLS = re.compile(r"FillFunctor")
TENSORS = re.compile(r"[aA]rray<char\s*\*, (\d+)")
"""In names of PyTorch's kernels: how many tensors they read and write."""
USUAL_TENSORS = 3
"""Where the name does not tell: two operands and a result."""


@dataclass(frozen=True, eq=False)
class Chain:
    """Of kernels."""

    rows: Whole
    """Of the device's work, in their order."""
    time_ns: int
    moved: int
    """Tensors that are read and written."""
    in_optimizer: bool
    """Launched within an optimizer's step."""

    @property
    def spared_share(self) -> float:
        """Of what is moved: each link has a tensor that is written and read again by the next
        kernel."""
        return 2 * (len(self.rows) - 1) / self.moved

    @property
    def most_spared_share(self) -> float:
        """The same where all kernels share their other operands too: two are read, one written."""
        return max(self.spared_share, 1 - 3 / self.moved)


def chains(
    work: DeviceWork, device: int | None, launched_ns: Whole, optimizer: Intervals
) -> tuple[Chain, ...]:
    """Return the chains of a device; `launched_ns` says when each row's call began."""
    rows = np.flatnonzero(work.device == device) if device is not None else np.empty(0, np.int64)
    found = []
    for _, at in by_key(work.stream[rows]):
        stream = rows[at]
        stream = stream[np.lexsort((work.end_ns[stream], work.begin_ns[stream]))]
        found += _of_stream(work, stream, launched_ns, optimizer)
    return tuple(found)


def _of_stream(
    work: DeviceWork, rows: Whole, launched_ns: Whole, optimizer: Intervals
) -> list[Chain]:
    used, place = np.unique(work.name[rows], return_inverse=True)
    tensors = np.array([_tensors(work.texts[name]) if name >= 0 else 0 for name in used.tolist()])
    moved = tensors[place] if len(used) else np.empty(0, np.int64)
    inside = moved > 0
    change = np.flatnonzero(np.diff(inside.astype(np.int8), prepend=-1))
    stops = np.append(change[1:], len(rows))
    stepping = covered_ns(optimizer, launched_ns[rows], launched_ns[rows] + 1) > 0
    duration = work.duration_ns[rows]
    return [
        Chain(
            rows[start:stop],
            int(duration[start:stop].sum()),
            int(moved[start:stop].sum()),
            bool(stepping[start]),
        )
        for start, stop in zip(change.tolist(), stops.tolist(), strict=True)
        if inside[start] and stop - start >= FEWEST
    ]


def _tensors(name: str) -> int:
    """Return how many tensors a kernel reads and writes; 0 where it cannot be fused."""
    if kind_of(name).family is not Family.ELEMENTWISE or FILLS.search(name):
        return 0
    told = TENSORS.search(name)
    return max(int(told[1]), 2) if told else USUAL_TENSORS
