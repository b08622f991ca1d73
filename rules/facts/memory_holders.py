"""What holds a device's memory at its peak: by category, line, module and operator.

Nothing in a trace says what a tensor is for. What it says is when memory was allocated and when it
was released, and that tells the categories of a training step apart. What the forward pass
allocates and the backward pass releases was kept for it, as activations are; what the backward pass
allocates and leaves behind are gradients; what an optimizer's step leaves behind is its state.
Parameters, and all else that is older than the recording, are one category. Without a backward pass
in the recording there are no categories.

The pass at a time is that of the operator that began last: autograd's own, or another one of a
thread that had a forward pass. An optimizer's step is the range that PyTorch marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.backward import is_backward
from gpuadvisor.rules.facts.intervals import LATEST_NS, IntArray, covered_ns
from gpuadvisor.rules.facts.joins import enclosing
from gpuadvisor.rules.facts.memory import Living, MemoryUse

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.summary import Facts

ADDRESS = "memory.address"
MOST_HOLDERS = 10
"""Lines, modules and operators that are listed, those that hold most."""


class Pass(IntEnum):
    """What a program that trains is doing."""

    FORWARD = 0
    """Or anything that is neither of the others."""
    BACKWARD = 1
    OPTIMIZER = 2


class Held(StrEnum):
    """What memory is held for, as far as times of allocation and release tell."""

    OLDER = "older"
    """Allocated before the recording, or the part of it that is looked at: parameters, and
    whatever else was there."""
    KEPT = "kept_for_backward"
    """Allocated in the forward pass, released by the backward pass: activations."""
    GRADIENTS = "gradients"
    """Allocated in the backward pass, which it outlives."""
    OPTIMIZER_STATE = "optimizer_state"
    """Allocated in an optimizer's step, which it outlives."""
    TEMPORARY = "temporary"
    """Allocated in the backward pass or an optimizer's step, and released in the same."""
    OTHER = "other"
    """All else: inputs, outputs, what the forward pass itself releases."""


@dataclass(frozen=True)
class Holder:
    """Memory at the peak that has something in common."""

    name: str
    """A category, a source line with its function, a module's path, an operator."""
    bytes: int
    count: int
    """Allocations; 0 of those that are older than the recording."""


@dataclass(frozen=True)
class HeldMemory:
    """What holds the memory of a device at its peak; what is in no list is not known."""

    device: int
    bytes: int
    """All of it."""
    categories: tuple[Holder, ...]
    """They sum to all of it; none where the recording has no backward pass."""
    lines: tuple[Holder, ...]
    modules: tuple[Holder, ...]
    operators: tuple[Holder, ...]


def held_memory(facts: Facts) -> tuple[HeldMemory, ...]:
    """Return what holds each device's memory; none where allocations have no addresses."""
    if ADDRESS in facts.profile.header.not_measured:
        return ()
    return tuple(_held(facts, use) for use in facts.memory)


def held_for(facts: Facts) -> Mapping[int, tuple[Holder, ...]]:
    """Return the categories of each device's memory alone, which need no places."""
    passes = _Passes(facts)
    if ADDRESS in facts.profile.header.not_measured or not passes.are_known:
        return {}
    return {
        use.device: _categories(passes, use, facts.living_at_peak[use.device])
        for use in facts.memory
    }


def _held(facts: Facts, use: MemoryUse) -> HeldMemory:
    found = facts.living_at_peak[use.device]
    line, module, _, _, operator = facts.places.at_allocations(found.begin_ns)
    names = facts.profile.columns("operators", ("name",))["name"]
    texts, lines = facts.profile.header.texts, facts.sources.lines
    known = np.where(operator == UNKNOWN, UNKNOWN, names[operator] if len(names) else UNKNOWN)
    return HeldMemory(
        use.device,
        use.peak_allocated_bytes,
        facts.memory_held_for.get(use.device, ()),
        _largest(line, found.bytes, [f"{each.source} ({each.function})" for each in lines]),
        _largest(module, found.bytes, facts.modules.paths),
        _largest(known, found.bytes, texts),
    )


def _categories(passes: _Passes, use: MemoryUse, found: Living) -> tuple[Holder, ...]:
    made, gone = passes.at(found.begin_ns), passes.at(found.end_ns)
    gone = np.where(found.end_ns == UNKNOWN, UNKNOWN, gone)
    same = (made == gone) & (passes.number(found.begin_ns) == passes.number(found.end_ns))
    choices = (
        (Held.TEMPORARY, same & (made != Pass.FORWARD)),
        (Held.GRADIENTS, made == Pass.BACKWARD),
        (Held.OPTIMIZER_STATE, made == Pass.OPTIMIZER),
        (Held.KEPT, gone == Pass.BACKWARD),
    )
    number = np.full(len(found.bytes), len(choices), np.int64)
    for place, (_, of) in reversed(list(enumerate(choices))):
        number[of] = place
    names = [*(name for name, _ in choices), Held.OTHER]
    since = found.begin_ns >= passes.begin_ns
    told = [*_largest(number[since], found.bytes[since], names)]
    if older := use.older_bytes + int(found.bytes[~since].sum()):
        told.append(Holder(str(Held.OLDER), older, 0))
    return tuple(sorted(told, key=lambda each: -each.bytes))


class _Passes:
    """Which pass a program that trains was in at a time."""

    def __init__(self, facts: Facts) -> None:
        ran = facts.launching
        columns = facts.profile.columns("operators", ("sequence", "forward_thread"))
        later = is_backward(facts.profile)
        self.are_known = bool(later.any())
        begin, end, key = ran.begin_ns, ran.end_ns, ran.thread_key
        makes = (columns["sequence"] >= 0) & (columns["forward_thread"] <= 0)
        inside = np.zeros(len(key), np.bool_)
        # Only a backward pass on the CPU is on a thread that has a forward pass as well.
        both = np.flatnonzero(np.isin(key, np.intersect1d(key[later], key[makes])))
        held = enclosing(begin[later], end[later], key[later], begin[both], key[both])
        inside[both] = held != UNKNOWN
        forward = ~inside & np.isin(key, key[makes & ~inside])
        times = np.concatenate((begin[forward], begin[later]))
        kinds = np.repeat((Pass.FORWARD, Pass.BACKWARD), (forward.sum(), later.sum()))
        order = np.argsort(times, kind="stable")
        self._begin, self._kind = times[order], kinds[order]
        self.begin_ns = int(self._begin.min(initial=LATEST_NS))
        """When the first operator began: of what was before, the pass is not known."""
        self._optimizer = facts.optimizer_steps.times

    def at(self, time_ns: IntArray) -> IntArray:
        """Return the pass at each time."""
        place = np.searchsorted(self._begin, time_ns, "right") - 1
        kind = np.where(place < 0, Pass.FORWARD, self._kind[place])
        steps = covered_ns(self._optimizer, time_ns, time_ns + 1) > 0
        found: IntArray = np.where(steps, Pass.OPTIMIZER, kind)
        return found

    def number(self, time_ns: IntArray) -> IntArray:
        """Return a number for each time, equal within one pass or one optimizer's step."""
        changes = self._begin[1:][self._kind[1:] != self._kind[:-1]]
        edges = np.concatenate((changes, self._optimizer.begin_ns, self._optimizer.end_ns))
        return np.searchsorted(np.sort(edges), time_ns, "right")


def _largest(numbers: IntArray, size: IntArray, names: Sequence[str]) -> tuple[Holder, ...]:
    """Return the names that hold most, those with most first."""
    known = numbers != UNKNOWN
    used, place = np.unique(numbers[known], return_inverse=True)
    held = np.zeros(len(used), np.int64)
    np.add.at(held, place, size[known])
    count = np.bincount(place, minlength=len(used))
    order = np.argsort(-held, kind="stable")[:MOST_HOLDERS]
    return tuple(Holder(str(names[used[at]]), int(held[at]), int(count[at])) for at in order)
