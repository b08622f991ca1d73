"""The `nn.Module`s that ran when, as the torch profiler names them with `with_stack=True`.

A module is its path from the outermost one that ran: `Net_0.Sequential_1.Linear_2`, where the
profiler numbers the modules of a class in the order in which it sees them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Profile, Range
from gpuadvisor.rules.facts.intervals import FloatArray, ends
from gpuadvisor.rules.facts.joins import Ran, call_tree, thread_keys

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
