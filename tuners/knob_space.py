"""The knobs as a space to search: which are worth a trial on this device and script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, ScriptFacts, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.space import Parameter, Space

HOST_DECIDES = 0.5
"""Share of the script's own work in which the GPU works, below which the host decides how long that
takes: what only saves the GPU time comes after what saves the host some, too. Well-fed GPUs work
for 90 % of it and more, launch-bound ones for 10 to 40 %. [own]"""
LOADER_DECIDES = 0.5
"""Share of the time spent waiting for workers from which they alone decide how long a step takes:
they load while it computes, so a step that computes faster waits for so much longer. [own]"""


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
    enough_s: Mapping[str, float] = field(default_factory=dict)
    """Knob name to the seconds of a budget that would have room to ask the script for its value,
    for knobs that are unavailable as this budget has none."""

    def with_found(
        self, name: str, parameter: Parameter | None, why: str = "", enough_s: float | None = None
    ) -> KnobSpace:
        """Return the space with what the script showed of such a knob, or why it showed nothing.

        What was found by measuring leads what is only plausible. `enough_s` is a budget that would
        have had room to ask the script.
        """
        rest = tuple(each for each in self.unfound if each != name)
        if parameter is None:
            enough = {**self.enough_s, **({name: enough_s} if enough_s else {})}
            unavailable = {**self.unavailable, name: why}
            return replace(self, unfound=rest, unavailable=unavailable, enough_s=enough)
        parameters = (parameter, *self.space.parameters)
        return replace(self, unfound=rest, space=replace(self.space, parameters=parameters))


def select_knobs(
    knobs: Mapping[str, Knob],
    selection: Selection,
    device: Device,
    facts: ScriptFacts,
    first: Sequence[str] = (),
    gpu_share: float | None = None,
) -> KnobSpace:
    """Return the knobs worth trying; those named in `first` (what findings point to) lead.

    `gpu_share` is the share of the time not spent waiting for loaders in which the GPU works; None
    where it is not known. Where the host decides, what only saves the GPU time comes last.
    """
    host_decides = gpu_share is not None and gpu_share < HOST_DECIDES
    saves_time = selection.objective in (Objective.THROUGHPUT, Objective.LATENCY)
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
            parameter = knob_parameter(knob, values, device, facts)
            if saves_time and not knob.concerns_loading:
                parameter = replace(parameter, pointless=partial(_pointless, knob))
            unlikely = saves_time and host_decides and knob.saves_gpu_time_only
            chosen.append(replace(parameter, unlikely=unlikely))
        else:
            unavailable[name] = reason or "the script already has what it could be set to"
    rank = {name: place for place, name in enumerate(dict.fromkeys(first))}
    chosen.sort(key=lambda each: (each.unlikely, rank.get(each.name, len(rank))))
    return KnobSpace(Space(tuple(chosen)), unavailable, tuple(unfound))


def knob_parameter(
    knob: Knob, values: Sequence[Value], device: Device, facts: ScriptFacts
) -> Parameter:
    """Return a knob as a parameter with these values, on a device, for a script of which `facts`
    are known."""
    return Parameter(
        knob.name,
        tuple(values),
        excludes=knob.excludes,
        progressive=knob.progressive,
        patience=knob.patience,
        refines=knob.refines,
        missing=partial(knob.missing, facts=facts),
        pointless=knob.pointless,
        relieves=partial(knob.relieves, device),
    )


def _pointless(knob: Knob, best: Measurement) -> str | None:
    """Return why a knob of the computing cannot make the best run so far any faster, or None.

    On a CPU it might, as the workers have the cores that it saves.
    """
    facts, waiting = best.facts, best.starved_share
    workers = facts.loaders[0].num_workers if facts.loaders else 0
    if facts.device == "cuda" and workers and waiting >= LOADER_DECIDES:
        return f"the script waits for its workers in {waiting:.0%} of the time, however it computes"
    return knob.pointless(best)


def _not_asked_for(knob: Knob, selection: Selection, facts: ScriptFacts) -> str | None:
    """Return why a knob is out of the question for this level and objective, or None."""
    level = knob.level_for(facts)
    if level > selection.level:
        return f"it may move results further: it needs --level {level}"
    if selection.objective not in knob.serves:
        return f"it cannot improve the {selection.objective}"
    return None
