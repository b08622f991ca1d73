"""How the script comes by its batches: the waits for its DataLoaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gpuadvisor.domain.profile import Profile, Range
from gpuadvisor.rules.facts.intervals import Intervals, by_key, ends, union
from gpuadvisor.rules.facts.joins import thread_keys
from gpuadvisor.rules.facts.starting import FEWEST_STEPS, LONGER

Waits: TypeAlias = Mapping[tuple[int, int], Intervals]
"""The times in which each process and thread waited for a batch."""
IN_PROCESS = "SingleProcess"
"""Part of the name of the iterator that loads in the script's own process."""
READY_NS = 200_000
"""Taking a batch from the workers lasts so long at most where it is ready: 0.07 to 0.19 ms under
Kineto in traces of A100, V100 and RTX 4090 hosts in which nothing is waited for."""


@dataclass(frozen=True)
class Loading:
    """All waits of a run for its batches."""

    waits: int
    total_ns: int
    in_process: bool
    """Whether most of the waiting is the script loading batches itself."""
    late_ns: float
    """Time that is waited for batches which are late: without what taking a ready one lasts, and
    without the start of the workers."""

    longest_ns: float = 0.0
    """The longest part of it."""

    @property
    def late_share(self) -> float:
        """Share of the waiting (0 to 1) in which batches were late."""
        return self.late_ns / self.total_ns if self.total_ns else 0.0


def loader_waits(profile: Profile) -> Waits:
    """Return when each process and thread waited for a batch of a DataLoader."""
    ranges = profile.columns("ranges", ("begin_ns", "duration_ns", "process", "thread", "kind"))
    rows = np.flatnonzero(ranges["kind"] == Range.LOADER)
    begin, end = ends(ranges["begin_ns"][rows], ranges["duration_ns"][rows])
    process, thread = ranges["process"][rows], ranges["thread"][rows]
    key = thread_keys(process, thread, process[:0], thread[:0])[0]
    return {
        (int(process[at[0]]), int(thread[at[0]])): union(begin[at], end[at])
        for _, at in by_key(key)
    }


def loading(profile: Profile) -> Loading:
    """Return how a profile's DataLoaders were waited for."""
    columns = profile.columns("ranges", ("begin_ns", "duration_ns", "name", "kind"))
    rows = np.flatnonzero(columns["kind"] == Range.LOADER)
    if not len(rows):
        return Loading(0, 0, False, 0.0)
    begin, end = ends(columns["begin_ns"][rows], columns["duration_ns"][rows])
    duration, texts = end - begin, profile.header.texts
    own = np.array([IN_PROCESS in texts[name] for name in columns["name"][rows].tolist()])
    total, median = int(duration.sum()), float(np.median(duration))
    in_process = 2 * int(duration[own].sum()) > total
    late = duration.astype(np.float64)
    if not in_process:
        first = int(begin.argmin())
        # Several workers that start alike let wait for every other batch: that is no start.
        longest = late[first] >= late.max()
        if len(rows) >= FEWEST_STEPS and longest and late[first] >= LONGER * median:
            late[first] = median
        late = np.maximum(late - READY_NS, 0.0)
    return Loading(len(rows), total, in_process, float(late.sum()), float(late.max()))
