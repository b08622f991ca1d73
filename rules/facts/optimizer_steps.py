"""What optimizers do in their steps: time of the host, and kernels that are launched in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.calls import Launches
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import Intervals, Whole, covered_ns, ends, union
from gpuadvisor.rules.facts.steps import OPTIMIZER


@dataclass(frozen=True, eq=False)
class OptimizerSteps:
    """Of all optimizers."""

    names: tuple[str, ...]
    """As PyTorch marks them: `Optimizer.step#Adam.step`."""
    count: int
    times: Intervals
    """Of the host."""
    rows: Whole
    """Of the device's work: kernels that were launched then."""


def optimizer_steps(
    profile: Profile, work: DeviceWork, launched: Launches, device: int | None
) -> OptimizerSteps:
    """Return the steps of a profile's optimizers, and their kernels on a device."""
    columns = profile.columns("ranges", ("begin_ns", "duration_ns", "name"))
    texts = profile.header.texts
    used = np.unique(columns["name"])
    names = [name for name in used.tolist() if OPTIMIZER.match(texts[name])]
    at = np.flatnonzero(np.isin(columns["name"], names))
    begin, end = ends(columns["begin_ns"][at], columns["duration_ns"][at])
    times = union(begin, end)
    mine = work.is_kernel & launched.known & (work.device == device)
    rows = np.flatnonzero(mine)
    called = launched.begin_ns[rows]
    rows = rows[covered_ns(times, called, called + 1) > 0]
    return OptimizerSteps(tuple(texts[name] for name in names), len(times), times, rows)
