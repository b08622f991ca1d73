"""How the script comes by its batches: the waits for its DataLoaders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Profile, Range
from gpuadvisor.rules.facts.intervals import ends

IN_PROCESS = "SingleProcess"
"""In the name of the iterator that loads in the script's own process."""


@dataclass(frozen=True)
class Loading:
    """All waits for a batch."""

    waits: int
    total_ns: int
    median_ns: float
    first_ns: int
    in_process: bool
    """Whether most of the waiting is the script loading batches itself."""


def loading(profile: Profile) -> Loading:
    """Return how a profile's DataLoaders were waited for."""
    columns = profile.columns("ranges", ("begin_ns", "duration_ns", "name", "kind"))
    rows = np.flatnonzero(columns["kind"] == Range.LOADER)
    if not len(rows):
        return Loading(0, 0, 0.0, 0, False)
    begin, end = ends(columns["begin_ns"][rows], columns["duration_ns"][rows])
    duration, texts = end - begin, profile.header.texts
    own = np.array([IN_PROCESS in texts[name] for name in columns["name"][rows].tolist()])
    total = int(duration.sum())
    return Loading(
        len(rows),
        total,
        float(np.median(duration)),
        int(duration[begin.argmin()]),
        2 * int(duration[own].sum()) > total,
    )
