"""The place in the program that something which was found comes from, whatever found it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuadvisor.domain.finding import Category, Scope, ScopeKind
from gpuadvisor.rules.facts.alike import calls_alike, work_alike
from gpuadvisor.rules.facts.intervals import IntArray
from gpuadvisor.rules.facts.places import NOWHERE, Found

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.summary import Facts

MACHINES = (ScopeKind.GPU, ScopeKind.RANK)
"""What no line of the program is responsible for."""


def place_of(
    facts: Facts,
    stacked: Facts | None,
    scope: Scope,
    category: Category,
    parts: tuple[str, ...],
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
    parts: tuple[str, ...],
    work: IntArray | None,
    calls: IntArray | None,
) -> Found:
    places = facts.places
    if calls is not None:
        return places.of_calls(calls)
    if work is not None:
        return places.of_work(work)
    if scope.kind is ScopeKind.KERNEL:
        return places.of_parts([f"kernel/{scope.name}"])
    if parts:
        return places.of_parts(parts)
    if category is Category.INPUT_BOUND:
        return places.of_parts(["idle/waiting_for_data"])
    if category in (Category.MEMORY_CAPACITY, Category.ALLOCATOR) and facts.memory:
        return places.of_memory()
    return places.of_run()
