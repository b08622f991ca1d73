"""What a study's search takes from its screening: what it begins with, and what is left to try."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gpuadvisor.domain.knobs import Contribution, Settings, Value
from gpuadvisor.domain.loader_supply import LoaderSupply
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs, ScreeningResult
from gpuadvisor.tuners.loader.supply_timing import rechosen
from gpuadvisor.tuners.space import Parameter, Space
from gpuadvisor.tuning.live.supply_timer import narrowed


@dataclass(frozen=True)
class Screening:
    """What a study's search takes from its screening."""

    space: Space = field(default_factory=Space)
    """All knobs of the study, screened or not, with the values that are worth trials."""
    result: ScreeningResult = field(default_factory=ScreeningResult)
    supply: LoaderSupply | None = None
    """What the script's loader supplies by itself, which narrowed the space; None if not timed."""

    @property
    def start(self) -> Settings:
        """Settings of the search's first trial; empty where nothing promises anything."""
        return {**(self.supply.settings if self.supply else {}), **self.result.settings}

    @property
    def computing_ms(self) -> float | None:
        """Mean step of the unchanged script on the batch that it had already, in milliseconds;
        None where whole steps were compared."""
        return self.result.step_ms if self.result.of_computing else None

    @property
    def gain(self) -> float:
        """What the best settings promise a step, which goes on to wait for its loader; 1 where
        nothing paid."""
        return self._promised(lambda ratio: ratio.ratio)

    @property
    def least(self) -> float:
        """The least that they promise; 1 and less where that may be nothing."""
        return self._promised(lambda ratio: ratio.low)

    def _promised(self, end: Callable[[Ratio], float]) -> float:
        found = self.result
        if not found.settings:
            return 1.0
        together = end(found.ratio) if found.ratio else math.prod(map(end, found.kept.values()))
        return together / (found.loaders.ratio if found.loaders else 1.0)

    def supplied(
        self, supply: LoaderSupply, computing_ms: float, baseline: Measurement
    ) -> Screening:
        """Return it with what the loader supplies to computing that takes so long a step."""
        supply = rechosen(supply, computing_ms, baseline)
        return replace(self, space=narrowed(self.space, supply), supply=supply)

    def starts(self) -> list[Settings]:
        """Return what the first trial may have, the best first: a fresh process may need more
        memory than the running one, and smaller values of what grew then need less of it.
        """
        start = dict(self.start)
        found = [start] if start else []
        for name in [n for n in start if n in self.space and self.space[n].progressive]:
            smaller = [each.value for each in self._smaller(start) if each.knob == name]
            found += [{**start, name: value} for value in smaller[-1:]]
            found.append({n: value for n, value in start.items() if n != name})
        return [each for each in found if each]

    @property
    def brought(self) -> dict[str, float]:
        """What each screened knob of the start brings beside the others, or brought when it was
        added; nothing where that is its worth for the computing alone.
        """
        return {} if self.result.of_computing else self.result.brought

    def contributions(self, waiting: float) -> list[Contribution]:
        """Return what knobs bring beside all others of the best settings, in one process.

        Of the computing alone, that is the least that they bring to a step that waits for its
        loader in this share of it: without one, the computing takes so much longer by itself.
        """
        computes = 1 - waiting if self.result.of_computing else 1.0
        return [
            replace(each, ratio=computes * each.ratio, low=each.low and computes * each.low)
            for each in self.result.contributions
        ]

    def left(self, standing: Settings) -> Space:
        """Return the knobs and values that are still worth trials where a search stands on these.

        What was worthless beside other settings than those is among them. Where nothing would be
        left, what looked best is: only trials and a proof can show that there is no gain. Of what
        was timed, what looked best comes first.
        """
        gone = [
            each
            for each in self._of(ScreenedAs.WORTHLESS)
            if each.beside.items() <= standing.items()
        ] + self._of(ScreenedAs.NO_EFFECT)
        gone += self._smaller(standing)
        left = self._without(gone)
        if not left.parameters and gone:
            gone.remove(max(gone, key=lambda each: each.ratio.ratio if each.ratio else 0.0))
            left = self._without(gone)
        return self._ordered(left)

    def _smaller(self, standing: Settings) -> list[Screened]:
        """Return what was timed of a knob whose larger value is among these settings."""
        return [
            each
            for each in self.result.values
            if each.knob in standing
            and each.knob in self.space
            and self.space[each.knob].progressive
            and each.value < standing[each.knob]  # type: ignore[operator]
        ]

    def _ordered(self, space: Space) -> Space:
        """Return a space in which the knobs that were timed change places, the best ones first.

        The others keep theirs: findings gave it to them.
        """
        ratios = {(s.knob, s.value): s.ratio.ratio for s in self.result.values if s.ratio}

        def worth(parameter: Parameter) -> float:
            return max(ratios.get((parameter.name, value), 0.0) for value in parameter.values)

        timed = sorted(filter(worth, space.parameters), key=worth, reverse=True)
        best_first = iter(timed)
        parameters = (next(best_first) if worth(each) else each for each in space.parameters)

        def ordered(each: Parameter) -> Parameter:
            values = sorted(each.values, key=lambda v: -ratios.get((each.name, v), 1.0))
            return replace(each, values=tuple(values))

        return replace(space, parameters=tuple(map(ordered, parameters)))

    @property
    def without_effect(self) -> dict[str, str]:
        """Knobs of which each value found nothing to change in the script, and that in words."""
        idle = {(each.knob, each.value): each.why for each in self._of(ScreenedAs.NO_EFFECT)}
        return {
            p.name: idle[p.name, p.values[0]]
            for p in self.space.parameters
            if all((p.name, value) in idle for value in p.values)
        }

    def _of(self, state: ScreenedAs) -> list[Screened]:
        return [each for each in self.result.values if each.state is state]

    def _without(self, gone: list[Screened]) -> Space:
        values: dict[str, list[Value]] = {}
        for each in gone:
            values.setdefault(each.knob, []).append(each.value)
        parameters = (
            replace(p, values=tuple(v for v in p.values if v not in values.get(p.name, ())))
            for p in self.space.parameters
        )
        return replace(self.space, parameters=tuple(p for p in parameters if p.values))
