"""A tuning study: baseline, findings, search, ablation, proof, plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.domain.knobs import Contribution, Origin, Settings, shown_settings
from gpuadvisor.domain.loader_supply import LoaderSupply
from gpuadvisor.domain.study import StudyResult
from gpuadvisor.errors import Interrupted
from gpuadvisor.storage.database import Store
from gpuadvisor.tuners.knob_space import (
    HOST_DECIDES,
    LOADER_DECIDES,
    KnobSpace,
    Selection,
    select_knobs,
)
from gpuadvisor.tuners.loader.limit import computing_last
from gpuadvisor.tuners.proof import is_faster, is_no_gain
from gpuadvisor.tuners.search import Best
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning.arguments import ArgumentKnob
from gpuadvisor.tuning.budgeting.reserve import Reserve
from gpuadvisor.tuning.expectations import Expectations, ProfileBaseline, with_measured
from gpuadvisor.tuning.knob_search import KnobSearch
from gpuadvisor.tuning.live.screening import Screener
from gpuadvisor.tuning.live.search_start import Screening
from gpuadvisor.tuning.live.supply_timer import SupplyTimer
from gpuadvisor.tuning.live.value_finding import InOneScript, ValueFinder
from gpuadvisor.tuning.measuring import Measuring
from gpuadvisor.tuning.options import TuneOptions, knobs_for
from gpuadvisor.tuning.outcome.hindsight import in_hindsight
from gpuadvisor.tuning.outcome.recorder import recorded
from gpuadvisor.tuning.outcome.results import deserves_plan, planned
from gpuadvisor.tuning.outcome.verdicts import (
    beside_others,
    budgets_for,
    candidate,
    is_worth_a_proof,
    showable,
    time_needed,
    untried_knobs,
    verdict_of,
)
from gpuadvisor.tuning.preparation import (
    check_scratch,
    check_script,
    plan_path,
    reserved,
)
from gpuadvisor.tuning.proving import Prover
from gpuadvisor.tuning.trials.baselines import baseline_warnings, measure_baselines
from gpuadvisor.tuning.trials.cold_start import cold_start, compiles
from gpuadvisor.tuning.trials.first_run import Begun, ready
from gpuadvisor.tuning.trials.trial_runner import Progress

InOneScriptT = TypeVar("InOneScriptT", bound=InOneScript)

MOST_IMPROVEMENTS = 2
"""Proofs on top of a proven gain: each takes minutes. [own]"""
AGAIN_RUNS = 4
"""Runs that screening on top of what is proven lasts at least, and a trial of what it finds."""
CLEAR = 2.0
"""Ratio that a number of workers has to promise at least to be proven before all else: its proof
takes minutes, which smaller gains share with what is found besides. [own]"""


def tune(
    options: TuneOptions,
    progress: Progress,
    cancelled: Callable[[], bool] = lambda: False,
    profile_baseline: ProfileBaseline | None = None,
    begun: Begun | None = None,
) -> StudyResult:
    """Run a study and return its result; it is stored, and so is every trial as it ends.

    `profile_baseline` diagnoses the unchanged script on a GPU; without it, as on a CPU, the search
    is led by what the harness saw alone. `begun` is what of the study has begun already.

    Raises UsageError for what cannot be done, RefusedError where another gpuadvisor measures on
    the device, ScriptError when the unchanged script cannot be measured, Interrupted when it was
    stopped before that. Stopping it later is not an error: the result says so and holds what is
    known.
    """
    check_script(options.command)
    check_scratch(options.scratch)
    plan = plan_path(options.command, options.plan)
    knobs = knobs_for(options)
    here = ready(begun, options, progress)
    python, devices = here.python, here.devices
    options = replace(options, command=replace(options.command, python=python.executable))
    with reserved(devices, recorded(options, python, devices[0]), here.ours) as kept:
        known = options, devices, knobs, kept.recorder, progress, cancelled
        return _Study(*known, plan, profile_baseline, first=here.first).run(kept.store)


@dataclass
class _Study(Measuring):
    """A study in progress."""

    plan: Path
    """Place where the plan is written if there is a gain."""
    profile_baseline: ProfileBaseline | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._enough_s: float | None = None
        """Budget that would have room for what was left out."""
        self._no_room = "the budget had no room for it"
        self._unproven: dict[str, str] = {}
        """Knobs that looked better where no time was left for a proof, or for which there was none
        to ask the running script."""
        self._chosen = KnobSpace(Space(), {})
        self._supply: LoaderSupply | None = None
        self._is_untimed_told = False
        self._search: KnobSearch | None = None
        self._first_proven: StudyResult | None = None
        """What the loader's workers were proven to bring by themselves, before all else."""
        self._proven: StudyResult | None = None
        """What is proven so far; it is kept, whatever happens to what is tried on top of it."""
        self._prover = Prover(
            self.options,
            self._evaluator,
            self._budget,
            self.progress,
            lambda: self._rehearser,
            self._enter,
            self._note,
            self._result,
            lambda settings, name: self._chosen.space.without(settings, name),
            untried=lambda: self._untried if self._search else None,
        )

    # -- the phases ----------------------------------------------------------------------------

    def run(self, store: Store) -> StudyResult:
        if self.options.resume:
            self._resume()
        stored = self._storing(self.plan)
        with self._forker, run_folder() as folder:
            try:
                self._measure_baselines(folder)
                self._choose()
                result = self._prove_workers()
                self._search = search = self._prepared_search(store, result)
                result = result or self._look_early(search)
                if result is None and (start := search.sure_start()):
                    result = self._prove_first(start, search.known_live(self._baseline))
                if result is None or not is_faster(result.speedup):
                    search.leave_aside(self._dropped)
                    found = self._prover.better(self._decide(search))
                    result = found if result is None or _says_more(found, result) else result
                if is_faster(result.speedup):
                    result = self._improve(search, result)
                    self._start_cold(result)
                    self._look_further(search, result)
                self._note_left_out(search.wanting())
                if sentence := search.left_for_last(result.settings):
                    self.progress.on_message(sentence)
            except Interrupted as interruption:
                result = self._interrupted(str(interruption))
        return stored(self._concluded(result))

    def _resume(self) -> None:
        self._evaluator.remember(self.recorder.known)
        known = sum(trial.phase == "search" for trial in self.recorder.known)
        study = self.recorder.study
        self.progress.on_message(f"Study {study} goes on: {known} trials are known already.")

    def _measure_baselines(self, folder: Path) -> None:
        self._enter_baseline()
        device, side = self.devices[0], self._evaluator.side({}, self.devices[0])
        self._expected = Expectations(
            self.options.command,
            device,
            self._evaluator.share_of_cores(device),
            self.profile_baseline,
            self._budget,
            self._enter,
            self._note,
            folder,
        )
        baselines = measure_baselines(
            self._evaluator,
            self.options,
            recording=self._expected.recording,
            began=self.first.began if self.first is not None else None,
            beside_second=lambda: self._forker.begin_ahead(side),
        )
        self._is_limited = any(run.limit for run in (baselines.first, baselines.again))
        self._note(self._forker.begin(side, baselines, self._budget.expected_runs(device.is_gpu)))
        self._budget.durations.proofs_fork = self._evaluator.proof.forks([{}])
        if advice := self._budget.advice():  # the report says what was left out in the end
            self.progress.on_message(advice)
        for sentence in baseline_warnings(baselines, self.devices):
            self._note(sentence)
        self._expected.diagnose(self._baseline)

    def _choose(self) -> None:
        """Choose the knobs, those that the findings point to first, and time the loader alone."""
        baseline, expected = self._baseline, self._expected
        first = [name for each in expected.found for name in each.knobs]
        options, device = self.options, self.devices[0]
        # Arguments that the user named are wanted, whatever else --only says.
        asked = [n for n, knob in self.knobs.items() if isinstance(knob, ArgumentKnob)]
        only = options.only.union(asked) if options.only else options.only
        disturbed = any(trial.disturbance for trial in self._evaluator.trials)
        if (
            (disturbed or self._is_limited)
            and baseline.facts.device == "cpu"
            and baseline.starved_share < LOADER_DECIDES
        ):
            # Threads that share an operation wait for whichever of them has no core, or no time.
            first = [*asked, "cpu_threads", *first]
        selection = Selection(options.level, options.objective, only, options.without)
        share = expected.gpu_share
        self._chosen = select_knobs(self.knobs, selection, device, baseline.facts, first, share)
        self._time_loader()
        space = computing_last(self._chosen.space, self._supply, self.knobs)
        self._chosen = replace(self._chosen, space=space)
        unchanged = (t.measurement for t in self._evaluator.trials if t.phase == "baseline")
        expected.narrow(self._supply, baseline, tuple(filter(None, unchanged)))
        expected.tell()
        if share is not None and share < HOST_DECIDES:
            self.progress.on_message(
                f"the GPU works for {share:.0%} of a step's own time: what only saves it time comes"
                " last"
            )

    def _one_script(self, kind: type[InOneScriptT]) -> InOneScriptT:
        """Return what asks one running script something."""
        cores = self._evaluator.share_of_cores(self.devices[0])
        return kind(
            self.options,
            self.devices[0],
            self.knobs,
            self._baseline,
            cores,
            self.cancelled,
            self.progress,
            self._evaluator.runner.template,
        )

    def _prove_workers(self) -> StudyResult | None:
        """Prove what the loader alone promises before all else, where that is much.

        A script that waits for its loader most of the time is not made faster by anything else, and
        what the proof needs is known then. None where it is not proven first.
        """
        baseline, promised = self._baseline, self._expected.promised_ms
        waits = baseline.starved_share >= LOADER_DECIDES
        much = promised is not None and baseline.mean_step_ms >= CLEAR * promised[1]
        if self._supply is None or not (waits and much):
            return None
        result = self._prove_first(self._supply.settings)
        self._first_proven = self._proven
        return result

    def _prove_first(
        self, settings: Settings, known: Sequence[Contribution] = ()
    ) -> StudyResult | None:
        """Prove what nothing that is left can outdo, of which is `known` what some of it brings;
        None where there is no time for that."""
        if self.options.resume or not self._budget.has_room_for_proof(settings):
            return None
        self._prover.leaves_it = self._budget.has_room_for_more
        contributions = tuple(each for each in known if each.knob in settings)
        result = self._prover.prove(settings, contributions)
        self._prover.leaves_it = lambda settings: False
        if is_faster(result.speedup):
            self._proven = result
        return result

    def _prepared_search(self, store: Store, proven: StudyResult | None) -> KnobSearch:
        """Find values that only the running script shows, and screen what can be turned in it."""
        finder = self._one_script(ValueFinder)
        chosen = finder.found(
            self._chosen, self._evaluator.trials, self._budget, self._enter, self._note
        )
        self._chosen = chosen
        self._unproven = {name: chosen.unavailable[name] for name in chosen.enough_s}
        self._enough_s = max(chosen.enough_s.values(), default=None)
        return KnobSearch(
            chosen,
            self._screened(proven),
            self._baseline,
            self._evaluator,
            self._budget,
            store,
            self.recorder,
            self.progress,
            self._enter,
            lambda before: self._screened(None, before),
            self._time_loader,
        )

    def _time_loader(
        self, waits: float | None = None, computing_ms: float = 0.0
    ) -> LoaderSupply | None:
        """Time the loader alone: for the script as it is, or for one that came to wait for it in
        this share of its time."""
        timer = self._one_script(SupplyTimer)
        timer.has_told = self._is_untimed_told
        beside = None if waits is None else (waits, computing_ms)
        self._supply = timer.supply(self._chosen.space, self._budget, self._enter, beside)
        self._is_untimed_told = timer.has_told
        return self._supply

    def _screened(
        self,
        proven: StudyResult | None,
        before: Screening | None = None,
        is_last: bool = True,
    ) -> Screening:
        """Screen what can be turned in a running script, or what was put off `before`; the rest may
        be put off again unless this one `is_last`."""
        best = proven.best if proven is not None and is_faster(proven.speedup) else None
        may_look = proven is None and not (before and is_last)
        screener = replace(
            self._one_script(Screener),
            early_s=lambda gain, found: self._prover.early_s(gain, found) if may_look else 0.0,
            before=before,
            time_loader=self._time_loader,
        )
        space = self._chosen.space
        return screener.screening(space, self._supply, self._budget, self._enter, self._note, best)

    def _look_early(self, search: KnobSearch) -> StudyResult | None:
        """Have the first look of a proof at what was screened before the rest, then screen that on
        top of it.

        Where there is no time to prove more, return what that look has shown, rehearsed.
        """
        for is_last in (False, True):
            screening = search.screening
            if not screening.result.put_off:
                return None
            has_look = self._prover.promises(screening.gain, screening.start)
            if has_look:
                known = search.known_live(self._baseline)
                result = self._prover.look(screening.start, screening.gain, tuple(known))
                self._proven = result if is_faster(result.speedup) else None
                if self._proven and not self._budget.has_room_for_more(result.settings, AGAIN_RUNS):
                    return self._prover.prove(result.settings, result.contributions)
            search.screening = self._screened(None, screening, is_last or has_look)
            if search.screening is screening:  # what was put off could not be screened
                break
        return None

    def _decide(self, search: KnobSearch) -> StudyResult:
        """Search, prove and rehearse until something is faster or nothing is left to try.

        What does harm or brings nothing is left aside, and the search goes on with the rest.
        """
        result: StudyResult | None = None
        best_proven: Settings = {}
        for reserve in Reserve:
            is_last, may_show = reserve is Reserve.NOTHING, self._budget.may_show
            unproven = is_last and result is None
            if unproven and is_worth_a_proof(
                self._evaluator.trials, self._dropped, self._untried, may_show
            ):
                best_proven = self._candidate()
                result = self._prover.prove(best_proven)
                search.leave_aside(self._dropped)
                if is_faster(result.speedup):
                    return result
            self._budget.reserve = reserve
            while search.find():
                best, is_open = search.best, not is_last and self._untried
                if is_open and not may_show(best.settings, best.gain):
                    break  # what was not tried is worth more of the time than its proof
                settings, contributions = self._ablate(search)
                found = self._prover.prove(settings, contributions)
                rest = self._prover.rehearsed.settings
                if rest:
                    if result is None or _says_more(found, result):
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
        self._budget.has_plan, self._budget.reserve = True, Reserve.USUAL
        for _ in range(MOST_IMPROVEMENTS):
            self._proven = proven
            if not self._found_on_top(search, proven):
                break
            settings, contributions = self._ablate(search)
            if settings == proven.settings:  # what looked better on top of it was taken out again
                break
            proven = self._prover.improve(proven, settings, contributions)
            search.leave_aside(name for name in settings if name not in proven.settings)
        return proven

    def _found_on_top(self, search: KnobSearch, proven: StudyResult) -> Settings:
        best = self._prover.typical(proven.settings)
        return search.find(Best(best.settings, best.gain or 1.0, best)) if best else {}

    def _look_further(self, search: KnobSearch, proven: StudyResult) -> None:
        """Try what is left in the time that is left, which has no room for a proof: nothing is
        claimed of it, but it shows whether more time is worth it.
        """
        if self._budget.left_s is None:
            return
        self._budget.reserve = Reserve.NOTHING
        found = self._found_on_top(search, proven)
        new = {name: value for name, value in found.items() if proven.settings.get(name) != value}
        if new:
            why = f"`--budget {self._budget.enough_for([found])}` would have room for a proof of it"
            self._unproven |= dict.fromkeys(new, f"it looked better in single runs, no more: {why}")
            self.progress.on_message(
                f"beside what is proven, {shown_settings(new)} looked better in single runs, "
                f"which is no proof: {why.replace('`', '')}"
            )

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
            enough_s, words = budgets_for(wanting, self._budget, self.knobs)
            self._enough_s = max(filter(None, [enough_s, self._enough_s]), default=None)
            self._no_room += f": {words} would have"
            names = ", ".join(shown_settings(dict([list(each.items())[-1]])) for each in wanting)
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
        """Return what looked best, better than noise or not, of what there is time to prove."""
        self._budget.phase, affordable = "proof", self._budget.affordable
        able = showable(
            self._evaluator.trials, lambda settings, _: affordable([{}, settings] * LOOKS[0])
        )
        return candidate(able, self._dropped)

    # -- ending --------------------------------------------------------------------------------

    @property
    def _dropped(self) -> list[str]:
        """Knobs that rehearsals found a problem with."""
        return [each.knob for each in self._prover.rehearsed.dropped]

    @property
    def _untried(self) -> list[str]:
        """Knobs of which no value was tried so far."""
        return untried_knobs(self._search.untried(self._no_room, "")) if self._search else []

    def _interrupted(self, why: str) -> StudyResult:
        self._check_measured(why)
        if self._proven is not None and not self._proven.settings.keys() & set(self._dropped):
            return replace(self._proven, interrupted=why)
        if (shown := self._prover.so_far()) is not None:
            return replace(shown, interrupted=why)
        if best := self._search.best.settings if self._search else {}:
            self._note(f"best so far, not proven: {shown_settings(best)}")
        elif best := self._prover.under_way:
            self._note(f"its proof had begun, and shown nothing yet: {shown_settings(best)}")
        return replace(self._result(), settings=best, interrupted=why)

    def _result(self) -> StudyResult:
        """Return a study's result without a gain; the proof adds what it knows."""
        return replace(
            self.recorder.undecided(self._baseline, self._evaluator.trials),
            dropped=self._prover.rehearsed.dropped,
            expectations=self._expected.found,
        )

    def _concluded(self, result: StudyResult) -> StudyResult:
        """Return the result with its verdict, and with what stands beside the proof."""
        useless = self._search.without_effect() if self._search else {}
        untried: dict[str, str] = {}
        if self._search is not None:
            untried = self._search.untried(self._no_room, result.interrupted, result.settings)
        result = replace(
            result,
            trials=tuple(self._evaluator.trials),
            forking=self._forker.result(self._evaluator.trials),
            dropped=self._prover.rehearsed.dropped,
            no_effect={n: why for n, why in useless.items() if n not in untried | self._unproven},
            untried={**untried, **self._unproven},
            screened=self._search.screening.result.values if self._search else (),
            computing_ms=self._search.screening.computing_ms if self._search else None,
            supply=self._search.screening.supply if self._search else self._supply,
            wall_s=self._wall_s,
        )
        result = replace(
            result,
            screened=in_hindsight(result),
            verdict=verdict_of(result),
            expectations=with_measured(self._expected.found, result, self._first_proven),
        )
        self._note(beside_others(result))
        needed_s = time_needed(result, self._chosen.space, self._budget, self._enough_s)
        result = replace(result, needed_s=needed_s)
        if deserves_plan(result, self.options.plan):
            result = planned(result, self.plan, self._note)
        return replace(result, notes=tuple(self._notes))


def _says_more(found: StudyResult, earlier: StudyResult) -> bool:
    """Say whether a proof was made of what is found since, rather than that it had no room."""
    is_other = found.settings != earlier.settings
    return found.speedup is not None or (found.was_in_proof and is_other and bool(found.settings))
