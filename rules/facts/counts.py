"""What each step of a profile does, counted: kernels, copies, operators, and bytes allocated.

Unlike times these do not depend on what else a machine does. A kernel or copy belongs to the step
that launched it, however late the device comes to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.measurement import Counts
from gpuadvisor.domain.profile import UNKNOWN, Direction
from gpuadvisor.rules.facts.intervals import BoolArray, IntArray
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.steps import Steps
from gpuadvisor.rules.facts.summary import Facts

_DISPATCHED = re.compile(r"(?!autograd::engine)\w+::\w")
"""What the dispatcher calls, such as `aten::add`; not nodes of autograd and compiled regions, which
only hold such calls."""


def counts(facts: Facts) -> dict[str, Counts]:
    """Return what is counted in the steps of a profile: `kernels`, `copies`, `operators` and
    `allocated_bytes`, each by names in the order in which they come.

    What a profile has nothing of in any step is left out, and all where it has no steps.
    """
    steps = facts.steps
    if steps is None:
        return {}
    found = {
        "kernels": _kernels(facts, steps),
        "copies": _copies(facts, steps),
        "operators": _operators(facts, steps),
        "allocated_bytes": _allocated(facts, steps),
    }
    return {kind: each for kind, each in found.items() if each}


def _counted(
    steps: Steps,
    at_ns: IntArray,
    names: Sequence[str],
    sizes: npt.NDArray[np.int64] | None = None,
) -> Counts:
    """Return how many of each name began in each step, or the sum of their sizes."""
    place = steps.place_of(at_ns)
    inside = place >= 0
    found: dict[str, list[int]] = {}
    for row in np.flatnonzero(inside)[np.argsort(at_ns[inside], kind="stable")].tolist():
        of_steps = found.setdefault(names[row], [0] * len(steps.steps))
        of_steps[int(place[row])] += 1 if sizes is None else int(sizes[row])
    return {name: tuple(each) for name, each in found.items()}


def _kernels(facts: Facts, steps: Steps) -> Counts:
    """Count kernels by what they are called, and by the outermost operator that launched them."""
    work, texts = facts.work, facts.profile.header.texts
    rows = np.flatnonzero(work.is_kernel)
    launched = facts.launching.of_like_work[rows]
    outer = _dispatched(facts)[1]
    known = launched != UNKNOWN
    operator = np.full(len(rows), UNKNOWN, np.int64)
    operator[known] = outer[launched[known]]
    called = facts.launching.name
    names = []
    for name, of in zip(work.name[rows].tolist(), operator.tolist(), strict=True):
        by = f" ({texts[int(called[of])]})" if of != UNKNOWN else ""
        names.append(f"{short_name(texts[name])}{by}")
    return _counted(steps, facts.launched.begin_or(facts.work.begin_ns)[rows], names)


def _copies(facts: Facts, steps: Steps) -> Counts:
    """Count copies and memsets by their direction."""
    rows = np.flatnonzero(~facts.work.is_kernel)
    direction = facts.work.copies["direction"].tolist()
    names = [Direction(each).name.lower().replace("_", " ") for each in direction]
    return _counted(steps, facts.launched.begin_or(facts.work.begin_ns)[rows], names)


def _operators(facts: Facts, steps: Steps) -> Counts:
    """Count operators that no other operator calls."""
    texts, called = facts.profile.header.texts, facts.launching.name
    outermost, _ = _dispatched(facts)
    rows = np.flatnonzero(outermost)
    names = [texts[name] for name in called[rows].tolist()]
    return _counted(steps, facts.launching.begin_ns[rows], names)


def _allocated(facts: Facts, steps: Steps) -> Counts:
    """Sum up the bytes that were allocated, by device."""
    columns = facts.profile.columns("memory", ("time_ns", "device", "bytes"))
    rows = np.flatnonzero(columns["bytes"] > 0)
    device = columns["device"][rows].tolist()
    names = ["host" if each == UNKNOWN else f"GPU {each}" for each in device]
    return _counted(steps, columns["time_ns"][rows], names, columns["bytes"][rows])


def _dispatched(facts: Facts) -> tuple[BoolArray, IntArray]:
    """Return which operators are dispatched and called by no other such, and of each operator the
    outermost dispatched one that holds it or is it; UNKNOWN where there is none."""
    texts, tree = facts.profile.header.texts, facts.launching.call_tree
    used, number = np.unique(facts.launching.name, return_inverse=True)
    of_name = np.array([bool(_DISPATCHED.match(texts[name])) for name in used.tolist()], np.bool_)
    plain = of_name[number] if len(used) else np.zeros(0, np.bool_)
    # By places, where each follows its holder.
    outer = np.where(plain[tree.row], np.arange(len(tree.row)), UNKNOWN)
    above = tree.parent.copy()
    while len(rows := np.flatnonzero(above >= 0)):
        holder = above[rows]
        outer[rows] = np.where(plain[tree.row[holder]], holder, outer[rows])
        above[rows] = tree.parent[holder]
    of_row = np.full(len(tree.row), UNKNOWN, np.int64)
    of_row[tree.row] = np.where(outer >= 0, tree.row[np.maximum(outer, 0)], UNKNOWN)
    return of_row == np.arange(len(of_row)), of_row
