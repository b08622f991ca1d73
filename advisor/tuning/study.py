"""A tuning study: baseline, findings, search, ablation, proof, plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.knobs import Contribution, Origin, Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.study import Expectation, StudyResult, TrialState
from gpuadvisor.errors import AdvisorError, Interrupted, ScriptError
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.storage.database import Store
from gpuadvisor.storage.home import home
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knob_space import HOST_DECIDES, Selection, select_knobs
from gpuadvisor.tuners.proof import is_faster, is_no_gain
from gpuadvisor.tuners.search import Best
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning.arguments import ArgumentKnob
from gpuadvisor.tuning.baselines import Baselines, baseline_warnings, measure_baselines
from gpuadvisor.tuning.budget import Budget, Reserve, schedule_for
from gpuadvisor.tuning.cold_start import cold_start, compiles
from gpuadvisor.tuning.evaluator import ScriptEvaluator
from gpuadvisor.tuning.forking import Forker
from gpuadvisor.tuning.hindsight import in_hindsight
from gpuadvisor.tuning.knob_search import KnobSearch
from gpuadvisor.tuning.leftovers import left_since, look
from gpuadvisor.tuning.options import TuneOptions, knobs_for
from gpuadvisor.tuning.preparation import (
    check_objective,
    check_scratch,
    check_script,
    devices_for,
    gpu_contention,
    plan_path,
    reserved,
    target_python,
)
from gpuadvisor.tuning.proving import Prover, format_settings
from gpuadvisor.tuning.recorder import StudyRecorder, recorded
from gpuadvisor.tuning.results import (
    combined,
    deserves_plan,
    expected,
    format_expectation,
    keep_plan,
    with_measured,
)
from gpuadvisor.tuning.screening import Screener
from gpuadvisor.tuning.trial_runner import Progress, Recording
from gpuadvisor.tuning.value_finding import ValueFinder
from gpuadvisor.tuning.verdicts import (
    budgets_for,
    candidate,
    is_worth_a_proof,
    time_needed,
    untried_knobs,
    verdict_of,
)

ProfileBaseline = Callable[[Command, Measurement, Device, tuple[int, ...], Path | None], Diagnosis]
"""Diagnoses the unchanged script on a GPU and these CPU cores, none for all, from a trace of its
steps, or by a run that records them where there is none. ScriptError where it cannot be
profiled."""

TRACE = "trace.json"
"""Name of the trace of the unchanged script's steps."""

MOST_IMPROVEMENTS = 2
"""Proofs on top of a proven gain. With the error that the comparison of each with what is proven
has, a quarter of a half of 1 in 100, and that of all proofs, a study claims something false in 0.92
of 100 cases at most."""
SHOWN_SEVERITIES = (str(Severity.WARNING), str(Severity.CRITICAL))
"""Severities of the findings that are shown before the search; the others stand in the report."""


def tune(
    options: TuneOptions,
    progress: Progress,
    cancelled: Callable[[], bool] = lambda: False,
    profile_baseline: ProfileBaseline | None = None,
) -> StudyResult:
    """Run a study and return its result; it is stored, and so is every trial as it ends.

    `profile_baseline` diagnoses the unchanged script on a GPU; without it, as on a CPU, the search
    is led by what the harness saw alone.

    Raises UsageError for what cannot be done, ScriptError when the unchanged script cannot be
    measured, Interrupted when it was stopped before that. Stopping it later is not an error:
    the result says so and holds what is known.
    """
    check_script(options.command)
    check_scratch(options.scratch)
    plan = plan_path(options.command, options.plan)
    knobs = knobs_for(options)
    python = target_python(options.command)
    options = replace(options, command=replace(options.command, python=python.executable))
    devices = devices_for(python, options.jobs)
    check_objective(options.objective, devices[0])
    with reserved(devices, recorded(options, python, devices[0])) as kept:
        study = _Study(
            options, devices, knobs, kept.recorder, progress, cancelled, plan, profile_baseline
        )
        return study.run(kept.store)


@dataclass
class _Study:
    """A study in progress."""

    options: TuneOptions
    devices: list[Device]
    knobs: Mapping[str, Knob]
    recorder: StudyRecorder
    progress: Progress
    cancelled: Callable[[], bool]
    plan: Path
    """Place where the plan is written if there is a gain."""
    profile_baseline: ProfileBaseline | None

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._budget = Budget(self.options.budget, self.knobs)
        self._evaluator = ScriptEvaluator(
            self.options,
            self.devices,
            self.knobs,
            self._budget,
            self.progress,
            self.recorder.keep,
            self.cancelled,
            schedule_for(self.options.budget),
        )
        self._notes: list[str] = []
        self._enough_s: float | None = None
        """Budget that would have room for what was left out."""
        self._no_room = "the budget had no room for it"
        self._expectations: tuple[Expectation, ...] = ()
        self._search: KnobSearch | None = None
        self._proven: StudyResult | None = None
        """What is proven so far; it is kept, whatever happens to what is tried on top of it."""
        self._prover = Prover(
            self.options,
            self._evaluator.side({}, self.devices[0]),
            self.knobs,
            self._evaluator,
            self._budget,
            self.progress,
            self.cancelled,
            self._enter,
            self._note,
            self._result,
            lambda settings, name: self._space.without(settings, name),
        )

    # -- the phases ----------------------------------------------------------------------------

    def run(self, store: Store) -> StudyResult:
        if self.options.resume:
            self._resume()
        before = None if self.options.scratch else look(self.options.command)
        self._forker = Forker(self._evaluator.runner, self.options)
        with self._forker, run_folder() as folder:
            try:
                baselines = self._measure_baselines(folder / TRACE)
                self._diagnose(folder / TRACE)
                side = self._evaluator.side({}, self.devices[0])
                self._note(self._forker.begin(side, baselines, self._budget.expected_runs))
                self._prepare_search(store)
                assert self._search is not None
                result = self._decide(self._search)
                if is_faster(result.speedup):
                    result = self._improve(self._search, result)
                    self._start_cold(result)
                self._note_left_out(self._search.wanting())
            except Interrupted as interruption:
                result = self._interrupted(str(interruption))
        result = self._concluded(result)
        if before is not None:
            left = left_since(before, self.options.command, (self.plan, home()))
            result = replace(result, left=left)
        self.recorder.finish(result)
        return result

    def _resume(self) -> None:
        trials = self.recorder.known
        self._evaluator.remember(trials)
        known = sum(trial.phase == "search" for trial in trials)
        self.progress.on_message(
            f"Study {self.recorder.study} goes on: {known} trials are known already."
        )

    def _enter(self, phase: str, detail: str = "") -> None:
        self._budget.phase = phase
        self.progress.on_phase(phase, detail)

    def _measure_baselines(self, trace: Path) -> Baselines:
        self._enter("baseline", "the unchanged script, and how much two runs of it differ")
        for warning in filter(None, map(gpu_contention, self.devices)):
            self._note(warning)
        baselines = measure_baselines(
            self._evaluator, self.options, recording=partial(self._recording, trace)
        )
        if advice := self._budget.advice():  # the report says what was left out in the end
            self.progress.on_message(advice)
        for sentence in baseline_warnings(baselines, self.devices):
            self._note(sentence)
        return baselines

    def _recording(self, trace: Path, first: Measurement) -> Recording | None:
        """Return what to record of the unchanged script's steps; None for nothing."""
        steps = self._budget.traced_steps(first.mean_step_ms)
        return Recording(trace, steps) if steps and self._can_profile(first) else None

    def _can_profile(self, baseline: Measurement) -> bool:
        on_gpu = self.devices[0].is_gpu and baseline.facts.device == "cuda"
        return self.profile_baseline is not None and on_gpu

    def _diagnose(self, trace: Path) -> None:
        """Find out where the unchanged script's time goes, and say what that promises."""
        timed = expected(diagnose(Evidence(measured=self._baseline)))
        self._diagnosis = self._diagnosed(trace if trace.is_file() else None)
        self._expectations = combined(expected(self._diagnosis), timed)
        for expectation in self._expectations:
            if expectation.severity in SHOWN_SEVERITIES:
                self._note(format_expectation(expectation))

    def _diagnosed(self, trace: Path | None) -> Diagnosis:
        baseline, device = self._baseline, self.devices[0]
        if self.profile_baseline is not None and self._can_profile(baseline):
            if trace is not None or self._budget.has_room_for_profile():
                self._enter("profile", "where the unchanged script's time goes")
                command, cores = self.options.command, self._evaluator.share_of_cores(device)
                try:
                    return self.profile_baseline(command, baseline, device, cores, trace)
                except ScriptError as error:
                    self._note(f"the search goes on without a profile: {error}")
            else:
                self._note("the budget left no room for a profile: a larger one may find more")
        return diagnose(Evidence(measured=baseline))

    @property
    def _gpu_share(self) -> float | None:
        """Share of the unchanged script's steps, without waiting for loaders, in which the GPU
        works; None where that is not known."""
        baseline, busy_ms = self._baseline, self._diagnosis.busy_ms
        rest_ms = baseline.mean_step_ms * (1 - baseline.data_wait_share)
        return min(1.0, busy_ms / rest_ms) if busy_ms is not None and rest_ms else None

    def _prepare_search(self, store: Store) -> None:
        """Choose the knobs, those that the findings point to first."""
        baseline = self._baseline
        first = [name for each in self._expectations for name in each.knobs]
        options, device = self.options, self.devices[0]
        # Arguments that the user named are wanted, whatever else --only says.
        asked = {n for n, knob in self.knobs.items() if isinstance(knob, ArgumentKnob)}
        only = options.only | asked if options.only else options.only
        selection = Selection(options.level, options.objective, only, options.without)
        share = self._gpu_share
        if share is not None and share < HOST_DECIDES:
            self.progress.on_message(
                f"the GPU works for {share:.0%} of a step's own time: what only saves it time comes"
                " last"
            )
        chosen = select_knobs(self.knobs, selection, device, baseline.facts, first, share)
        cores = self._evaluator.share_of_cores(device)
        finder = ValueFinder(
            options, device, self.knobs, baseline, cores, self.cancelled, self.progress
        )
        chosen = finder.found(chosen, self._evaluator.trials, self._budget, self._enter, self._note)
        template = self._evaluator.runner.template
        screener = Screener(
            options, device, self.knobs, baseline, cores, self.cancelled, self.progress, template
        )
        self._search = KnobSearch(
            chosen,
            screener.screening(chosen.space, self._budget, self._enter, self._note),
            baseline,
            self._evaluator,
            self._budget,
            store,
            self.recorder,
            self.progress,
            self._enter,
        )

    def _decide(self, search: KnobSearch) -> StudyResult:
        """Search, prove and rehearse until something is faster or nothing is left to try.

        What does harm or brings nothing is left aside, and the search goes on with the rest.
        """
        result: StudyResult | None = None
        best_proven: Settings = {}
        for reserve in Reserve:
            unproven = reserve is Reserve.NOTHING and result is None
            if unproven and is_worth_a_proof(self._evaluator.trials, self._dropped, self._untried):
                best_proven = self._candidate()
                result = self._prover.prove(best_proven)
                search.leave_aside(self._dropped)
                if is_faster(result.speedup):
                    return result
            self._budget.reserve = reserve
            while search.find():
                settings, contributions = self._ablate(search)
                found = self._prover.prove(settings, contributions)
                rest = self._prover.rehearsed.settings
                if rest:
                    result, best_proven = found, self._looks_best()
                    if not is_no_gain(result.speedup):
                        return result
                search.leave_aside([*(rest or settings), *self._dropped])
        # Where all was tried, what was found since the last proof must not look better.
        if result is not None and (self._untried or self._looks_best() == best_proven):
            return result
        return self._prover.prove(self._candidate())

    def _improve(self, search: KnobSearch, proven: StudyResult) -> StudyResult:
        """Try on top of what is proven what there is still time to prove, and return the best.

        Everything else is kept back before a run is begun: its own proof and rehearsal.
        """
        self._budget.has_plan = True
        for _ in range(MOST_IMPROVEMENTS):
            self._proven = proven
            best = self._prover.typical(proven.settings)
            if best is None or not search.find(Best(best.settings, best.gain or 1.0, best)):
                break
            settings, contributions = self._ablate(search)
            proven = self._prover.improve(proven, settings, contributions)
            search.leave_aside(name for name in settings if name not in proven.settings)
        return proven

    def _start_cold(self, result: StudyResult) -> None:
        """Say how long a gain's first start takes where its settings compile."""
        self._proven = result
        side = self._evaluator.side(result.settings, self.devices[0])
        runner = self._evaluator.runner
        if compiles(runner, side.settings):
            self._enter("start", "how long it takes where nothing was compiled before")
        self._note(cold_start(runner, side, self._budget, self._evaluator.trials))

    def _note_left_out(self, wanting: Sequence[Settings]) -> None:
        """Say what the budget had no room for, and which would have."""
        if wanting:
            self._enough_s, words = budgets_for(wanting, self._budget, self.knobs)
            self._no_room += f": {words} would have"
            names = ", ".join(list(settings)[-1] for settings in wanting)  # the new one comes last
            self.progress.on_message(
                f"not tried for want of budget: {names}; {words.replace('`', '')} would have room"
            )

    def _ablate(self, search: KnobSearch) -> tuple[Settings, tuple[Contribution, ...]]:
        settings, contributions = search.ablate()
        guessed = [each.knob for each in contributions if each.origin is Origin.SEARCH]
        if guessed:
            names = ", ".join(guessed)
            self._note(f"the budget left no room to measure what {names} brings alone")
        return settings, contributions

    def _looks_best(self) -> Settings:
        """Return what looks best of all that the search measured and no rehearsal objected to."""
        return candidate(self._evaluator.trials, self._dropped)

    def _candidate(self) -> Settings:
        """Return what looked best without being better than noise, if there is time to prove it."""
        settings = self._looks_best()
        self._budget.phase = "proof"
        return settings if self._budget.affordable([{}, settings] * LOOKS[0]) else {}

    # -- ending --------------------------------------------------------------------------------

    @property
    def _baseline(self) -> Measurement:
        baseline = self._evaluator.validator.baseline
        assert baseline is not None  # without it, `_measure_baselines` raised
        return baseline

    @property
    def _space(self) -> Space:
        return self._search.chosen.space if self._search else Space()

    @property
    def _dropped(self) -> list[str]:
        """Knobs that rehearsals found a problem with."""
        return [each.knob for each in self._prover.rehearsed.dropped]

    @property
    def _untried(self) -> list[str]:
        """Knobs of which no value was tried so far."""
        return untried_knobs(self._search.untried(self._no_room, "")) if self._search else []

    def _note(self, sentence: str) -> None:
        if sentence:
            self._notes.append(sentence)
            self.progress.on_message(sentence)

    def _interrupted(self, why: str) -> StudyResult:
        if self._evaluator.validator.baseline is None:
            raise Interrupted(f"{why} before the unchanged script was measured")
        if self._proven is not None:
            return replace(self._proven, interrupted=why)
        best = self._search.best.settings if self._search else {}
        if best:
            self._note(f"best so far, not proven: {format_settings(best)}")
        return replace(self._result(), settings=best, interrupted=why)

    def _result(self) -> StudyResult:
        """Return the result of a study without a gain; the proof adds what it knows."""
        return replace(
            self.recorder.undecided(self._baseline, self._evaluator.trials),
            dropped=self._prover.rehearsed.dropped,
            expectations=self._expectations,
        )

    def _concluded(self, result: StudyResult) -> StudyResult:
        """Return the result with its verdict, and with what stands beside the proof."""
        useless = self._without_effect()
        untried: dict[str, str] = {}
        if self._search is not None:
            untried = self._search.untried(self._no_room, result.interrupted)
        result = replace(
            result,
            trials=tuple(self._evaluator.trials),
            forking=self._forker.result(self._evaluator.trials),
            dropped=self._prover.rehearsed.dropped,
            no_effect={name: why for name, why in useless.items() if name not in untried},
            untried=untried,
            screened=self._search.screening.result.values if self._search else (),
            supply=self._search.screening.supply if self._search else None,
            wall_s=time.monotonic() - self._began_s,
        )
        result = replace(
            result,
            screened=in_hindsight(result),
            verdict=verdict_of(result),
            expectations=tuple(with_measured(each, result) for each in self._expectations),
        )
        needed_s = time_needed(result, self._space, self._budget, self._enough_s)
        result = replace(result, needed_s=needed_s)
        if deserves_plan(result, self.options.plan):
            result = self._with_plan(result)
        return replace(result, notes=tuple(self._notes))

    def _without_effect(self) -> dict[str, str]:
        """Return the knobs that could not do anything here, with the reason."""
        if self._search is None:
            return {}
        search = self._search
        found = {**search.chosen.unavailable, **search.pointless}
        found.update(search.screening.without_effect)
        for trial in self._evaluator.trials:
            useless = trial.state in (TrialState.NO_EFFECT, TrialState.UNSUPPORTED)
            if useless and trial.phase == "search":
                name = list(trial.settings)[-1]  # the search puts the new one last
                found.setdefault(name, trial.reason)
        return found

    def _with_plan(self, result: StudyResult) -> StudyResult:
        existed = self.plan.exists()
        try:
            result = keep_plan(result, self.plan)
        except AdvisorError as error:  # the study is worth more than its file
            self._note(str(error))
        else:
            if existed:
                self._note(f"the plan that was in {self.plan} before is replaced")
        return result
