"""The points of a constrained space that can be evaluated, and what a model sees of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gpuadvisor.domain.knobs import Value
from gpuadvisor.tuners.space import Parameter, Point, Space

Floats = NDArray[np.float64]

MANY_VALUES = 5
"""Values from which a parameter's alignment is a feature of its own: fewer say it by themselves."""


class Points:
    """The feasible points of a space as rows of a table.

    Spaces of kernels are sparse (22 % of the grid of a published matrix product is feasible): a
    search that proposes values one by one mostly proposes what cannot be. Ours propose rows.
    """

    def __init__(self, parameters: Sequence[Parameter], points: Iterable[Sequence[Value]]) -> None:
        """Take complete points, each the values of the parameters in their order."""
        self.parameters = tuple(parameters)
        places = [{value: n for n, value in enumerate(p.values)} for p in self.parameters]
        rows = [[at[v] for at, v in zip(places, point, strict=True)] for point in points]
        self.rows = np.array(rows, np.int32).reshape(len(rows), len(self.parameters))
        """Place of each point's values among their parameter's."""
        self._places = places

    @classmethod
    def of(cls, space: Space) -> Points:
        """Enumerate a small space whose parameters all have the default among their values."""
        names = [parameter.name for parameter in space.parameters]
        grid = product(*(parameter.values for parameter in space.parameters))
        allowed = (row for row in grid if space.allows(dict(zip(names, row, strict=True))))
        return cls(space.parameters, allowed)

    def __len__(self) -> int:
        return len(self.rows)

    def point(self, number: int) -> dict[str, Value]:
        """Return a point by its row."""
        row = self.rows[number]
        return {p.name: p.values[n] for p, n in zip(self.parameters, row, strict=True)}

    def find(self, point: Point) -> int | None:
        """Return the row of a point; None where it is not feasible."""
        key = self._key([at.get(point[p.name]) for p, at in zip(self.parameters, self._places,
                                                                strict=True)])  # fmt: skip
        return None if key is None else self._numbers.get(key)

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {row.tobytes(): number for number, row in enumerate(self.rows)}

    @staticmethod
    def _key(places: Sequence[int | None]) -> bytes | None:
        return None if None in places else np.array(places, np.int32).tobytes()

    @cached_property
    def features(self) -> Floats:
        """What a model sees, each from 0 to 1: the value, its logarithm where all are above zero,
        or its place where it is no number; and beside it its alignment.

        The alignment of a whole number is the largest power of two that divides it. Warps, sectors
        and banks come in powers of two: of blocks that are multiples of 16, those of 32 or 128
        threads differ from those of 48 or 112 by more than their size.
        """
        columns = []
        for place, parameter in enumerate(self.parameters):
            for scale in _scales(parameter.values):
                columns.append(scale[self.rows[:, place]])
        return np.stack(columns, 1) if columns else np.zeros((len(self), 0))

    def neighbours(self, number: int, changes: int) -> NDArray[np.intp]:
        """Return the rows of the points that differ from one in at most that many parameters."""
        return np.flatnonzero((self.rows != self.rows[number]).sum(1) <= changes)


def _scales(values: Sequence[Value]) -> list[Floats]:
    """Return a value's features by its place; none for a parameter with a single value."""
    if len(values) < 2:
        return []
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        return [np.linspace(0, 1, len(values))]
    if min(numbers) <= 0:
        return [_unit(np.argsort(np.argsort(numbers)).astype(float))]
    logarithms = np.log2(np.array(numbers, float))
    found = [_unit(logarithms)]
    if len(numbers) >= MANY_VALUES and all(isinstance(number, int) for number in numbers):
        alignment = np.array([math.log2(int(n) & -int(n)) for n in numbers])
        if np.ptp(alignment) > 0 and not np.allclose(alignment, logarithms):
            found.append(_unit(alignment))
    return found


def _unit(values: Floats) -> Floats:
    found: Floats = (values - values.min()) / np.ptp(values)
    return found
