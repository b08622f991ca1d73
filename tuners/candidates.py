"""Which knobs are worth a trial on this device and script, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, ScriptFacts, Settings, Value
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.base import Knob


@dataclass(frozen=True)
class Selection:
    """The user's choice of knobs."""

    level: Level = Level.BALANCED
    objective: Objective = Objective.THROUGHPUT
    only: frozenset[str] = frozenset()
    """Nothing but these; empty for all."""
    without: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """A knob with the values to try, the most promising first."""

    knob: Knob
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Candidates:
    """What is to be tried, in order, and why the rest is not."""

    chosen: tuple[Candidate, ...]
    unavailable: Mapping[str, str]
    """Knob name to the reason, for knobs that cannot work here."""

    def of(self, knob: str) -> Candidate | None:
        return next((c for c in self.chosen if c.knob.name == knob), None)


def select(
    knobs: Mapping[str, Knob],
    selection: Selection,
    device: Device,
    facts: ScriptFacts,
    first: Sequence[str] = (),
) -> Candidates:
    """Return the candidates; knobs named in `first` (what findings point to) lead."""
    chosen, unavailable = [], {}
    for name, knob in knobs.items():
        if (selection.only and name not in selection.only) or name in selection.without:
            continue
        reason = _not_asked_for(knob, selection, facts)
        if reason is not None and name not in selection.only:
            continue
        reason = reason or knob.unavailable(device, facts)
        values = () if reason else tuple(knob.choices(device, facts))
        if values:
            chosen.append(Candidate(knob, values))
        else:
            unavailable[name] = reason or "the script already has what it could be set to"
    rank = {name: place for place, name in enumerate(dict.fromkeys(first))}
    chosen.sort(key=lambda candidate: rank.get(candidate.knob.name, len(rank)))
    return Candidates(tuple(chosen), unavailable)


def _not_asked_for(knob: Knob, selection: Selection, facts: ScriptFacts) -> str | None:
    """Return why a knob is out of the question for this level and objective, or None."""
    level = knob.level_for(facts)
    if level > selection.level:
        return f"it may move results further: it needs --level {level}"
    if selection.objective not in knob.serves:
        return f"it cannot improve the {selection.objective}"
    return None


def combined(
    settings: Settings, knob: Knob, value: Value, knobs: Mapping[str, Knob]
) -> dict[str, Value]:
    """Return `settings` with a knob set, and without those that exclude it."""
    kept = {
        name: old
        for name, old in settings.items()
        if name != knob.name and name not in knob.excludes and knob.name not in knobs[name].excludes
    }
    return {**kept, knob.name: value}


def without(
    settings: Settings, dropped: str, knobs: Mapping[str, Knob], facts: ScriptFacts
) -> dict[str, Value]:
    """Return `settings` without a knob, and without those that need it."""
    kept = {name: value for name, value in settings.items() if name != dropped}
    while True:
        lost = [name for name in kept if knobs[name].missing(kept, facts) is not None]
        if not lost:
            return kept
        for name in lost:
            del kept[name]
