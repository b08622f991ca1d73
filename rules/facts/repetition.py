"""Whether a run launches the same kernels again and again, so that a CUDA graph can replay them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.calls import Launches
from gpuadvisor.rules.facts.device_work import DeviceWork
from gpuadvisor.rules.facts.intervals import Whole
from gpuadvisor.rules.facts.steps import Steps
from gpuadvisor.rules.facts.what_if import Host, Timeline

MOST_DIFFERENT = 0.1
"""Of a step's kernels may be others than in the median step, or part of a graph already. [own]"""
MOST_WAITS = 1.0
"""For the device in a step: one may stand at its end. [own]"""


@dataclass(frozen=True)
class Repetition:
    """Of the steps of a run."""

    kernels_a_step: float
    """0 where neither steps are known nor does anything repeat."""
    alike: bool
    """Whether steps launch the same kernels."""
    can_be_graphs: bool
    """And they are launched one by one, and the host does not wait in between."""


NONE = Repetition(0.0, False, False)


def repetition(
    profile: Profile,
    work: DeviceWork,
    launched: Launches,
    line: Timeline | None,
    steps: Steps | None,
) -> Repetition:
    """Return what repeats: from step to step, or without steps as often as each kernel ran."""
    if not work.kernels or line is None:
        return NONE
    number = _numbers(profile)
    times = _times(number)
    if steps is not None and len(steps.steps) > 1:
        usual, alike = _in_steps(number, launched, steps)
    elif times > 1:
        usual, alike = work.kernels / times, True
    else:
        return NONE
    if usual <= 0:
        return NONE
    waits = int((line.wait_kind == Host.SYNCHRONIZING).sum())
    seldom = waits <= MOST_WAITS * work.kernels / usual + 1
    alone = work.in_graph[: work.kernels].mean() < MOST_DIFFERENT
    return Repetition(usual, alike, bool(alike and seldom and alone))


def _numbers(profile: Profile) -> Whole:
    """Return a number for each kernel's name and grid."""
    columns = profile.columns("kernels", ("name", "grid_x", "grid_y", "grid_z"))
    code = columns["name"].astype(np.int64)
    for axis in "xyz":
        code = code * 1_000_003 + columns[f"grid_{axis}"]
    numbers: Whole = np.unique(code, return_inverse=True)[1]
    return numbers


def _times(number: Whole) -> int:
    """Return the greatest number of times of which each kernel ran a multiple."""
    return int(np.gcd.reduce(np.bincount(number)))


def _in_steps(number: Whole, launched: Launches, steps: Steps) -> tuple[float, bool]:
    """Return how many kernels the median step launches, and whether the others launch the same."""
    begin = np.array([step.begin_ns for step in steps.steps], np.int64)
    stop = begin + np.array([step.duration_ns for step in steps.steps], np.int64)
    rows = np.flatnonzero(launched.known[: len(number)])
    called = launched.begin_ns[rows]
    step = np.searchsorted(begin, called, "right") - 1
    inside = (step >= 0) & (called < stop[np.maximum(step, 0)])
    # Only as many columns as there are kernels, and few steps: 5 by 2,000 in real profiles.
    counts = np.zeros((len(begin), int(number.max()) + 1), np.int64)
    np.add.at(counts, (step[inside], number[rows[inside]]), 1)
    usual = np.median(counts, axis=0)
    total = float(usual.sum())
    # The first and the last step may be cut off, or warm up.
    different = float(np.median(np.abs(counts - usual).sum(axis=1)))
    return total, different <= MOST_DIFFERENT * total
