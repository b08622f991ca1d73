"""How much memory was allocated when each step began, to tell whether it grows."""

from __future__ import annotations

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.steps import Steps


def allocated_at_steps(
    profile: Profile, steps: Steps | None, device: int | None
) -> tuple[int, ...]:
    """Return the allocated bytes at the begin of each step that has an event of memory before it;
    nothing where no totals were recorded."""
    columns = profile.columns("memory", ("time_ns", "device", "allocated_bytes"))
    mine = (columns["device"] == device) & (columns["allocated_bytes"] >= 0)
    rows = np.flatnonzero(mine) if device is not None else np.empty(0, np.int64)
    if steps is None or not len(rows):
        return ()
    rows = rows[np.argsort(columns["time_ns"][rows], kind="stable")]
    begins = np.array([step.begin_ns for step in steps.steps], np.int64)
    last = np.searchsorted(columns["time_ns"][rows], begins, "right") - 1
    return tuple(columns["allocated_bytes"][rows[last[last >= 0]]].tolist())
