"""The knobs as a space to search: which are worth a trial on this device and script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, ScriptFacts, Value
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.space import Parameter, Space


@dataclass(frozen=True)
class Selection:
    """The user's choice of knobs."""

    level: Level = Level.BALANCED
    objective: Objective = Objective.THROUGHPUT
    only: frozenset[str] = frozenset()
    """Nothing but these; empty for all."""
    without: frozenset[str] = frozenset()
    """Never these."""


@dataclass(frozen=True)
class KnobSpace:
    """The knobs that are to be tried, and why the others are not."""

    space: Space
    unavailable: Mapping[str, str]
    """Knob name to the reason, for knobs that cannot work here."""
    unfound: tuple[str, ...] = ()
    """Knobs whose value the running script has yet to show, in their order."""

    def with_found(self, name: str, parameter: Parameter | None, why: str = "") -> KnobSpace:
        """Return the space with what the script showed of such a knob, or why it showed nothing.

        It comes first: what was found by measuring leads what is only plausible.
        """
        rest = tuple(each for each in self.unfound if each != name)
        if parameter is None:
            return replace(self, unfound=rest, unavailable={**self.unavailable, name: why})
        parameters = (parameter, *self.space.parameters)
        return replace(self, unfound=rest, space=replace(self.space, parameters=parameters))


def select_knobs(
    knobs: Mapping[str, Knob],
    selection: Selection,
    device: Device,
    facts: ScriptFacts,
    first: Sequence[str] = (),
) -> KnobSpace:
    """Return the knobs worth trying; those named in `first` (what findings point to) lead."""
    chosen, unavailable, unfound = [], {}, []
    for name, knob in knobs.items():
        if (selection.only and name not in selection.only) or name in selection.without:
            continue
        reason = _not_asked_for(knob, selection, facts)
        if (knob.risk or reason is not None) and name not in selection.only:
            continue
        reason = reason or knob.unavailable(device, facts)
        if knob.finds and reason is None:
            unfound.append(name)
            continue
        values = () if reason else tuple(knob.choices(device, facts))
        if values:
            chosen.append(knob_parameter(knob, values, facts))
        else:
            unavailable[name] = reason or "the script already has what it could be set to"
    rank = {name: place for place, name in enumerate(dict.fromkeys(first))}
    chosen.sort(key=lambda parameter: rank.get(parameter.name, len(rank)))
    return KnobSpace(Space(tuple(chosen)), unavailable, tuple(unfound))


def knob_parameter(knob: Knob, values: Sequence[Value], facts: ScriptFacts) -> Parameter:
    """Return a knob as a parameter with these values, for a script of which `facts` are known."""
    return Parameter(
        knob.name,
        tuple(values),
        excludes=knob.excludes,
        progressive=knob.progressive,
        patience=knob.patience,
        refines=knob.refines,
        missing=partial(knob.missing, facts=facts),
        pointless=knob.pointless,
    )


def _not_asked_for(knob: Knob, selection: Selection, facts: ScriptFacts) -> str | None:
    """Return why a knob is out of the question for this level and objective, or None."""
    level = knob.level_for(facts)
    if level > selection.level:
        return f"it may move results further: it needs --level {level}"
    if selection.objective not in knob.serves:
        return f"it cannot improve the {selection.objective}"
    return None
