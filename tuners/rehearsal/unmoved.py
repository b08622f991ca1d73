"""Numbers that training does not move: counts, positions, learning rates, rows.

What a life writes and prints is compared within limits, as training amplifies rounding. For a count
that is no excuse: where it is the same in a life of the unchanged script whose weights are others
by far, nothing that a model computes leads to it, and so no rounding does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuadvisor.domain.printed import memory_places, tells_memory
from gpuadvisor.domain.rehearsal import Life
from gpuadvisor.tuners.rehearsal.files import numbers_by_part
from gpuadvisor.tuners.rehearsal.lives import Findings
from gpuadvisor.tuners.rehearsal.outputs import outputs_apart
from gpuadvisor.tuners.rehearsal.prints import alike, printed, told

OTHER_WEIGHTS = (0.5, 0.25)
"""Changes of weights, relative to their size, that make other models: a model at its start is drawn
at random anyway. Two, as by chance a count of right answers may be the same in one of them."""
ROUNDING = 2.0**-19
"""Relative difference that rounding in float32 makes of what does not come from a model: 16 units
in the last place, as of a sum of many values in another order."""


@dataclass(frozen=True)
class Column:
    """Numbers that stand together in a file or in like printed lines."""

    file: str
    """Its name; empty for what is printed."""
    name: str
    """That of a part of a file, or the words of the lines."""
    place: int
    """Which number of the lines it is."""
    ours: Sequence[float]
    theirs: Sequence[float]
    """Under the plan."""
    others: tuple[Sequence[float] | None, ...] = ()
    """In each further life; None where it has not as many."""

    @property
    def is_other(self) -> bool:
        """Whether the plan's numbers differ by more than rounding."""
        return not _are_near(self.ours, self.theirs)

    @property
    def is_whole(self) -> bool:
        return all(map(float.is_integer, (*self.ours, *self.theirs)))

    @property
    def is_moved(self) -> bool:
        """Whether one of the further lives has other numbers."""
        return any(each is None or not _are_near(self.ours, each) for each in self.others)

    def __str__(self) -> str:
        pairs = zip(self.ours, self.theirs, strict=True)
        ours, theirs = map(_number, next(pair for pair in pairs if not _is_near(*pair)))
        if not self.file:
            return f"{theirs} is printed and not {ours} ({self.name[:80]!r})"
        what = f"{self.file}: {self.name}" if self.name else self.file
        return f"{what} is {ours}, and {theirs} with the settings"


@dataclass(frozen=True)
class Unmoved:
    """Finds numbers that are others under the plan though nothing in training moves them."""

    found: Findings

    def difference(self) -> str | None:
        """Say which number is another one; None if none is that training does not move.

        Further lives are asked for only where a number differs that the unchanged script's lives
        agree in: a whole one, unless settings change how data is read, as rounding moves almost all
        others. Where those lives could not be had, whole numbers are told.
        """
        if self.found.cut:
            return None
        others: list[Life] = []
        columns = self._columns(others)
        if not self.found.loader_knobs and not any(column.is_whole for column in columns):
            return None
        for amount in OTHER_WEIGHTS:
            if columns and (life := self._other(amount)) is not None:
                others.append(life)
                columns = self._columns(others)
        if columns and others:
            return f"{columns[0]}, whatever the weights of the model are"
        whole = next((column for column in columns if column.is_whole), None)
        lacks = "and there was no life with other weights to show that they move it"
        return None if whole is None else f"{whole}, {lacks}"

    def _columns(self, others: Sequence[Life]) -> list[Column]:
        """Return what is another number under the plan, and the same in all of these lives."""
        lives = self.found.lives
        every = (lives.first, lives.second, lives.plan, *others)
        columns = [*_written(every), *self._printed(every)]
        return [column for column in columns if column.is_other and not column.is_moved]

    def _other(self, amount: float) -> Life | None:
        """Return a life of the unchanged script as another model; None where that cannot be had.

        Where the plan's life drew other random numbers, so does that one.
        """
        found, first = self.found, self.found.lives.first
        if found.lives.other is None:
            return None
        life = found.lives.other(amount, found.moved or found.model_redraws)
        if life is None:
            return None
        apart = outputs_apart(first.calls, life.calls)
        is_other = first.losses != life.losses if apart is None else apart[0] > found.tolerance
        return life if is_other else None

    def _printed(self, lives: Sequence[Life]) -> Iterator[Column]:
        """Yield the columns of like lines in which the unchanged script's lives agree."""
        ours, again, theirs, *others = (printed(each.output) for each in lives)
        for kind, lines in alike(ours, again).items():
            count = len(lines)
            if len(theirs.get(kind, ())) != count:
                continue
            sides = [each.get(kind, []) for each in (theirs, *others)]
            sides = [each if len(each) == count else [] for each in sides]
            memory = memory_places(kind[0])
            for place in told(lines, again[kind], kind[1], self.found.is_resized):
                mine = [line[place] for line in lines]
                if place in memory or mine != [line[place] for line in again[kind]]:
                    continue
                planned, *rest = ([line[place] for line in side] or None for side in sides)
                if planned is not None:
                    yield Column("", kind[0], place, mine, planned, tuple(rest))


def _written(lives: Sequence[Life]) -> Iterator[Column]:
    """Yield the parts of files in which the unchanged script's lives agree."""
    for file, name, (ours, _, theirs, *others) in numbers_by_part(*lives):
        if ours is not None and theirs is not None and not tells_memory(name):
            rest = tuple(each.values if each is not None else None for each in others)
            yield Column(file, name, 0, ours.values, theirs.values, rest)


def _are_near(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return all(map(_is_near, ours, theirs))


def _is_near(ours: float, theirs: float) -> bool:
    """Say whether rounding accounts for a difference: of whole numbers for none."""
    if ours == theirs or (math.isnan(ours) and math.isnan(theirs)):
        return True
    if ours.is_integer() and theirs.is_integer():
        return False
    return abs(ours - theirs) <= ROUNDING * max(abs(ours), abs(theirs))


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else f"{value:.6g}"
