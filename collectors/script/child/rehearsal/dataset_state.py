"""The state of all that the workers of a DataLoader would get a copy of.

A copy that changes in a worker changes nowhere else, and what the script changes later reaches no
worker that has begun. A state is a digest of each part, by its attribute path; two of them show
what changed. None of the script's code is run to take one, and its cost is bounded.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuadvisor.collectors.script.child.rehearsal.generators import (
    GeneratorState,
    global_generators,
)
from gpuadvisor.collectors.script.child.rehearsal.inspection import attributes_of
from gpuadvisor.collectors.script.child.rehearsal.possible_changes import WRITES
from gpuadvisor.collectors.script.child.rehearsal.walk import Part, Walk
from gpuadvisor.domain.rehearsal import (
    ATTRIBUTES,
    CHILDREN,
    COUNTED,
    LEFT,
    OF_ITS_TIME,
    OF_ITS_WORKER,
    ONE_FILE,
    RAISES,
    REPORTED,
    UNSENT,
    Moment,
    StateChange,
    StateKind,
)

MAIN_PROCESS = ("batch_sampler", "sampler")
"""Attributes of a DataLoader that its workers get no copy of. What the data set shares with one of
these counts as the data set's."""
ROOTS = ("dataset", "collate_fn", "worker_init_fn", *MAIN_PROCESS)
"""Attributes of a DataLoader from which its state is looked for."""
LOUD = (StateKind.GENERATOR, StateKind.HANDLE, StateKind.ITERATOR)
"""Kinds that are named by themselves also where they came or went with the object around them."""
NAMED = {ATTRIBUTES, CHILDREN, OF_ITS_TIME, OF_ITS_WORKER, ONE_FILE, REPORTED, UNSENT}
"""Paths of what code may do that are no attribute's."""
KEPT = (StateKind.VALUE, StateKind.CONTAINER)
"""Kinds that the script may look at after the samples were read."""


@dataclass(frozen=True)
class State:
    """What a DataLoader's state was at one moment."""

    parts: Mapping[str, Part]
    """Attribute path (`dataset.rng`, `collate_fn.alpha`, `global LEVEL`, `numpy.random`) to what is
    there."""
    unseen: tuple[str, ...]
    """Paths of what was not looked at, or only in part: too much, or not to be seen from Python."""
    process: int
    """The process in which it was taken: others know the same content by other addresses."""
    is_cut: bool = False
    """Whether there were more parts than are looked at, so that one may be missing for that."""
    generators: Mapping[str, GeneratorState] = field(default_factory=dict)
    """Attribute path to the state of each generator of random numbers among the parts."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Attribute path to the digest of memory that processes share."""
    possible: Mapping[str, str] = field(default_factory=dict)
    """Attribute path of values and containers to the code that changes them for some samples."""
    written: frozenset[str] = frozenset()
    """Names on the paths of all that reading samples stores in."""


def state_of(roots: Mapping[str, Any]) -> State:
    """Return the state of some objects, each by the name that its paths begin with."""
    walk = Walk()
    walk.run(global_generators())  # first, as a data set may hold one of them
    walk.run({name: root for name, root in roots.items() if name not in MAIN_PROCESS})
    walk.run({name: root for name, root in roots.items() if name in MAIN_PROCESS})
    unseen = tuple(dict.fromkeys(walk.unseen))
    kept = {path for path, part in walk.parts.items() if part.kind in KEPT and part.digest}
    possible = {
        path: place
        for path, place in walk.possible.items()
        if path in kept | NAMED or path.startswith((COUNTED, LEFT, RAISES))
    }
    stores = (path[len(WRITES) :] for path in walk.possible if path.startswith(WRITES))
    written = frozenset(name for path in stores for name in _names(path))
    return State(
        walk.parts,
        unseen,
        os.getpid(),
        walk.is_cut,
        walk.generators,
        walk.shared,
        possible,
        written,
    )


def loader_roots(loader: Any) -> dict[str, Any]:
    """Return what a DataLoader's state is looked for in."""
    own = attributes_of(loader)
    return {name: own[name] for name in ROOTS if own.get(name) is not None}


def changes(before: State, after: State) -> list[tuple[str, StateKind, str]]:
    """Return path, kind and type of each part that differs, as it is after or else was before.

    Where a container or an object came, went or was replaced, what is in it is not listed again,
    but for generators, handles and iterators. What one of the two did not look at is not compared.
    """
    same_process = before.process == after.process
    changed: dict[str, Part] = {}
    for path in (*before.parts, *(path for path in after.parts if path not in before.parts)):
        old, new = before.parts.get(path), after.parts.get(path)
        if old is None or new is None:
            other = before if old is None else after
            if not other.is_cut and not _is_below(path, other.unseen):
                changed[path] = new or old  # type: ignore[assignment]
        elif old.differs(new, same_process):
            changed[path] = new
    return [
        (path, part.kind, part.type_name)
        for path, part in changed.items()
        if part.kind in LOUD
        or (path in before.parts and path in after.parts)
        or not any(parent in changed for parent in _parents(path))
    ]


def fed_back(
    before: State, after: State, has_workers: bool = False, drawn: frozenset[str] = frozenset()
) -> list[tuple[str, StateKind, str]]:
    """Return path, kind and type of what changed of all that workers see late: what they share with
    the script, and what gives them their indices.

    Where workers read meanwhile, what reading stores in may have been changed by them. `drawn` are
    the paths of what a sampler looked at as the pass began, and not since.
    """
    shared = [
        (path, StateKind.VALUE, "shared memory")
        for path, digest in after.shared.items()
        if before.shared.get(path, digest) != digest
        and not (has_workers and _names(path)[-1] in after.written)
    ]
    in_main = [
        each
        for each in changes(before, after)
        if each[0].split(".")[0] in MAIN_PROCESS
        and each[1] is not StateKind.GENERATOR
        and each[0] not in drawn
    ]
    return [*shared, *in_main]


def held(state: State) -> list[tuple[str, StateKind, str]]:
    """Return path, kind and type of the open handles and the iterators that are there.

    Not of a data set that is an iterator itself: it is known by what it reads from.
    """
    return [
        (path, part.kind, part.type_name)
        for path, part in state.parts.items()
        if part.kind in (StateKind.HANDLE, StateKind.ITERATOR) and path not in ROOTS
    ]


def _names(path: str) -> list[str]:
    """Return the names on a path: `dataset`, `level`."""
    return path.replace(" ", ".").partition("[")[0].split(".")


def _parents(path: str) -> list[str]:
    """Return the paths of what a path is part of."""
    return [path[:i] for i, character in enumerate(path) if character in ".[" and i]


def _is_below(path: str, others: tuple[str, ...]) -> bool:
    return any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in others)


class StateWatch:
    """One loader's state over its passes, from which comes what changed and when."""

    def __init__(self, loader: int) -> None:
        self._loader = loader
        self._last: State | None = None
        self._made: Callable[[], Any] = lambda: None
        """Gives the DataLoader of the last pass, or None where it is gone."""
        self._epoch = -1
        self.unseen: dict[str, None] = {}
        """Paths that were never, or not wholly, looked at, in the order in which they came up."""

    def pass_begins(self, loader: Any, state: State) -> list[StateChange]:
        """Take the state before a pass's first batch; return what changed since the last pass.

        Before the first pass that is what is held: handles and iterators that are open already.
        Where the script makes its DataLoader anew for each pass, it is nothing: no worker lives
        longer than the loader, so that those of the next pass see all that was changed.
        """
        self._epoch += 1
        last, self._last = self._last, state
        is_same, self._made = self._made() is loader, weakref.ref(loader)
        self.unseen.update(dict.fromkeys(state.unseen))
        if last is None:
            return self._named(held(state), Moment.HELD)
        if not is_same:
            return []
        return self._named(changes(last, state), Moment.BETWEEN_EPOCHS)

    def pass_ends(self, state: State) -> list[StateChange]:
        """Take the state after a pass; return what changed in it."""
        last, self._last = self._last, state
        self.unseen.update(dict.fromkeys(state.unseen))
        return [] if last is None else self._named(changes(last, state), Moment.READING)

    def _named(self, found: list[tuple[str, StateKind, str]], moment: Moment) -> list[StateChange]:
        return [
            StateChange(self._loader, max(self._epoch, 0), path, kind, moment, detail)
            for path, kind, detail in found
        ]
