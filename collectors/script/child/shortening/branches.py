"""Which marked branches of the script were reached, and which were taken."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpuadvisor.collectors.script.child.shortening.branch_marking import BRANCH, VALUE, Mark
from gpuadvisor.collectors.script.child.shortening.progress import Progress
from gpuadvisor.domain.rehearsal import Branch, Touch

_PLAIN = (bool, int, float, str, type(None))
_MOST_MEMBERS = 64
"""Members of a list that are compared."""
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType)


def _never() -> bool:
    return False


is_traced: Callable[[], bool] = _never
"""Says whether Dynamo is reading the code that calls it; `loops` says how."""
_branches: Branches | None = None


def passed(number: int, taken: bool) -> None:
    """Stand before a branch, and in it."""
    if not is_traced() and _branches is not None and number < _branches.count:
        _branches.passed(number, taken)


def stored(number: int, value: Any) -> Any:
    """Stand around a value that is stored."""
    if not is_traced() and _branches is not None and number < _branches.count:
        _branches.stored(number, value)
    return value


def begin(progress: Progress) -> Branches:
    """Provide what marks call, and return what knows the branches."""
    global _branches
    _branches = Branches(progress)
    setattr(builtins, BRANCH, passed)
    setattr(builtins, VALUE, stored)
    return _branches


class Reached:
    """What is known of a marked branch."""

    __slots__ = ("first", "in_pass", "mark", "taken", "turns", "value")

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.first = -1
        """Steps, calls and batches before it was first reached; -1 if it never was."""
        self.turns = False
        """Whether it was reached again after more of them, as in a loop that takes steps."""
        self.taken = False
        self.in_pass = False
        """Whether it was reached while a pass over a loader was going on."""
        self.value: Any = ...
        """What was stored first."""


class Branches:
    """All marked branches of this process."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._all: list[Reached] = []

    def add(self, marks: Sequence[Mark]) -> None:
        """Take over the branches of one more file, which are numbered from `count` on."""
        self._all.extend(map(Reached, marks))

    @property
    def count(self) -> int:
        """How many branches there are; the number of the next."""
        return len(self._all)

    def passed(self, number: int, taken: bool) -> None:
        """Note that a branch was reached, or taken."""
        branch = self._all[number]
        if taken:
            branch.taken = True
            return
        progress = self._progress
        now = progress.batches + progress.steps + progress.thread.events
        if branch.first < 0:
            branch.first = now
        branch.turns |= now != branch.first
        branch.in_pass |= bool(progress.open)

    def stored(self, number: int, value: Any) -> None:
        """Note what is stored; a second value is what makes it a branch that was taken."""
        self.passed(number, False)
        branch, known = self._all[number], _comparable(value)
        branch.value = known if branch.value is ... else branch.value
        branch.taken |= known is None or known != branch.value

    def restart(self) -> None:
        """Forget what was seen, as a forked process does about its parent's branches."""
        self._all = [Reached(each.mark) for each in self._all]

    def report(self, has_steps: Callable[[int], bool]) -> Iterator[Branch]:
        """Yield the branches that were reached in the course of steps.

        `has_steps` says of a loop, by its number, whether it takes steps.
        """
        for each in self._all:
            mark = each.mark
            outer = None if mark.outer is None else self._all[mark.outer]
            turns = each.turns or (outer is not None and outer.turns)
            turns &= each.first >= 0
            is_given = mark.is_limit and each.value not in (..., (None,))
            if not (turns or mark.is_function or is_given):
                continue
            touches = tuple(
                touch
                for touch in mark.touches
                if touch not in (Touch.ROWS, Touch.CLOCK)
                or mark.site is None
                or has_steps(mark.site)
            )
            if touches:
                yield Branch(
                    mark.place, mark.what, touches, each.taken, each.in_pass or mark.is_function
                )


def _comparable(value: Any) -> tuple[Any, ...] | None:
    """Return what tells a value from another; None where only its type knows."""
    if type(value) in _PLAIN:
        return (value,)
    if type(value) in _FUNCTIONS:
        return (getattr(value, "__code__", value),)
    if type(value) in (list, tuple):
        members = tuple(map(_comparable, value[:_MOST_MEMBERS]))
        return None if None in members or len(value) > _MOST_MEMBERS else members
    try:  # a number of numpy's or torch's
        return (value.item(),) if value.ndim == 0 else None
    except Exception:
        return None
