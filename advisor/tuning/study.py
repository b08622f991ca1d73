"""One tuning study: baseline, findings, search, ablation, proof, plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.knobs import Contribution, ScriptFacts, Settings, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Plan, StudyResult, Trial, TrialState
from gpuadvisor.errors import AdvisorError, Interrupted, ScriptError, UsageError
from gpuadvisor.rules import diagnose
from gpuadvisor.storage.database import Store, open_store
from gpuadvisor.tuners.ablation import Ablation
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.candidates import Candidates, Selection, select
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.neighbourhood import Neighbourhood
from gpuadvisor.tuners.proof import is_faster, prove
from gpuadvisor.tuners.search import Best, OrderedSearch
from gpuadvisor.tuning.arguments import ArgumentKnob
from gpuadvisor.tuning.bench import ScriptBench
from gpuadvisor.tuning.fingerprints import environment_fingerprint
from gpuadvisor.tuning.options import TuneOptions, check_knob_names
from gpuadvisor.tuning.plans import write_plan
from gpuadvisor.tuning.preparation import (
    check_script,
    company,
    devices_for,
    reserved,
    target_python,
)
from gpuadvisor.tuning.progress import Progress
from gpuadvisor.tuning.spending import Spending

if TYPE_CHECKING:
    import optuna

MEASURE_SHARE = 1 / 150
"""Part of a time budget that one run measures for, between the bounds below: longer budgets buy
quieter figures."""
SHORTEST_S, LONGEST_S = 1.5, 4.0


def tune(
    options: TuneOptions, progress: Progress, cancelled: Callable[[], bool] = lambda: False
) -> StudyResult:
    """Run a study and return its result; it is stored, and so is every trial as it ends.

    Raises UsageError for what cannot be done, ScriptError when the unchanged script cannot be
    measured. Ending it early is not an error: the result says so and holds what is known.
    """
    check_script(options.command)
    python = target_python(options.command)
    options = replace(options, command=replace(options.command, python=python.executable))
    devices = devices_for(python, options.jobs)
    with ExitStack() as stack:
        stack.enter_context(reserved(devices))
        store = stack.enter_context(open_store())
        fingerprint = environment(python, devices[0], options.command.script)
        study = _Study(options, devices, fingerprint, store, progress, cancelled)
        stack.enter_context(store.lock_study(study.name))
        return study.run()


class _Study:
    """The study in progress."""

    def __init__(
        self,
        options: TuneOptions,
        devices: list[Device],
        fingerprint: Environment,
        store: Store,
        progress: Progress,
        cancelled: Callable[[], bool],
    ) -> None:
        self._options = options
        self._devices = devices
        self._environment = fingerprint
        self._store = store
        self._progress = progress
        self._began_s = time.monotonic()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._knobs = self._all_knobs()
        earlier = self._earlier()
        self.name = earlier or self._create()
        self._spending = Spending(options.budget, self._knobs)
        self._bench = ScriptBench(
            options, devices, self._knobs, self._spending, progress, self._keep, cancelled
        )
        self._bench.schedule = _schedule(options)
        if earlier is not None:
            self._resume()
        self._notes: list[str] = []
        self._candidates = Candidates((), {})
        self._search: OrderedSearch | None = None

    # -- beginning -----------------------------------------------------------------------------

    def _all_knobs(self) -> dict[str, Knob]:
        options = self._options
        knobs = load_knobs()
        for name, values in options.arguments.items():
            knob = ArgumentKnob(name, values, options.command.args)
            knobs[knob.name] = knob
        check_knob_names(options.only, knobs, "--only")
        check_knob_names(options.without, knobs, "--without")
        return knobs

    def _earlier(self) -> str | None:
        options = self._options
        if not options.resume:
            return None
        if options.study is not None:
            return options.study
        found = self._store.load_unfinished(
            options.command.script, options.command.args, options.level, options.objective
        )
        if found is None:
            raise UsageError(
                "--resume: there is no unfinished study of this script with these arguments; "
                "start one without --resume"
            )
        return found.name

    def _create(self) -> str:
        options = self._options
        return self._store.create_study(
            options.study,
            options.command.script,
            options.command.args,
            self._environment,
            options.level,
            options.objective,
            self._started,
        )

    def _resume(self) -> None:
        trials = self._store.trials(self.name)
        self._bench.remember(trials)
        searched = sum(trial.phase == "search" for trial in trials)
        self._progress.say(f"Study {self.name} goes on: {searched} trials are known already.")

    def _keep(self, trial: Trial) -> None:
        self._store.add_trial(self.name, trial)

    # -- the phases ----------------------------------------------------------------------------

    def run(self) -> StudyResult:
        best: Best | None = None
        contributions: tuple[Contribution, ...] = ()
        try:
            self._measure_baselines()
            best = self._find()
            settings, contributions = self._ablate(best)
            result = self._prove(settings, contributions)
        except Interrupted as interruption:
            result = self._interrupted(str(interruption), best)
        self._store.finish_study(result)
        return result

    def _enter(self, phase: str, detail: str = "") -> None:
        self._spending.phase = phase
        self._progress.phase(phase, detail)

    def _measure_baselines(self) -> None:
        self._enter("baseline", "the unchanged script, and how much two runs of it differ")
        for warning in filter(None, map(company, self._devices)):
            self._note(warning)
        first = self._bench.measure_baseline()
        baseline = _measured(first, self._options)
        if self._options.objective.cost(baseline) is None:
            raise UsageError(
                f"--objective {self._options.objective} cannot be measured here: this GPU gives no "
                "energy counter"
                if self._devices[0].is_gpu
                else "--objective energy needs a GPU: the energy of a CPU is not measured"
            )
        second = self._bench.measure_baseline()
        traces = [m.trace for m in (baseline, second.measurement) if m is not None]
        other = self._other_seed(baseline.facts)
        self._bench.comparison.calibrate(traces, other.trace if other else None)
        advice = self._spending.advice()
        if advice is not None:
            self._note(advice)
        if first.short:
            self._note(
                f"the script ends after {first.steps} steps, so the figures rest on "
                f"{baseline.steps} of them: give it more work for narrower intervals"
            )

    def _other_seed(self, facts: ScriptFacts) -> Measurement | None:
        """Run with another seed where other random numbers are in play: loaders with workers."""
        if not (facts.training and facts.loaders):
            return None
        return self._bench.measure_baseline(seed=self._options.seed + 1).measurement

    def _find(self) -> Best:
        assert self._bench.baseline is not None  # `_measure_baselines` raised otherwise
        facts = self._bench.baseline.facts
        findings = diagnose(self._bench.baseline)
        for finding in findings:
            self._note(finding.sentence)
        first = [name for finding in findings for name in finding.knobs]
        options = self._options
        selection = Selection(options.level, options.objective, options.only, options.without)
        self._candidates = select(self._knobs, selection, self._devices[0], facts, first)
        names = [candidate.knob.name for candidate in self._candidates.chosen]
        self._enter("search", f"{len(names)} knobs: {', '.join(names)}" if names else "no knobs")
        self._search = OrderedSearch(
            self._bench, self._knobs, self._candidates, self._bench.baseline
        )
        best = self._search.run()
        with self._store.recording():
            best = self._neighbours(best)
        if self._search.left_out:
            self._note(f"not tried for want of budget: {', '.join(self._search.left_out)}")
        return best

    def _neighbours(self, best: Best) -> Best:
        assert self._search is not None and self._bench.baseline is not None  # `_find` made them
        if not self._candidates.chosen:
            return best
        neighbourhood = Neighbourhood(
            _optuna_study(self._store, self.name),
            self._knobs,
            self._candidates,
            self._bench.baseline,
        )
        for trial in self._search.trials:
            neighbourhood.record(trial)
        return neighbourhood.search(self._bench, best)

    def _ablate(self, best: Best) -> tuple[Settings, tuple[Contribution, ...]]:
        if not best.settings:
            return {}, ()
        if len(best.settings) == 1:
            return best.settings, ()
        self._enter("ablation", f"taking out each of {', '.join(best.settings)}")
        assert self._bench.baseline is not None  # the search needed it
        ablation = Ablation(self._bench, self._knobs, self._bench.baseline.facts, self._gained())
        settings, contributions = ablation.run(best.settings)
        if ablation.unmeasured and settings:
            names = ", ".join(ablation.unmeasured)
            self._note(f"the budget left no room to measure {names} alone: as seen in the search")
        return settings, contributions

    def _gained(self) -> Mapping[str, float]:
        """Return what each knob brought when the search kept it."""
        gained: dict[str, float] = {}
        kept: dict[str, float] = {}
        for trial in self._search.trials if self._search else ():
            if trial.state is TrialState.COMPLETE and trial.gain is not None:
                before = max((g for s, g in kept.items()), default=1.0)
                for name in trial.settings:
                    gained.setdefault(name, trial.gain / before)
                kept[str(trial.number)] = max(before, trial.gain)
        return gained

    def _prove(self, settings: Settings, contributions: tuple[Contribution, ...]) -> StudyResult:
        if not settings:
            return self._result("no_gain")
        self._enter("proof", "fresh processes, best and baseline in turn")
        speedup, trials = prove(self._bench, settings)
        best = _last(trials, with_settings=True)
        plain = _last(trials, with_settings=False)
        result = replace(
            self._result("no_gain"),
            settings=settings,
            speedup=speedup,
            best=best.measurement if best else None,
            equivalence=best.equivalence if best else None,
        )
        if plain is not None and plain.measurement is not None:
            result = replace(result, baseline=plain.measurement)
        if speedup is None or not is_faster(speedup):
            return result
        if len(settings) == 1:
            contributions = tuple(
                Contribution(name, value, speedup.ratio, speedup.ci99_low, speedup.ci99_high)
                for name, value in settings.items()
            )
        return self._with_plan(replace(result, verdict="faster", contributions=contributions))

    # -- ending --------------------------------------------------------------------------------

    def _note(self, sentence: str) -> None:
        self._notes.append(sentence)
        self._progress.say(sentence)

    def _interrupted(self, why: str, best: Best | None) -> StudyResult:
        if self._bench.baseline is None:
            raise Interrupted(f"{why} before the unchanged script was measured")
        settings = best.settings if best else self._best_so_far()
        if settings:
            self._note(f"best so far, not proven: {_in_words(settings)}")
        return replace(self._result("no_gain"), settings=settings, interrupted=why)

    def _best_so_far(self) -> Settings:
        return self._search.best.settings if self._search else {}

    def _result(self, verdict: str) -> StudyResult:
        """Return the result without a best; the phases add what they know."""
        assert self._bench.baseline is not None  # no phase after the baseline's runs without it
        options = self._options
        return StudyResult(
            study=self.name,
            script=options.command.script,
            args=options.command.args,
            environment=self._environment,
            level=options.level,
            objective=options.objective,
            verdict=verdict,
            baseline=self._bench.baseline,
            trials=tuple(self._bench.trials),
            no_effect=self._without_effect(),
            notes=tuple(self._notes),
            started=self._started,
            wall_s=time.monotonic() - self._began_s,
        )

    def _without_effect(self) -> dict[str, str]:
        """Return the knobs that could not do anything here, with the reason."""
        found = dict(self._candidates.unavailable)
        found.update(self._search.pointless if self._search else {})
        for trial in self._search.trials if self._search else ():
            if trial.state in (TrialState.NO_EFFECT, TrialState.UNSUPPORTED):
                name = list(trial.settings)[-1]
                found.setdefault(name, trial.reason)
        return found

    def _with_plan(self, result: StudyResult) -> StudyResult:
        """Write the plan and return the result that names it."""
        stem = Path(result.script).stem or "script"
        path = self._options.plan or Path(f"{stem}.plan.toml")
        plan = Plan(
            script=result.script,
            args=result.args,
            settings=result.settings,
            speedup=result.speedup,
            level=result.level,
            objective=result.objective,
            contributions=result.contributions,
            equivalence=result.equivalence,
            environment=environment_fingerprint(self._environment),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        try:
            write_plan(plan, path)
        except AdvisorError as error:  # the study is worth more than its file
            self._note(str(error))
            return replace(result, notes=tuple(self._notes))
        return replace(result, plan=str(path))


def _schedule(options: TuneOptions) -> Schedule:
    """Return how long one run measures, from the budget."""
    budget_s = options.budget.seconds
    measure_s = LONGEST_S if budget_s is None else budget_s * MEASURE_SHARE
    measure_s = min(LONGEST_S, max(SHORTEST_S, measure_s))
    return Schedule(
        measure_s=measure_s,
        warmup_s=measure_s / 4,
        window_s=measure_s / 8,
        max_measure_s=4 * measure_s,
    )


def _measured(outcome: RunOutcome, options: TuneOptions) -> Measurement:
    """Return the baseline's measurement, or raise what the user can do about its absence."""
    if outcome.measurement is not None:
        return outcome.measurement
    script = options.command.script
    where = f" at {outcome.place}" if outcome.place else ""
    if outcome.state is TrialState.HUNG:
        advice = "raise --timeout if it needs longer to start"
    elif outcome.state is TrialState.UNSUPPORTED:
        advice = "give it more steps, or mark each step with gpuadvisor.step() in the script"
    elif outcome.state is TrialState.OUT_OF_MEMORY:
        advice = "it has to run by itself before it can be tuned: make its batch smaller"
    else:
        advice = "it has to run by itself before it can be tuned; its own arguments go after --"
    raise ScriptError(
        f"{script} cannot be measured: {outcome.reason}{where}; {advice}", outcome.output
    )


def _optuna_study(store: Store, name: str) -> optuna.Study:
    """Return the study's record in Optuna's tables of the same database."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=store.optuna_storage(),
        study_name=name,
        direction="maximize",
        load_if_exists=True,
        # Univariate: with the repair to untried neighbours, `multivariate` was worse on every
        # search space but the trivial one.
        sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=5),
    )


def _last(trials: list[Trial], with_settings: bool) -> Trial | None:
    found = [t for t in trials if bool(t.settings) is with_settings and t.measurement is not None]
    return found[-1] if found else None


def _in_words(settings: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
