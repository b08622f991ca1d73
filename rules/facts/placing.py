"""The place in the program that something which was found comes from, whatever found it.

Kernels, copies and calls of one recording of a run are found again in another one of it, which has
source lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from gpuadvisor.domain.finding import Category, Scope, ScopeKind
from gpuadvisor.domain.profile import UNKNOWN
from gpuadvisor.rules.facts.intervals import IntArray
from gpuadvisor.rules.facts.places import NOWHERE, OF_KERNEL, Found

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.summary import Facts

MACHINES = (ScopeKind.GPU, ScopeKind.RANK)
"""What no line of the program is responsible for."""
Key = tuple[str, str, str]
"""Name, and name and shapes of the operator."""


def place_of(
    facts: Facts,
    stacked: Facts | None,
    scope: Scope,
    category: Category,
    parts: Mapping[str, float],
    work: IntArray | None,
    calls: IntArray | None,
) -> Found:
    """Return the source line that most of a finding comes from, and what else is known.

    That is where most of some rows of the devices' work was launched, or some calls were made; else
    where its kernel was, or the parts of the run that it is about. `stacked` are facts of another
    step of the same run, which tell it if they have a line.
    """
    if not facts.has_timeline or scope.kind in MACHINES:
        return NOWHERE
    if stacked is not None:
        same = None if work is None else work_alike(facts, work, stacked)
        alike = None if calls is None else calls_alike(facts, calls, stacked)
        found = _place_in(stacked, scope, category, parts, same, alike)
        if found[0] is not None:
            return found
    return _place_in(facts, scope, category, parts, work, calls)


def _place_in(
    facts: Facts,
    scope: Scope,
    category: Category,
    parts: Mapping[str, float],
    work: IntArray | None,
    calls: IntArray | None,
) -> Found:
    places = facts.places
    if calls is not None:
        return places.of_calls(calls)
    if work is not None:
        return places.of_work(work)
    if scope.kind is ScopeKind.KERNEL:
        return places.of_parts({f"{OF_KERNEL}{scope.name}": 1.0})
    if parts:
        return places.of_parts(parts)
    if category is Category.INPUT_BOUND:
        return places.of_parts({"idle/waiting_for_data": 1.0})
    if category in (Category.MEMORY_CAPACITY, Category.ALLOCATOR) and facts.memory:
        return places.of_memory()
    return places.of_run()


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
