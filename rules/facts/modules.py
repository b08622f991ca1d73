"""The `nn.Module`s that ran when, as the torch profiler names them with `with_stack=True`, and what
each takes: time on its thread, work of the devices, and their idle time in it.

A module is its path from the outermost one that ran: `Net_0.Sequential_1.Linear_2`, where the
profiler numbers the modules of a class in the order in which it sees them.

Modules run in the forward pass. What the backward pass launches belongs to the module of the
forward operator that it is for, as far as the trace tells that (`facts.backward`); what adds up
gradients, and what optimizers do, is in none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Profile, Range
from gpuadvisor.rules.facts.intervals import FloatArray, ends
from gpuadvisor.rules.facts.joins import Ran, call_tree, thread_keys

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.summary import Facts

MARK = "nn.Module: "
"""How PyTorch's names of ranges begin that are calls of modules."""


@dataclass(frozen=True, eq=False)
class Modules(Ran):
    """Calls of modules by their numbers, and the tree of their paths."""

    names: tuple[str, ...]
    """The last part of each module's path; a module comes after the one that holds it."""
    parents: tuple[int, ...]
    """The number of the module that holds each; UNKNOWN of an outermost one."""

    def path(self, module: int) -> str:
        """Return the path of a module; empty of UNKNOWN."""
        names: list[str] = []
        while module != UNKNOWN:
            names.append(self.names[module])
            module = self.parents[module]
        return ".".join(reversed(names))

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all modules, by their numbers."""
        return tuple(map(self.path, range(len(self.names))))

    def with_held(self, values: FloatArray) -> FloatArray:
        """Return each module's value and those of all that it holds, together."""
        total = values.copy()
        for module in range(len(total) - 1, -1, -1):
            if (parent := self.parents[module]) != UNKNOWN:
                total[parent] += total[module]
        return total


def modules(profile: Profile) -> Modules:
    """Return the modules of a profile; none where it has no Python functions."""
    texts = profile.header.texts
    columns = profile.columns("ranges", ("kind", "name"))
    named = np.zeros(len(texts) + 1, np.bool_)
    python = columns["kind"] == Range.PYTHON
    for text in np.unique(columns["name"][python]).tolist():
        named[text] = 0 <= text < len(texts) and texts[text].startswith(MARK)
    rows = np.flatnonzero(python & named[np.clip(columns["name"], 0, len(texts))])
    kept = profile.columns("ranges", ("begin_ns", "duration_ns", "process", "thread"))
    process, thread = kept["process"][rows], kept["thread"][rows]
    begin, end = ends(kept["begin_ns"][rows], kept["duration_ns"][rows])
    key, _ = thread_keys(process, thread, process[:0], thread[:0])
    tree = call_tree(begin, end, key)
    numbers: dict[tuple[int, int], int] = {}
    of_place: list[int] = []
    text_of = columns["name"][rows][tree.row].tolist()
    for parent, text in zip(tree.parent.tolist(), text_of, strict=True):
        held_by = UNKNOWN if parent == UNKNOWN else of_place[parent]
        of_place.append(numbers.setdefault((held_by, text), len(numbers)))
    module = np.empty(len(rows), np.int64)
    module[tree.row] = of_place
    names = tuple(texts[text].removeprefix(MARK) for _, text in numbers)
    return Modules(
        begin, end, process, thread, module, names, tuple(parent for parent, _ in numbers)
    )


@dataclass(frozen=True)
class ModuleTime:
    """All calls of a module, with those of the modules that it calls."""

    name: str
    """In the profiler's words: class and number."""
    depth: int
    """Number of modules that hold it."""
    calls: int
    host_ns: int
    """Time of its calls on their threads."""
    device_ns: int
    """Time of the kernels and copies that it launched in the forward pass."""
    backward_ns: int
    """Time of those that the backward pass launched for it."""
    idle_ns: int
    """Time in which a device was idle while it, or the backward pass for it, ran on the thread that
    launches."""


def module_times(facts: Facts) -> tuple[ModuleTime, ...]:
    """Return the modules of a profile, each before those that it calls, the longest first."""
    found = facts.modules
    count = len(found.names)
    if not count:
        return ()
    calls = np.bincount(found.number, minlength=count)
    host = np.bincount(found.number, (found.end_ns - found.begin_ns).astype(np.float64), count)
    forward, backward = map(found.with_held, facts.places.work_by_module())
    idle = found.with_held(facts.places.idle_by_module())
    held: dict[int, list[int]] = {}
    for module, parent in enumerate(found.parents):
        held.setdefault(parent, []).append(module)
    times: list[ModuleTime] = []
    left = [(module, 0) for module in _longest_last(held.get(UNKNOWN, []), host)]
    while left:
        module, depth = left.pop()
        numbers = (int(each[module]) for each in (calls, host, forward, backward, idle))
        times.append(ModuleTime(found.names[module], depth, *numbers))
        left += [(each, depth + 1) for each in _longest_last(held.get(module, []), host)]
    return tuple(times)


def _longest_last(modules: list[int], host_ns: np.ndarray) -> list[int]:
    return sorted(modules, key=lambda each: float(host_ns[each]))
