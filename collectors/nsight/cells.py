"""Cells of a table, whatever their type, as numpy arrays; `UNKNOWN` for what is no number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import UNKNOWN

IntArray: TypeAlias = npt.NDArray[np.int64]
_HIGHEST = 2**63 - 1


def prepared(cells: Sequence[Any]) -> Sequence[Any] | IntArray:
    """Return cells as an array if all are whole numbers, as nearly always, else as they are."""
    return np.array(cells, np.int64) if set(map(type, cells)) == {int} else cells


def whole(cells: Sequence[Any] | IntArray, unknown: int = UNKNOWN) -> IntArray:
    """Return whole numbers; `unknown` for NULL, texts, and numbers that are not whole."""
    if isinstance(cells, np.ndarray):
        return cells
    if set(map(type, cells)) == {type(None)}:
        return np.full(len(cells), unknown, np.int64)
    return np.array([_whole(cell, unknown) for cell in cells], np.int64)


def _whole(cell: Any, unknown: int) -> int:
    if isinstance(cell, int):
        return cell if -_HIGHEST <= cell <= _HIGHEST else unknown
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _HIGHEST:
        return int(cell)
    return unknown


def count(cells: Sequence[Any] | IntArray, kind: str) -> npt.NDArray[Any]:
    """Return whole numbers of a numpy type; `UNKNOWN` also for negative and too large ones."""
    return within(whole(cells), kind)


def within(numbers: IntArray, kind: str) -> npt.NDArray[Any]:
    """Return numbers in a numpy type; `UNKNOWN` for negative and too large ones."""
    usable = (numbers >= 0) & (numbers <= np.iinfo(kind).max)
    return np.where(usable, numbers, UNKNOWN).astype(kind)


def mapped(answer: Callable[..., int], *numbers: IntArray) -> IntArray:
    """Return the answers for the numbers in each row; the same numbers are asked for once."""
    if len(numbers) == 1:
        distinct, places = np.unique(numbers[0], return_inverse=True)
        asked = [distinct.tolist()]
    else:
        distinct, places = np.unique(np.stack(numbers), axis=1, return_inverse=True)
        asked = distinct.tolist()
    return np.array(list(map(answer, *asked)), np.int64)[places.reshape(-1)]


def real(cells: Sequence[Any] | IntArray) -> npt.NDArray[np.float64]:
    """Return numbers; NaN for NULL, texts and infinities."""
    if not (isinstance(cells, np.ndarray) or set(map(type, cells)) <= {int, float}):
        cells = [float(cell) if isinstance(cell, (int, float)) else math.nan for cell in cells]
    found = np.array(cells, np.float64)
    return np.where(np.isfinite(found), found, math.nan)


def strange(cells: Sequence[Any] | IntArray) -> int:
    """Return how many cells are neither numbers nor NULL."""
    if isinstance(cells, np.ndarray) or set(map(type, cells)) <= {int, float, type(None)}:
        return 0
    return sum(not isinstance(cell, (int, float, type(None))) for cell in cells)
