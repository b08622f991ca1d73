"""Pairs of blocks in which several knobs are turned at once, so that each pair tells of all.

In one block of a pair some knobs are on, in the other block the others are. So many pairs tell of
each of six knobs nearly what they would tell of one, in a sixth of the time: a two-level factorial
design in which each run has its mirror image. What two knobs do only together is the same in both
blocks of a pair, and cancels.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuadvisor.domain.screening import Ratio
from gpuadvisor.tuners.screening.blocks import Key
from gpuadvisor.tuners.space import Space

LEAST_FREE = 4
"""Pairs beyond what is to be found out, before the first look: they tell how much blocks differ."""
LOOK_EVERY = 4
"""Pairs from one look to the next."""
LOW_ERROR, HIGH_ERROR = 0.001, 0.006
"""Chance that the lower end of an interval lies above what is true at one look, and the upper end
below it. The lower one decides what is kept, the upper one what is left out for being worth less
than 1 %, which costs little where it was worth 1.1."""


@dataclass(frozen=True)
class Turned:
    """What is on in the first and in the second block of a pair, beside what is always on."""

    first: tuple[Key, ...]
    second: tuple[Key, ...]


@dataclass
class Factorial:
    """Pairs of blocks of several values, while they come in."""

    factors: list[list[Key]]
    """Values that are still turned, in groups of which a block can have one."""
    seed: str

    def __post_init__(self) -> None:
        self._random = random.Random(f"knobs of blocks: {self.seed}")
        self._rows: list[list[int]] = []
        self._turned: list[Turned] = []
        self._logs: list[float] = []
        """Natural logarithm of the first block's step time over the second's, one for each pair."""
        self._least = least_pairs(self.keys)

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def keys(self) -> list[Key]:
        """Values that are still turned."""
        return [key for values in self.factors for key in values]

    @property
    def missing(self) -> int:
        """Pairs until the first look."""
        return max(0, self._least - len(self))

    @property
    def is_to_be_looked_at(self) -> bool:
        """Whether there are enough pairs since the last look."""
        return not self.missing and (len(self) - self._least) % LOOK_EVERY == 0

    def next(self) -> Turned:
        """Draw what the next pair has on.

        Rows, columns and signs of a Hadamard matrix are drawn by chance. Over all its rows, each
        value is on in the first block as often as in the second, and as often in the same block
        as each other value as in the other.
        """
        if not self._rows:
            self._rows = self._drawn()
        sides: tuple[list[Key], list[Key]] = ([], [])
        for values, side in zip(self.factors, self._rows.pop(), strict=True):
            sides[side].append(self._random.choice(values))
        return Turned(tuple(sides[0]), tuple(sides[1]))

    def _drawn(self) -> list[list[int]]:
        count = len(self.factors)
        size = 1 << count.bit_length()
        columns = self._random.sample(range(1, size), count)  # the first has one sign only
        flips = [self._random.randrange(2) for _ in columns]
        rows = [
            [(row & c).bit_count() % 2 ^ flip for c, flip in zip(columns, flips, strict=True)]
            for row in range(size)
        ]
        self._random.shuffle(rows)
        return rows

    def add(self, turned: Turned, first_ms: float, second_ms: float) -> None:
        """Take in the steps of one more pair."""
        self._turned.append(turned)
        self._logs.append(math.log(first_ms / second_ms))

    def drop(self, key: Key) -> None:
        """Leave a value out of all further pairs."""
        kept = ([each for each in values if each != key] for values in self.factors)
        self.factors = [values for values in kept if values]
        self._rows = []

    def ratios(self) -> Mapping[Key, Ratio]:
        """Return what each value brings, with its interval; nothing where pairs are too few.

        Least squares over all pairs. The order within the pairs is found out with the values, so
        that a job in step with the pairs is not taken for one.
        """
        import numpy as np
        from scipy.special import stdtrit

        keys = list(dict.fromkeys(key for each in self._turned for key in each.first + each.second))
        free = len(self) - len(keys) - 1
        signs = np.ones((len(self), len(keys) + 1))
        for row, each in zip(signs, self._turned, strict=True):
            row[1:] = [(key in each.second) - (key in each.first) for key in keys]
        squares = signs.T @ signs
        if free < 1 or np.linalg.matrix_rank(squares) < len(squares):
            return {}
        inverse = np.linalg.inv(squares)
        found = inverse @ signs.T @ np.array(self._logs)
        variance = float(np.sum((signs @ found - self._logs) ** 2)) / free
        errors = np.sqrt(variance * np.diag(inverse))
        lows, highs = (float(stdtrit(free, 1 - each)) * errors for each in (LOW_ERROR, HIGH_ERROR))
        ends = np.exp([found, found - lows, found + highs])[:, 1:].T.tolist()
        return {
            key: Ratio(ratio, low, high, len(self))
            for key, (ratio, low, high) in zip(keys, ends, strict=True)
        }


def least_pairs(keys: Sequence[Key]) -> int:
    """Return the pairs that it takes to look at so many values."""
    return 1 + len(keys) + LEAST_FREE


def factors_of(space: Space, keys: Sequence[Key]) -> list[list[Key]]:
    """Return values in groups of which a block can have one: of one knob, or excluding another."""
    groups: list[list[Key]] = []
    for key in keys:
        group = next((g for g in groups if any(_excludes(space, key, each) for each in g)), None)
        if group is None:
            groups.append([key])
        else:
            group.append(key)
    return groups


def _excludes(space: Space, one: Key, other: Key) -> bool:
    name, second = one[0], other[0]
    return name == second or name in space[second].excludes or second in space[name].excludes
