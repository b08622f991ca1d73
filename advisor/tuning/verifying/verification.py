"""Verification of a plan: whether its gain is still there, and the results still the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import (
    Plan,
    Rehearsal,
    StudyResult,
    Trial,
)
from gpuadvisor.domain.verification import Outcome, Verification
from gpuadvisor.errors import Interrupted, ScriptError
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.proof import Known, Proof, fair_runs, known_runs, prove
from gpuadvisor.tuners.rehearsal.comparison import as_trials_showed, missing
from gpuadvisor.tuners.statistics import LOOKS, spread_of
from gpuadvisor.tuners.turn_order import orders
from gpuadvisor.tuning.measuring import Measuring
from gpuadvisor.tuning.outcome.recorder import recorded
from gpuadvisor.tuning.outcome.results import proven
from gpuadvisor.tuning.plans.application import plan_warnings
from gpuadvisor.tuning.preparation import reserved
from gpuadvisor.tuning.trials.baselines import (
    baseline_warnings,
    baselines_of,
    measure_baselines,
    measure_first,
    needs_other_seed,
)
from gpuadvisor.tuning.trials.first_run import Begun, ready
from gpuadvisor.tuning.trials.forking import computed
from gpuadvisor.tuning.trials.in_turns import TOOK_TURNS
from gpuadvisor.tuning.trials.trial_runner import Progress
from gpuadvisor.tuning.verifying.judgement import (
    BROKEN,
    failed_equivalence,
    is_shown,
    judge,
    least_ratio,
    needed,
    of_gain,
    to_tell,
    verdict_of,
)
from gpuadvisor.tuning.verifying.options import (
    FIRST_LOOK,
    VerifyOptions,
    as_study,
    plan_for,
)

LOSSES_ONLY = "results were compared by the losses or outputs of the measured steps only"


def verify(
    options: VerifyOptions,
    progress: Progress,
    cancelled: Callable[[], bool] = lambda: False,
    begun: Begun | None = None,
) -> Verification:
    """Measure a script with and without a plan, and say whether the plan still holds.

    Shortened lives of both are compared first, then their costs. What was measured is stored as a
    study. `begun` is what of it has begun already.

    Raises UsageError for what cannot be done, RefusedError where another gpuadvisor measures on
    the device, ScriptError when the unchanged script cannot be measured, Interrupted when it was
    stopped before that.
    """
    knobs = load_knobs()
    plan = plan_for(options, knobs)
    asked = as_study(options, plan)
    here = ready(begun, asked, progress)
    python, devices = here.python, here.devices
    asked = replace(asked, command=replace(asked.command, python=python.executable))
    path = str(options.plan.absolute())
    with reserved(devices, recorded(asked, python, devices[0], path), here.ours) as kept:
        return _Verifying(
            asked,
            devices,
            knobs,
            kept.recorder,
            progress,
            cancelled,
            plan,
            path,
            kept.environment,
            options.rehearse,
            first=here.first,
        ).run()


@dataclass
class _Verifying(Measuring):
    """A verification in progress."""

    measures_as = FIRST_LOOK

    plan: Plan
    path: str
    """Absolute path of the plan."""
    environment: Environment
    anew: bool
    """Whether to rehearse in any case."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._earlier: Rehearsal | None = None
        """An earlier study's rehearsal that still holds."""
        self._rehearsal: Rehearsal | None = None
        self._known: Known | None = None
        """Runs of the study that rehearsed the plan before; None where the unchanged script does
        not compute any more what it did there."""
        self._made: Trial | None = None
        """The unchanged script's run that the proof begins with, if it is made already."""
        self._fork: Callable[[], None] = lambda: None
        """Has runs of the proof forked, where an earlier study says what fresh ones do."""
        device, side = self.devices[0], self._evaluator.side
        self._sides = side({}, device), side(self.plan.settings, device)
        """The unchanged script and the plan."""
        proof = self._evaluator.proof
        proof.distance = to_tell(self.plan.speedup) or proof.distance

    def run(self) -> Verification:
        command = self.options.command
        for sentence in plan_warnings(self.plan, command, self.environment):
            self._note(sentence)
        if self.plan.args != command.args:
            self._note("the plan was proven with other arguments of the script than these")
        if not self.anew:
            self._earlier, sentence = self.recorder.earlier_rehearsal(self.plan, self.path)
            self._note(sentence)
        stored = self._storing(Path(self.path))
        with self._forker:
            try:
                baseline = self._measure_baseline()
                self._rehearsal = rehearsal = self._rehearse()
                proof = self._prove() if rehearsal is None or rehearsal.agrees else Proof()
                self._raise_if_unmeasured(proof)
                result = proven(self._result(baseline), self.plan.settings, (), proof)
                found = self._judged(result, proof, rehearsal)
            except Interrupted as interruption:
                found = self._interrupted(str(interruption))
        return replace(found, result=stored(found.result))

    def _measure_baseline(self) -> Measurement:
        """Measure the unchanged script, once where an earlier study says how far runs differ."""
        self._enter_baseline()
        first, began = None, self.first.began if self.first is not None else None
        if self._earlier is not None:
            first = measure_first(self._evaluator, self.options)
            if self._is_as_before(first, self._earlier):
                return self._baseline
            self._earlier = None
        forks = self._forker.proofs_fork
        baselines = measure_baselines(
            self._evaluator,
            self.options,
            first,
            began=began,
            beside_second=lambda: self._forker.begin_ahead(*self._sides) if forks else None,
        )
        if self._forker.has_begun:
            self._note(self._forker.begin(self._sides[0], baselines, 2 * (LOOKS[0] - 1)))
        for sentence in baseline_warnings(baselines, self.devices):
            self._note(sentence)
        return baselines.runs[0]

    def _is_as_before(self, first: RunOutcome, earlier: Rehearsal) -> bool:
        """Say whether the unchanged script still computes what it did in an earlier study.

        If so, its runs there calibrate the comparison of results, and the proof knows them.
        """
        study = earlier.premises.study if earlier.premises is not None else ""
        trials = self.recorder.trials_of(study)
        runs, other = baselines_of(trials)
        if len(runs) < 2 or first.measurement is None:
            self._note(f"study {study} did not run the unchanged script twice: rehearsed anew")
            return False
        if changed := computed(runs, first.measurement):
            self._note(
                f"the unchanged script computes something else than in study {study}, though its "
                f"files are the same ({changed}): its data may have changed, and it is rehearsed "
                "anew"
            )
            return False
        traces = [run.trace for run in (first.measurement, *runs)]
        seeded, is_known = other.trace if other else None, other is not None
        is_known |= not needs_other_seed(runs[0])
        self._evaluator.validator.comparison.calibrate(traces, seeded, is_known)
        fair, always = fair_runs([t for t in trials if t.phase in ("baseline", "proof")])
        self._known = Known(
            [trial for trial in fair if not trial.settings],
            [trial for trial in fair if trial.settings == self.plan.settings],
            always,
            at_another_time=True,
        )
        others = [
            [trial.measurement for trial in side if trial.measurement]
            for side in (self._known.base, self._known.head)
        ]
        costs = (filter(None, map(self.options.objective.cost, side)) for side in others)
        self._evaluator.proof.expect_spread(spread_of(*costs))
        ended = {}
        # In turns, runs are compared with each other only.
        if not self._evaluator.proof.turns(self.plan.settings):
            self._made = self._evaluator.begin_proof_with_last()
            ended[self._made.number] = first
        if self._forker.proofs_fork:
            fork = self._forker.begin_in_proof
            self._fork = partial(fork, *self._sides, runs[0], others, ended)
        return True

    def _rehearse(self) -> Rehearsal | None:
        """Return what shortened lives of both sides show, those of an earlier study if they can.

        None where there is no time for new ones.
        """
        if self._earlier is not None:
            return self._earlier
        settings = self.plan.settings
        allowed_s = self._budget.rehearsal_s(settings)
        if not allowed_s:
            return None
        self._enter("rehearsal", "a shortened life, to the script's end; nothing it writes remains")
        self._rehearser.allowed_s = allowed_s
        return self._rehearser.rehearse(settings)

    def _prove(self) -> Proof:
        """Compare the plan with the unchanged script until it is decided whether it holds."""
        evaluator, settings, promised = self._evaluator, self.plan.settings, self.plan.speedup
        self._fork()
        forks = self._forker.has_begun or evaluator.proof.forks([{}, settings])
        forked = ", after the first pair forked" * forks
        self._enter("proof", f"fresh processes{forked}, the plan and the unchanged script in turn")

        def run(side: Settings) -> Trial:
            if not side and self._made is not None:
                made, self._made = self._made, None
                return made
            return evaluator.measure([side], "proof", turned=({}, settings))[0]

        def counts(pair: Sequence[Trial]) -> bool:
            alike = self._forker.counts(pair)
            self._note("" if alike else self._forker.refusal)
            return alike

        seed = f"{self.options.seed} {sorted(settings.items())}"
        if self._made is not None:  # the first run is the unchanged script's, and is made
            seed = next(each for n in count() if next(orders(each := f"{seed} {n}")))
        proof = prove(
            run,
            {},
            settings,
            self.options.objective,
            evaluator.affordable,
            seed,
            self._known or known_runs(evaluator, settings),
            settled=lambda found: of_gain(promised, found)[0] is not Outcome.INCONCLUSIVE,
            both=lambda pair: evaluator.measure_both(pair, settings),
            counts=counts,
        )
        if proof.ratios:
            self._note(TOOK_TURNS)
        proof.needed = needed(promised, proof, self.options.objective)
        idle = sorted(evaluator.validator.untried(settings))
        if idle and proof.failed is None:
            self._note(f"found nothing to change any more: {', '.join(idle)}")
        return proof

    def _raise_if_unmeasured(self, proof: Proof) -> None:
        """Raise ScriptError where the unchanged script failed: that says nothing of the plan."""
        failed = proof.failed
        if failed is None or failed.settings:
            return
        why = f"the unchanged script failed beside the plan: {failed.state}: {failed.reason}"
        self.recorder.finish(replace(self._result(self._baseline), interrupted=why))
        raise ScriptError(f"{why}; it has to run by itself before a plan can be verified")

    def _judged(
        self, result: StudyResult, proof: Proof, rehearsal: Rehearsal | None
    ) -> Verification:
        if rehearsal is not None:
            rehearsal = as_trials_showed(rehearsal, proof.head)
            equivalence = rehearsal.equivalence or result.equivalence
            result = replace(result, rehearsal=rehearsal, equivalence=equivalence)
        outcome, reason = judge(self.plan, proof, result.equivalence, rehearsal)
        lacks = missing(rehearsal)
        if lacks is not None and outcome not in BROKEN:
            only = rehearsal is None or rehearsal.equivalence is None
            compared = [LOSSES_ONLY] if only and is_shown(result.equivalence) else []
            self._note("; ".join([*compared, lacks]))
        result = replace(
            result,
            verdict=verdict_of(outcome, proof.speedup, lacks),
            equivalence=failed_equivalence(proof) or result.equivalence,
            plan=self.path if outcome is Outcome.HOLDS else None,
            wall_s=self._wall_s,
        )
        return self._found(outcome, reason, result)

    def _found(self, outcome: Outcome, reason: str, result: StudyResult) -> Verification:
        promised = self.plan.speedup
        premises = self._earlier.premises if self._earlier is not None else None
        rehearsed_by = premises.study if premises is not None else None
        notes = (f"this study verified {self.path}: {reason}", *self._notes)
        return Verification(
            outcome,
            reason,
            self.path,
            promised,
            None if promised is None else least_ratio(promised),
            replace(result, notes=notes),
            rehearsed_by if result.rehearsal is not None else None,
        )

    def _interrupted(self, why: str) -> Verification:
        self._check_measured(why)
        result = replace(self._result(self._baseline), interrupted=why, rehearsal=self._rehearsal)
        return self._found(Outcome.INCONCLUSIVE, f"{why} before it was decided", result)

    def _result(self, baseline: Measurement) -> StudyResult:
        """Return the result of a verification that has shown nothing yet."""
        return replace(
            self.recorder.undecided(baseline, self._evaluator.trials),
            settings=self.plan.settings,
            forking=self._forker.result(self._evaluator.trials),
            wall_s=self._wall_s,
        )
