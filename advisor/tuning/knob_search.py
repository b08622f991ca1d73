"""Searches for settings that look better: knob by knob, then combinations, then what each is worth.

A study searches on without what a rehearsal found harmful or a proof useless, while there is
something else to try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.domain.knobs import Contribution, Origin, Settings
from gpuadvisor.domain.loader_supply import LoaderSupply
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import ScreenedAs
from gpuadvisor.domain.study import TrialState
from gpuadvisor.storage.database import Store
from gpuadvisor.tuners.ablation import Ablation
from gpuadvisor.tuners.knob_space import KnobSpace
from gpuadvisor.tuners.knobs._script import WORKERS
from gpuadvisor.tuners.loader.limit import LAST, computing_worth
from gpuadvisor.tuners.neighbourhood import Neighbourhood
from gpuadvisor.tuners.search import Best, OrderedSearch, pays
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.budgeting.reserve import Reserve
from gpuadvisor.tuning.live.search_start import Screening
from gpuadvisor.tuning.live.supply_timer import LEAST_WAITING, not_promising, shown_by
from gpuadvisor.tuning.outcome.recorder import StudyRecorder
from gpuadvisor.tuning.outcome.verdicts import not_tried
from gpuadvisor.tuning.trials.evaluator import ScriptEvaluator
from gpuadvisor.tuning.trials.trial_runner import Progress

TIMED_RUNS = 3
"""Runs that it takes to time a loader alone, which lasts one or two, and to try what it shows."""
SCREENED_RUNS = 3
"""Runs that it takes to screen what starts slowly, with and without a layout, and to try it."""

REFUSED = (TrialState.UNSUPPORTED, TrialState.CRASHED)
"""States of a trial that cannot be, whatever it would bring."""


@dataclass
class KnobSearch:
    """The search of one study, in as many rounds as it takes."""

    chosen: KnobSpace
    """The knobs that are to be tried, and why the others are not."""
    screening: Screening
    """What was found out of these knobs in one running script before the first round."""
    baseline: Measurement
    evaluator: ScriptEvaluator
    budget: Budget
    store: Store
    recorder: StudyRecorder
    progress: Progress
    enter: Callable[[str, str], None]
    """Begins a phase, of which it gets the name and a few words."""
    screen_rest: Callable[[Screening], Screening]
    """Screens what an earlier screening left for last."""
    time_loader: Callable[[float, float], LoaderSupply | None] = lambda waits, computing_ms: None
    """Times the loader alone, as `Screener` has it."""
    best: Best = field(default_factory=lambda: Best({}, 1.0))
    """What the present round stands on."""
    left_aside: list[str] = field(default_factory=list)
    """Knobs that did harm or brought nothing, so that later rounds do without."""
    _standing: Settings = field(default_factory=dict)
    """What is left of the best settings of the screening, where a trial of it paid, too."""
    _last: OrderedSearch | None = None
    _entered: bool = False
    _goes_on: bool = True
    """Whether the next round has another space than the last one."""

    def leave_aside(self, names: Iterable[str]) -> None:
        """Do without these knobs from now on."""
        new = [name for name in dict.fromkeys(names) if name not in self.left_aside]
        self.left_aside += new
        self._goes_on |= bool(new)
        if self.budget.fallback.settings.keys() & set(new):
            self.budget.fallback = Best({}, 1.0)

    def sure_start(self) -> Settings:
        """Return what is to be proven before anything else is searched; empty for nothing.

        That is the only setting there is, where the time has room for a trial of it or for its
        proof and rehearsal: that begins with such a run. Or what the screening found best, where
        there is time for one trial only; or where it left the rest for last as the loader is the
        limit, if a trial confirms that nothing else can bring much.
        """
        if only := self._only_setting():
            left_s = self.budget.left_s
            needed_s = self.budget.expected_s(only) + self.budget.deciding_s(only)
            return only if left_s is not None and left_s < needed_s else {}
        if not self.screening.result.is_limited:
            return self._shown_start()
        self._enter(list(self._left().by_name))
        self._begin()
        run = self.best.measurement
        confirmed = run and any(each.limited(run) for each in self.chosen.space.parameters)
        return self.best.settings if confirmed else {}

    def _only_setting(self) -> Settings:
        """Return the only value that the only knob can have; empty where there are more."""
        parameters = self._left().parameters
        one = len(parameters) == 1 and len(parameters[0].values) == 1
        return {parameters[0].name: parameters[0].values[0]} if one else {}

    def _shown_start(self) -> Settings:
        """Return what the screening found best, to be proven without a trial, where there is time
        for one trial only, after which its proof would come; else nothing.

        A trial has to confirm what the loader supplies alone, and batches that grew: a fresh
        process may need more memory than the running one.
        """
        screening, start = self.screening, self.screening.start
        is_shown = screening.least > 1 and screening.starts() == [screening.result.settings]
        if not (is_shown and self.budget.is_last_trial(start)):
            return {}
        if not self.budget.may_show(start, screening.gain):
            return {}
        self.evaluator.proof.promised = Best(start, screening.gain)
        return start

    def find(self, proven: Best | None = None) -> Settings:
        """Search, and return what looks best; empty where nothing does, or there is no more to try.

        What earlier rounds ran is not run again. On top of what is `proven`, knobs are tried that
        had no room before, and only what looks better is returned.
        """
        self.best = proven or Best({}, 1.0)
        self.budget.stands_on, self.budget.has_found = self.best, False
        self._standing = self.best.settings or self.screening.start
        space, last, tried = self._left(), self._last, self._tried()
        names = list(space.by_name)
        if proven is not None:
            left = last.limited if last and self.budget.reserve is Reserve.NOTHING else {}
            done = tried | proven.settings.keys() | left.keys()
            names = [name for name in names if name not in done]
            space = self.chosen.space
        if not self._has_more(space, names):
            return {}
        self._goes_on = False
        if not names or self._affordable(space, names):
            self._enter(names)
        if proven is None or not tried:
            self._begin()
            self._cure_waiting()
            self._go_on(names)
        if proven is None:
            space = self._left()
            names = list(space.by_name)
        search = OrderedSearch(
            self.evaluator,
            space,
            self.baseline,
            self.best,
            names,
            on_best=self._on_best,
            tries_limited=proven is not None and self.budget.reserve is not Reserve.NOTHING,
        )
        start, brought = self.best.settings, self.screening.brought
        alone = self.best.gain if len(start) == 1 else None
        search.brought.update((n, known) for n in start if (known := brought.get(n, alone)))
        self._last = search
        search.run()
        if proven is not None:
            if last is not None:
                search.keep(last)
            return self.best.settings if self.best is not proven else {}
        # Combinations of what brought nothing come after what had no room, and after the proof
        # that there is no gain, for which a last search has left nothing.
        is_last = self.budget.reserve is Reserve.NOTHING
        if space.parameters and (self.best.settings or not (search.left_out or is_last)):
            self._explore(space)
        return self.best.settings

    def _left(self) -> Space:
        """Return what this round searches; a later one begins with what none has tried."""
        space = self.screening.left(self._standing)
        parameters = [each for each in space.parameters if each.name not in self.left_aside]
        if self._last is not None:
            tried = self._tried()
            parameters.sort(key=lambda each: each.name in tried)
        return replace(space, parameters=tuple(parameters))

    def _begin(self) -> None:
        """Stand on what the screening found best, if a trial of it pays, too."""
        self._standing = self.best.settings
        for start in self.screening.starts():
            for name in self.left_aside:
                if name in start:
                    start = self.chosen.space.without(start, name)
            start = self._affordable_part(start)
            if start.items() <= self.best.settings.items():
                return
            (trial,) = self.evaluator.measure([start], "search")
            relieved = None if pays(trial, self.best) else self.chosen.space.relieved(trial)
            if relieved is not None and self.evaluator.affordable([relieved]):
                (trial,) = self.evaluator.measure([relieved], "search")
            # Something else in it may be impossible, which says nothing of the loader.
            workers = start.get(WORKERS)
            if trial.state in REFUSED and workers is not None and len(start) > 1:
                alone = self.chosen.space.combined(self.best.settings, WORKERS, workers)
                if self.evaluator.affordable([alone]):
                    (trial,) = self.evaluator.measure([alone], "search")
            if pays(trial, self.best):
                self._standing = trial.settings
                self._on_best(Best(trial.settings, trial.gain or 1.0, trial))
            if trial.state is not TrialState.OUT_OF_MEMORY:
                return

    def _cure_waiting(self) -> None:
        """Give the best so far more workers where it waits for its loader, before all else: what is
        tried beside that waiting is measured through it."""
        run, space, supply = self.best.measurement, self.chosen.space, self.screening.supply
        if run is None or WORKERS not in space or run.starved_share < LEAST_WAITING:
            return
        computing_ms = run.mean_step_ms * (1 - run.starved_share)
        if supply is None and self.budget.has_room_for_more(self.best.settings, TIMED_RUNS):
            supply = self.time_loader(run.starved_share, computing_ms)
            if supply is not None:
                self.screening = self.screening.supplied(supply, computing_ms, self.baseline)
                supply = self.screening.supply
        own = run.facts.loaders[0].num_workers if run.facts.loaders else 0
        more = [count for count in (supply.workers if supply else ()) if count > own]
        points = [space.combined(self.best.settings, WORKERS, count) for count in more]
        if not points or not self.budget.has_room_for_more(points[0]):
            return
        (trial,) = self.evaluator.measure(points[:1], "search")
        if pays(trial, self.best):
            self._on_best(Best(points[0], trial.gain or 1.0, trial))

    def _go_on(self, names: Sequence[str]) -> None:
        """Go on with what a screening left for last, where the first trial shows that the loader is
        not the limit.

        The rest is screened if there is time to decide on what starts slowly, too, or the first of
        that is tried at once.
        """
        run, space, best = self.best.measurement, self.chosen.space, self.best.settings
        left = self.screening.result.of(ScreenedAs.UNRESOLVED)
        known = run is not None and not any(each.limited(run) for each in space.parameters)
        if not (self.screening.result.is_limited and known):
            return
        points = [space.combined(best, n, values[0]) for n, values in left.items() if n not in best]
        expected_s = self.budget.expected_s
        slow = [each for each in points if expected_s(each) > expected_s(best)]
        first = min(slow, key=expected_s, default=best)
        if self.budget.has_room_for_more(first, SCREENED_RUNS):
            self.screening = self.screen_rest(self.screening)
            self._enter(names)
            self._begin()
        elif slow and self.budget.has_room_for_more(first):
            (trial,) = self.evaluator.measure([first], "search")
            if pays(trial, self.best):
                self._on_best(Best(first, trial.gain or 1.0, trial))

    def _affordable_part(self, settings: Settings) -> Settings:
        """Return settings of which a trial and a proof have room, without what starts slowly and is
        not proven.

        Empty where nothing else would make room.
        """
        expected_s, space = self.budget.expected_s, self.chosen.space
        while settings and not self.evaluator.affordable([settings]):
            names = [name for name in settings if name not in self.best.settings]
            rests = [space.without(settings, name) for name in names]
            quickest = min(rests, key=expected_s, default=settings)
            settings = quickest if expected_s(quickest) < expected_s(settings) else {}
        return settings

    def _has_more(self, space: Space, names: Sequence[str]) -> bool:
        """Say whether another round with these knobs can find what the last one did not."""
        if self._last is None:
            return True
        if self._goes_on:
            return bool(names)
        last = self._last
        left = [n for n in (*last.left_out, *last.discouraged, *last.limited) if n in names]
        return self._affordable(space, left)

    def _affordable(self, space: Space, names: Sequence[str]) -> bool:
        """Say whether the budget has room for the first value of one of these knobs."""
        self.budget.phase = "search"
        best = self.best.settings
        firsts = (space.combined(best, name, space[name].values[0]) for name in names)
        return any(self.evaluator.affordable([first]) for first in firsts)

    def _enter(self, names: Sequence[str]) -> None:
        tried = self._tried() if self._entered else set()
        names = [name for name in names if name not in tried]
        plural = "" if len(names) == 1 else "s"
        what = f"{len(names)} knob{plural}: {', '.join(names)}" if names else "no knobs"
        if self._entered:
            without = f" without {', '.join(self.left_aside)}" if self.left_aside else ""
            what = f"once more{without}: {', '.join(names) or 'what was tried beside others'}"
        self.enter("search", what)
        self._entered = True

    def _tried(self) -> set[str]:
        """Return the knobs that some run of the search had."""
        trials = self.evaluator.trials
        return {name for trial in trials if trial.phase == "search" for name in trial.settings}

    def _explore(self, space: Space) -> None:
        """Try combinations near the best."""
        with self.store.recording():
            neighbourhood = Neighbourhood(self.recorder.optuna_study(), space, self.baseline)
            for trial in self.evaluator.trials:
                if trial.phase == "search":
                    neighbourhood.record(trial)
            neighbourhood.search(self.evaluator, self.best, self._on_best)

    def _on_best(self, best: Best) -> None:
        self.best = best
        self.budget.stands_on, self.budget.has_found = best, True
        self.budget.fallback = max(best, self.budget.fallback, key=lambda each: each.gain)
        self.progress.on_best(best.settings, best.gain)

    def ablate(self) -> tuple[Settings, tuple[Contribution, ...]]:
        """Return what is left of the best when each knob is taken out, and what each brings."""
        best = self.best.settings
        if len(best) < 2 or self._last is None:
            return best, ()
        known = self._known(best)
        if unknown := [name for name in best if name not in known]:
            self.enter("ablation", f"taking out each of {', '.join(unknown)}")
        space, start = self.chosen.space, self.screening.start
        return Ablation(self.evaluator, space, self._last.brought, known, start).run(best)

    def known_live(self, run: Measurement) -> list[Contribution]:
        """Return what knobs are known to bring in one process, to a script that waits as this run
        of it did."""
        return [
            replace(each, origin=Origin.LIVE)
            for each in self.screening.contributions(run.starved_share)
            if each.low is not None and each.low > 1
        ]

    def _known(self, best: Settings) -> dict[str, Contribution]:
        """Return what knobs are known to bring beside all others of the search's first trial.

        From the screening, and from the loader alone where this trial was faster than the script's
        own workers allow.
        """
        screening, trials = self.screening, self.evaluator.trials
        trial = next((t for t in trials if t.settings == screening.start), None)
        if not best.items() >= screening.start.items() or trial is None or not trial.measurement:
            return {}
        found = self.known_live(trial.measurement)
        if screening.supply is not None:
            found += shown_by(screening.supply, self.baseline, trial.measurement)
        return {each.knob: each for each in found}

    # -- what is said of it --------------------------------------------------------------------

    def without_effect(self) -> dict[str, str]:
        """Return the knobs that could not do anything here, with the reason."""
        last = self._last
        found = {**self.chosen.unavailable, **self.screening.without_effect}
        if last is not None:
            found |= {n: why for n, why in last.pointless.items() if n not in last.limited}
        for trial in self.evaluator.trials:
            useless = trial.state in (TrialState.NO_EFFECT, TrialState.UNSUPPORTED)
            if useless and trial.phase == "search":
                name = list(trial.settings)[-1]  # the search puts the new one last
                found.setdefault(name, trial.reason)
        return found

    def left_for_last(self, standing: Settings) -> str:
        """Return a sentence that says what was not tried, as the loader is the limit of a step with
        the `standing` settings, and what that could bring; empty where nothing is known of it."""
        why, untried = self._worth_of_computing(standing), self.untried("", "", standing)
        names = [name for name, reason in untried.items() if why and reason == why]
        return f"not tried: {', '.join(names)}: {why}" if names else ""

    def _worth_of_computing(self, standing: Settings) -> str:
        supply, runs = self.screening.supply, self.evaluator.trials
        complete = [t for t in runs if t.measurement and t.state is TrialState.COMPLETE]
        of_both = (
            [t.measurement for t in complete if t.measurement and t.settings == settings]
            for settings in (standing, {})
        )
        return computing_worth(supply, *of_both) if supply else ""

    def wanting(self) -> list[Settings]:
        """Return settings of each knob that was not tried, or with another value only, for want of
        budget; the new one comes last.
        """
        if self._last is None:
            return []
        trials = self.evaluator.trials
        known = [trial.settings for trial in trials if trial.phase in ("search", "proof")]
        stands_on = self._last.best.settings
        found: list[Settings] = []
        for name in self._last.left_out:
            tried = [settings.get(name) for settings in known]  # in any round
            parameter = self.chosen.space[name]
            value = next((each for each in parameter.values if each not in tried), None)
            if value is not None:
                found.append(self.chosen.space.combined(stands_on, name, value))
        return found

    def untried(
        self, no_room: str, interrupted: str, standing: Settings | None = None
    ) -> dict[str, str]:
        """Return the knobs and values that were not tried, and why.

        `no_room` says that the budget was spent, `interrupted` why the study ended early;
        `standing` are the settings that it ends with.
        """
        if self._last is None:
            return {}
        trials = self.evaluator.trials
        space = self.screening.left(self._standing)
        found = not_tried(space, self._last, trials, no_room, interrupted)
        worth = self._worth_of_computing(standing or {})
        last = {name: worth for name, why in found.items() if worth and why == LAST}
        found |= last
        return {**found, **not_promising(self.screening.supply, self.evaluator.trials)}
