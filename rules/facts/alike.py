"""Finds kernels, copies and calls of one recording of a run again in another one of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.intervals import IntArray

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.summary import Facts


def work_alike(facts: Facts, rows: IntArray, other: Facts) -> IntArray:
    """Return the rows of the other's work of the same names, from operators alike in name and
    shapes; where the other has none from such operators, those of the same names."""
    return _alike(
        _keys(facts, rows, work=True), _keys(other, np.arange(len(other.work)), work=True)
    )


def calls_alike(facts: Facts, rows: IntArray, other: Facts) -> IntArray:
    """Return the rows of the other's calls into CUDA alike."""
    return _alike(
        _keys(facts, rows, work=False), _keys(other, np.arange(len(other.host)), work=False)
    )


Key = tuple[str, str, str]
"""Name, and name and shapes of the operator."""


def _alike(wanted: list[Key], keys: list[Key]) -> IntArray:
    whole, names = set(wanted), {name for name, _, _ in wanted}
    found = [row for row, key in enumerate(keys) if key in whole]
    found = found or [row for row, key in enumerate(keys) if key[0] in names]
    return np.array(found, np.int64)


def _keys(facts: Facts, rows: IntArray, *, work: bool) -> list[Key]:
    texts, ran = facts.profile.header.texts, facts.launching
    columns = facts.profile.columns("operators", ("name", "shapes"))
    operators = ran.of_like_work if work else ran.of_call
    keys: list[Key] = []
    for row, operator in zip(rows.tolist(), operators[rows].tolist(), strict=True):
        name = facts.work.describe(row) if work else texts[int(facts.host.name[row])]
        if operator == UNKNOWN:
            keys.append((name, "", ""))
        else:
            called, shapes = (texts[int(columns[each][operator])] for each in ("name", "shapes"))
            keys.append((name, called, shapes))
    return keys
