"""Screens knobs in one running script before a study's search: what its trials begin with.

Nothing that it finds is told as a gain. The best combination is the search's first trial, and goes
through ablation, rehearsal and proof as anything else; what is worthless beside it is not tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from gpuadvisor.collectors.script.live import run_live
from gpuadvisor.collectors.script.request import Limits, RunRequest
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.domain.knobs import Settings, shown_settings
from gpuadvisor.domain.loader_supply import LoaderSupply
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import Screened, ScreenedAs, ScreeningResult
from gpuadvisor.errors import ScriptError
from gpuadvisor.tuners import batch_growth
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.loader.ceiling import (
    CACHED,
    first_ceiling_s,
    in_words,
    may_wait,
    waits,
    worthless,
)
from gpuadvisor.tuners.loader.limit import LoaderLimit, limit_of_computing
from gpuadvisor.tuners.loader.supply_timing import batches_a_step, rechosen
from gpuadvisor.tuners.screening.comparing import MOST_PAIRS
from gpuadvisor.tuners.screening.course import least_s, screen
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuning.arguments import applied
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.budgeting.budget_limit import schedule_for
from gpuadvisor.tuning.budgeting.durations import COMPILED_ANEW
from gpuadvisor.tuning.live.search_start import Screening
from gpuadvisor.tuning.live.supply_timer import narrowed
from gpuadvisor.tuning.live.value_finding import InOneScript
from gpuadvisor.tuning.trials.trial_runner import limits_for
from gpuadvisor.tuning.turning import is_live

COSTLY_S = 20.0
"""Time that a knob adds to its first steps from which it is screened after those that add less:
compilers take 40 s, cuDNN's choice of algorithms 8 s."""


FEW_VALUES = 3
"""Values for which there has to be room, or as many as there are: the first ones are those that
findings point to, and what there is no time for is left to trials."""


CEILING_TIMES = 3
"""Times what the loaders' ceiling takes that a screening needs to have room for that, too."""
CACHED_PLACE = "gpuadvisor.collectors.script.child.cached_batch:CACHED"


@dataclass(frozen=True)
class Screener(InOneScript):
    """Screens the knobs of one study, on its first device."""

    early_s: Callable[[float, Settings], float] = lambda gain, settings: 0.0
    """Returns for how many seconds a proof of settings that bring so much may be put off, if it is
    to come before the rest is screened; else 0."""
    before: Screening | None = None
    """An earlier screening, which put off what compiles, or left the rest for last."""
    time_loader: Callable[[float, float], LoaderSupply | None] = lambda waits, computing_ms: None
    """Times the loader alone for a script that would wait for it in such a share of its time, as
    its computing takes so many milliseconds a step; None where there is no use or room."""

    def screening(
        self,
        space: Space,
        supply: LoaderSupply | None,
        budget: Budget,
        enter: Callable[[str, str], None],
        note: Callable[[str], None],
        best: Measurement | None = None,
    ) -> Screening:
        """Return what a study's search begins with; nothing where there is no room to screen.

        `supply` is what the script's loader supplies alone, `best` a run of what is proven already:
        what could not make that any faster is not screened. As waiting would hide what
        the knobs bring, they are screened on the batch that the script has already: what they are
        worth is their worth for the computing then, and the workers are those that it needs with
        the best of them. Where a batch cannot be given again, they are screened beside the workers
        that the script should have.
        `enter` begins a phase, of which it gets the name and a few words, `note` keeps a sentence
        for the study's result. Raises Interrupted where the study was cancelled.
        """
        begins = Screening(narrowed(space, supply), supply=supply)
        live, allowed_s = self._put_off(self.live_part(space, best)), budget.screening_s()
        if not live.parameters and not self._factors(begins.space):
            return self.before or begins
        needed_s = self._least_s(live, budget.expected_s({}))
        why = self.unable(needed_s, allowed_s)
        if why is not None:
            self.progress.on_message(
                "each setting is tried in a process of its own, and not beside others in one that "
                f"runs: {why}"
            )
            return self.before or begins
        cached = bool(live.parameters) and self._may_cache(allowed_s - budget.expected_s({}))
        try:
            found = self._screened(live, cached, begins, budget, enter)
            if cached and not found.of_computing and found.step_ms is not None:
                why = f"the computing cannot be timed without the loader: {found.why}"
                self.progress.on_message(why)
                found = ScreeningResult()
                if self.unable(needed_s, budget.screening_s()) is None:
                    found = self._screened(live, False, begins, budget, enter)
        except ScriptError as error:
            note(f"each knob is tried in processes of its own: {error}")
            return self.before or begins
        if found.why:
            note(f"the screening in one running script ended early: {found.why}")
        if found.loaders is not None and self.before is None:
            note(in_words(found.loaders))
        if found.of_computing and found.step_ms:
            computing_ms = found.step_ms / _together(found)
            if supply is None and found.loaders is not None:  # it waits only now
                supply = self.time_loader(1 - 1 / found.loaders.ratio, computing_ms)
            if supply is not None and found.is_limited:
                note(self._in_words(supply, found, computing_ms))
            if supply is not None:
                supply = rechosen(supply, computing_ms, self.baseline)
        if self.before is not None:
            found = replace(found, values=_joined(self.before.result.values, found.values))
        return Screening(narrowed(space, supply), found, supply)

    def _screened(
        self,
        space: Space,
        cached: bool,
        begins: Screening,
        budget: Budget,
        enter: Callable[[str, str], None],
    ) -> ScreeningResult:
        where = (
            "of the computing alone, on one batch over and over"
            if cached
            else "in one running script"
        )
        names = [*space.by_name, *[batch_growth.NAME] * bool(self._factors(begins.space))]
        enter("screening", f"{where}: {', '.join(names)}")
        allowed_s = budget.screening_s()
        host_decides = any(parameter.unlikely for parameter in space.parameters)
        more_s = max(0.0, budget.screening_s(True, host_decides) - allowed_s)
        throughout = begins.start if not cached else {}
        compiled = budget.durations.record_compiled
        whole, supply = begins.space, begins.supply
        return self.screen(space, allowed_s, more_s, throughout, whole, cached, compiled, supply)

    def _limit(self, supply: LoaderSupply | None, computing_ms: float) -> LoaderLimit | None:
        """Return how the loader limits a step that computes so long; None where it does not."""
        if supply is None or self.baseline.facts.device != "cuda":
            return None
        return limit_of_computing(supply, computing_ms, batches_a_step(self.baseline))

    def _in_words(self, supply: LoaderSupply, found: ScreeningResult, computing_ms: float) -> str:
        """Return what is left for last, as the loader is the limit; empty where nothing is."""
        open_ = [each.knob for each in found.values if each.state is ScreenedAs.UNRESOLVED]
        waiting = [name for name in dict.fromkeys(open_) if name not in found.settings]
        limit = self._limit(supply, computing_ms)
        if limit is None or not waiting:
            return ""
        be = "is" if len(waiting) == 1 else "are"
        beside = f" with {shown_settings(found.settings)}" if found.settings else ""
        return (
            f"the loader's best, {limit.supply}, is the limit now: the computing takes "
            f"{computing_ms:.3g} ms a step{beside}, so {', '.join(waiting)} {be} left for last"
        )

    def _may_cache(self, allowed_s: float) -> bool:
        """Say whether to screen on a batch that is there already: the script waits for its loaders,
        and `allowed_s`, the time once it has started, has room for what that needs.
        """
        needed_s = CEILING_TIMES * first_ceiling_s(self.baseline.mean_step_ms)
        return needed_s <= allowed_s and may_wait(self.baseline)

    def live_part(self, space: Space, best: Measurement | None = None) -> Space:
        """Return the knobs that can be turned in a running script, in their order, without those
        that could not make the `best` run so far any faster, if there is one."""
        live = [
            each
            for each in space.parameters
            if is_live(self.knobs[each.name])
            and (best is None or (each.pointless(best) or each.limited(best)) is None)
        ]
        return replace(space, parameters=tuple(live))

    def _put_off(self, live: Space) -> Space:
        """Return what an earlier screening left, with its best, on which this one stands. What it
        compared as often as it may is left to fresh processes, as it would be in one screening."""
        if self.before is None:
            return live
        useless = ScreenedAs.WORTHLESS, ScreenedAs.NO_EFFECT, ScreenedAs.FAILED
        best = self.before.result.settings
        gone = {
            (each.knob, each.value)
            for each in self.before.result.values
            if each.state in useless or (each.ratio and each.ratio.pairs >= MOST_PAIRS)
        }
        left = []
        for each in live.parameters:
            values = tuple(value for value in each.values if (each.name, value) not in gone)
            values = (best[each.name],) if each.name in best else values
            left += [replace(each, values=values)] if values else []
        return replace(live, parameters=tuple(left))

    def _least_s(self, space: Space, start_s: float) -> float:
        """Return how long it takes to screen these knobs at least, where a start takes so long."""
        cheap = [p for p in space.parameters if not self._is_costly(p.name)] or space.parameters
        values = min(FEW_VALUES, sum(len(parameter.values) for parameter in cheap))
        return start_s + least_s(values, self.baseline.mean_step_ms)

    def screen(
        self,
        space: Space,
        allowed_s: float,
        more_s: float = 0.0,
        throughout: Settings | None = None,
        whole: Space | None = None,
        cached: bool = False,
        compiled: Callable[[Settings, float], None] = lambda settings, seconds: None,
        supply: LoaderSupply | None = None,
    ) -> ScreeningResult:
        """Screen knobs that can be turned in a running script, for so many seconds at most.

        `more_s` are further ones for what compiles. The script has the settings of `throughout`
        from its start, and each value is compared beside them. Where it is `cached`, the script
        has the batch that it has already all the time, and what the loaders' knobs in `whole` can
        bring at most is timed, too. Where batches may grow, how far they should is timed in the
        end, beside the best settings. `compiled` hears of what was compiled, and for how long.
        Where it is `cached`, no more is compared once the loader, which supplies so much alone, is
        the limit, unless that was so before and a run has shown that it is not.

        Raises ScriptError where that script cannot be timed in blocks of steps, Interrupted where
        the study was cancelled.
        """
        throughout, factors = throughout or {}, self._factors(whole or Space())
        again = self.before is not None and self.before.result.is_limited
        end_s = time.monotonic() + allowed_s
        costly = {p.name: self._first_s(p.name) for p in space.parameters}
        screening = screen(
            space,
            lambda: end_s - time.monotonic(),
            {name: seconds for name, seconds in costly.items() if self._is_costly(name)},
            seed=str(self.options.seed),
            told=self.progress.on_screened,
            more_s=more_s,
            cached=cached,
            waits=waits(self.baseline),
            compiled=compiled,
            harmless={n for n in space.by_name if self.knobs[n].effect not in COMPILED_ANEW},
            early_s=lambda gain, found: 0.0 if factors else self.early_s(gain, found),
            stands_on=self.before.result.settings if self.before else None,
            brought=self.before.result.brought if self.before else None,
            limited=lambda computing_ms: not again and bool(self._limit(supply, computing_ms)),
        )
        # In the knobs' own order, in which they are turned on: layouts before what compiles.
        live = {n: _place(knob) for n, knob in self.knobs.items() if n in space}
        if factors:
            last_s = end_s + more_s
            screening = batch_growth.with_growth(
                screening,
                factors,
                lambda: last_s - time.monotonic(),
                str(self.options.seed),
                self.progress.on_screened,
            )
        if cached or factors:
            live[CACHED] = CACHED_PLACE
        found = run_live(self._request(space, allowed_s + more_s, throughout), live, screening)
        values = tuple(
            replace(each, beside={**throughout, **each.beside})
            for each in found.values
            if not (cached and self._needs_loading(each))
        )
        found = replace(found, values=values)
        if found.loaders is None:
            return found
        ruled_out = worthless(found.loaders, whole or Space(), found.settings)
        for each in ruled_out:
            self.progress.on_screened(each)
        return replace(found, values=(*found.values, *ruled_out))

    def _factors(self, space: Space) -> list[int]:
        """Return the sizes to which batches may grow, as factors; none where one batch says nothing
        of others, as its shape is its own.
        """
        if batch_growth.NAME not in space or self.baseline.facts.varying_shapes:
            return []
        return [int(value) for value in space[batch_growth.NAME].values]

    def _request(self, space: Space, allowed_s: float, throughout: Settings) -> RunRequest:
        options = self.options
        every = {parameter.name: parameter.values[0] for parameter in space.parameters}
        limits = limits_for(every, self.knobs, self.baseline, options.timeout_s)
        total_s = limits.startup_s + allowed_s
        applications, environment = applied(throughout, self.knobs)
        may_fork = all(self.knobs[name].forkable for name in throughout)
        specification = Specification(
            applications,
            samples_per_step=options.samples_per_step,
            schedule=schedule_for(options.budget),
        )
        return replace(
            self.request(specification, Limits(limits.startup_s, limits.idle_s, total_s)),
            environment=environment,
            template=self.template if may_fork else None,
        )

    def _needs_loading(self, each: Screened) -> bool:
        """Say whether a value that is worthless where no batch is made may be worth something where
        the workers need the cores that it leaves.
        """
        return each.state is ScreenedAs.WORTHLESS and self.knobs[each.knob].concerns_loading

    def _first_s(self, name: str) -> float:
        return self.knobs[name].first_start_s

    def _is_costly(self, name: str) -> bool:
        return self._first_s(name) >= COSTLY_S


def _together(found: ScreeningResult) -> float:
    """Return how many times as fast the computing is with the best settings: as they were compared
    with none, or else by what each of them brought when it was added."""
    return found.ratio.ratio if found.ratio else math.prod(found.brought.values())


def _joined(before: Collection[Screened], now: Collection[Screened]) -> tuple[Screened, ...]:
    """Return what two screenings say of each value: the later one where it compared it at all."""
    later = {(each.knob, each.value): each for each in now if each.ratio or each.why}
    earlier = {(each.knob, each.value): each for each in before}
    return tuple({**{(e.knob, e.value): e for e in now}, **earlier, **later}.values())


def _place(knob: Knob) -> str:
    return knob.application(True).applier
