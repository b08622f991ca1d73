"""Whole studies on a script that is only simulated: what is concluded, stored and said."""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.finding import RUN, Category, Diagnosis, Finding, Span
from gpuadvisor.domain.knobs import AppliedKnob, Level, ScriptFacts
from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.rehearsal import Call, Life
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.study import Objective, TrialState, Verdict
from gpuadvisor.domain.verification import Outcome
from gpuadvisor.errors import Interrupted, ScriptError, UsageError
from gpuadvisor.reports.study import wording
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning import rehearsal, study
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.outcome.results import deserves_plan
from gpuadvisor.tuning.plans.file import read_plan
from gpuadvisor.tuning.trials import evaluator, first_run, trial_runner
from gpuadvisor.tuning.trials.trial_runner import Silent
from gpuadvisor.tuning.verifying import verification
from tests.simulation import measurement

FACTS = ScriptFacts(device="cuda", roots=("Net",), has_convolution=True, optimizers=("SGD",))
GAINS = {"tf32": 1.5, "channels_last": 1.2, "cudnn_benchmark": 1.0}
ONLY = frozenset(GAINS)


def gpu(index):
    return Device("cuda", index, "H100", f"GPU-{os.getpid()}-{index}", 80 << 30, (9, 0), cores=16)


class Script:
    """Stands for the script: answers each run from a model."""

    def __init__(self):
        self.gains = GAINS
        self.requests = []
        self.speed = {}
        self.fail = lambda names, run: None
        self.lasts_s = 0.0
        self.harmful = set()
        """Knobs under which the rehearsal has other results."""
        self.parting = set()
        """Knobs under which losses of trials part in the course of training."""
        self.lives = []
        self._count = itertools.count()
        self.together = None
        """A barrier for the first unchanged runs on all GPUs but the first."""
        self._met = {}
        self._busy = {}
        self._lock = threading.Lock()
        self.beside = []
        """For each run its knobs, and how many others ran when it began."""

    def run(self, request, read_energy_j, load):
        with self._lock:
            run = next(self._count)
            self.requests.append(request)
            assert not self._busy.get(request.device.index), "two runs on one GPU"
            self._busy[request.device.index] = True
            names = [each.knob for each in request.specification.applications]
            self.beside.append((names, sum(self._busy.values()) - 1))
            meets = self.together if not names and request.device.index else None
            if meets is not None and self._met.setdefault(request.device.index, run) != run:
                meets = None  # only the first of each
        if meets is not None:
            meets.wait()
        time.sleep(self.lasts_s)
        cost = 100.0 * self.speed.get(request.device.index, 1.0)
        for name in names:
            cost /= self.gains.get(name, 1.0)
        measured = measurement(
            [cost * (1 + 0.001 * (run % 3))] * 8,
            facts=FACTS,
            trace=Trace(
                (1.0, 0.9, 0.5, 0.4) if set(names) & self.parting else (1.0, 0.9, 0.8, 0.7)
            ),
            applied=tuple(AppliedKnob(name, "effective") for name in names),
            peak_memory_bytes=(8 if "channels_last" in names else 10) << 30,
        )
        failed = self.fail(names, run)
        with self._lock:
            self._busy[request.device.index] = False
        if failed is not None:
            return RunOutcome(failed, "it failed", None, "output", 1.0, "train.py, line 3")
        return RunOutcome(TrialState.COMPLETE, "", measured, "", 1.0)

    def live(self, request, shortening):
        """Answer a rehearsal: a script that does the same under all knobs, unless they do harm."""
        names = [each.knob for each in request.specification.applications]
        self.lives.append(names)
        losses = (1.5 if set(names) & self.harmful else 1.0,) * 8
        calls = tuple(Call(n, 8, 8, True, ((1.0,),)) for n in range(40))
        applied = tuple(AppliedKnob(name, "effective") for name in names)
        return Life(
            TrialState.COMPLETE,
            wall_s=3.0,
            losses=losses,
            calls=calls,
            written={},
            applied=applied,
        )


@pytest.fixture
def script(tmp_path, monkeypatch, in_memory):
    made = Script()
    (tmp_path / "train.py").write_text("")
    os.utime(tmp_path / "train.py", (0, 0))  # as it began, a run could have written it else
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "store"))
    monkeypatch.setattr(trial_runner, "run_script", made.run)
    monkeypatch.setattr(rehearsal, "run_life", made.live)
    monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
    python = TargetPython("/usr/bin/python3", "3.12.3", torch="2.7.1")
    monkeypatch.setattr(first_run, "target_python", lambda command: python)
    monkeypatch.setattr(
        first_run, "devices_for", lambda python, jobs: [gpu(n) for n in range(jobs)]
    )
    return made


def options(**changes):
    known = {"budget": BudgetLimit(trials=30), "only": ONLY, "level": Level.BALANCED}
    return TuneOptions(Command("python", "train.py"), **{**known, **changes})


def tune(cancelled=lambda: False, progress=None, profile=None, **changes):
    return study.tune(options(**changes), progress or Silent(), cancelled, profile)


def test_what_pays_is_kept_proven_and_written(script, on_disk):
    study.Path("train.plan.toml").write_text("mine")
    progress = Recorder()
    result = tune(progress=progress)
    assert result.verdict == "faster"
    assert result.settings == {"tf32": True, "channels_last": True}
    assert result.speedup.ratio == pytest.approx(1.8, rel=0.01)
    assert {c.knob: round(c.ratio, 1) for c in result.contributions} == {
        "tf32": 1.5,
        "channels_last": 1.2,
    }
    written = read_plan(study.Path("train.plan.toml"))
    assert (written.settings, written.study) == (result.settings, "train-1")
    assert written.verdict is Verdict.FASTER
    with open_store() as store:
        assert store.load_study("train-1").speedup == result.speedup
    shown = result.baseline.mean_step_ms / result.best.mean_step_ms
    assert shown == pytest.approx(result.speedup.ratio, rel=0.003)
    assert "the plan that was in train.plan.toml before is replaced" in result.notes
    assert progress.stood_on[-1] == {"tf32": True, "channels_last": True}
    unchanged = ("unchanged script", 3.0, "")
    assert progress.lives[:2] == [unchanged, unchanged]
    assert progress.lives[2] == ("with tf32, channels_last", 3.0, "")
    assert {request.specification.cores for request in script.requests} == {()}  # one GPU has all


def test_what_runs_leave_is_named_and_what_the_study_writes_is_not(script, tmp_path):
    class Leaving(Silent):
        def on_trial_end(self, trial):
            (tmp_path / f"run-{trial.number % 2}.log").write_text("1")

    result = tune(progress=Leaving())
    assert result.left == ("run-0.log", "run-1.log")
    with open_store() as store:
        assert store.load_study("train-1").left == result.left


def test_a_well_tuned_script_ends_without_a_gain(script):
    script.gains = {}
    result = tune()
    assert result.verdict == "no_gain"
    assert result.speedup.ci99_high < 1.03  # of what looked best, though no better than noise
    assert len(result.settings) == 1
    assert result.untried == {}
    assert result.needed_s is None
    assert result.plan is None
    assert not study.Path("train.plan.toml").exists()
    with open_store() as store:
        assert store.load_study("train-1").verdict is result.verdict


def test_what_had_no_room_is_no_verdict_against_the_script(script):
    script.gains = {}
    result = tune(budget=BudgetLimit(trials=2))
    assert result.verdict == "inconclusive"
    assert result.untried == {
        "cudnn_benchmark": "the budget had no room for it: `--budget '3 trials'` would have"
    }
    assert result.needed_s > 1.0 + 2 * LOOKS[0]  # a run of it, and a proof; each takes 1 s or more
    assert "1 knob was not tried" in wording.reason(result)


def test_without_room_for_a_proof_nothing_is_shown(script):
    script.gains = {}
    script.lasts_s = 0.05
    result = tune(budget=BudgetLimit(seconds=5.0))  # a run says that it took 1 s
    assert (result.verdict, result.speedup) == ("inconclusive", None)
    assert "the best of them was not proven" in wording.reason(result)
    assert result.needed_s > 0


def test_what_cannot_be_tried_is_not_called_tried(script):
    script.fail = lambda names, run: TrialState.CRASHED if names else None
    result = tune()
    assert (result.verdict, result.settings) == ("not_tried", {})
    assert "none of 3 settings ran to its end" in wording.reason(result)
    one = replace(result, trials=tuple(each for each in result.trials if each.settings)[:1])
    assert wording.reason(one).startswith("the one setting that was tried did not run to its end")


def test_no_knob_that_applies(script):
    result = tune(only=frozenset({"sdpa_backend"}))
    assert (result.verdict, result.untried) == ("not_tried", {})
    assert wording.reason(result).startswith("`sdpa_backend` has nothing to set in this script: ")
    both = replace(result, no_effect={**result.no_effect, "bf16": "no module is called"})
    assert wording.reason(both).startswith("no knob has anything to set in this script")


def test_a_gain_is_unverified_without_a_plan_nobody_asked_for(script, tmp_path):
    result = replace(tune(), verdict=Verdict.FASTER_UNVERIFIED)
    assert not deserves_plan(result, None)
    assert deserves_plan(result, tmp_path / "mine.toml")
    assert not deserves_plan(replace(result, verdict=Verdict.INCONCLUSIVE), tmp_path / "mine.toml")


def test_a_gain_that_the_proof_does_not_find_is_not_claimed(script):
    phases = Recorder()
    phases.on_phase = lambda name, detail="": name == "proof" and script.gains.clear()
    script.gains = dict(script.gains)
    result = tune(progress=phases)
    assert result.verdict == "no_gain"
    assert result.speedup.ci99_low <= 1
    assert result.plan is None
    assert wording.reason(result).startswith("the best of")


def test_a_best_that_fails_in_the_proof_is_explained(script):
    phases = Recorder()
    script.fail = lambda names, run: TrialState.CRASHED if phases.now == "proof" and names else None
    result = tune(progress=phases)
    assert (result.verdict, result.speedup) == ("inconclusive", None)
    (note,) = [note for note in result.notes if "failed in the proof" in note]
    assert "tf32=True, channels_last=True: crashed: it failed (train.py, line 3)" in note
    assert wording.reason(result).endswith("failed in the proof")


class Recorder(Silent):
    """Remembers what a study told."""

    def __init__(self):
        self.now = ""
        self.stood_on = []
        self.lives = []

    def on_phase(self, name, detail=""):
        self.now = name

    def on_life_end(self, name, seconds, problem=""):
        self.lives.append((name, seconds, problem))

    def on_best(self, settings, gain):
        self.stood_on.append(dict(settings))


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        (Objective.LATENCY, {"tf32": True, "channels_last": True}),
        (Objective.MEMORY, {"channels_last": True}),
    ],
)
def test_other_objectives(script, objective, settings):
    assert tune(
        objective=objective, only=frozenset({"tf32", "channels_last"})
    ).settings.items() <= (settings.items())


def test_energy_that_the_gpu_does_not_tell(script):
    with pytest.raises(UsageError, match="choose another objective"):
        tune(objective=Objective.ENERGY)


class TestFailure:
    def test_a_script_that_fails_leaves_no_study(self, script):
        script.fail = lambda names, run: TrialState.CRASHED
        with pytest.raises(
            ScriptError, match=r"train.py cannot be measured: it failed at train.py"
        ):
            tune()
        with open_store() as store:
            assert store.study_names() == []

    @pytest.mark.parametrize(
        ("state", "advice"),
        [
            (TrialState.HUNG, "raise --timeout"),
            (TrialState.PRUNED, "has room for runs of twice that time"),
            (TrialState.UNSUPPORTED, "if it trains elsewhere"),
            (TrialState.OUT_OF_MEMORY, "make its batch smaller"),
            (TrialState.CRASHED, "its own arguments go after --"),
        ],
    )
    def test_the_advice(self, script, state, advice):
        script.fail = lambda names, run: state
        with pytest.raises(ScriptError, match=advice):
            tune()

    def test_a_name_that_is_taken(self, script):
        tune(study="mine")
        before = len(script.requests)
        with pytest.raises(UsageError, match="--study: there is a study mine already"):
            tune(study="mine")
        assert len(script.requests) == before


class TestInterruption:
    def after(self, script, runs):
        return lambda: len(script.requests) > runs

    def test_before_anything_was_measured(self, script):
        with pytest.raises(Interrupted, match="before the unchanged script was measured"):
            tune(self.after(script, 0))

    @pytest.mark.parametrize(
        "runs", [2, 8, *(pytest.param(runs, marks=pytest.mark.slow) for runs in (3, 5, 12))]
    )
    def test_at_any_time_there_is_a_result_and_a_way_on(self, script, runs, on_disk):
        result = tune(self.after(script, runs))
        assert result.verdict == ("not_tried" if runs < 3 else "inconclusive")
        assert result.interrupted == "interrupted"
        assert len(result.trials) == runs
        resumed = tune(resume=True)
        assert resumed.study == result.study
        numbers = [trial.number for trial in resumed.trials]
        assert numbers == sorted(set(numbers))
        assert resumed.verdict == "faster"
        assert resumed.started == result.started
        with open_store() as store:
            assert len(store.trials(result.study)) == len(resumed.trials)

    def test_what_was_tried_is_not_run_again(self, script):
        interrupted = tune(self.after(script, 5))
        known = [t.settings for t in interrupted.trials if t.phase == "search"]
        again = tune(resume=True).trials[len(interrupted.trials) :]
        assert known
        assert not [t for t in again if t.phase == "search" and t.settings in known]

    def test_the_trials_of_both_sessions_count(self, script):
        script.gains = {}
        tune(self.after(script, 3), budget=BudgetLimit(trials=2))
        resumed = tune(resume=True, budget=BudgetLimit(trials=2))
        assert sum(trial.phase == "search" for trial in resumed.trials) == 2

    def test_another_folder_has_another_script(self, script, tmp_path, monkeypatch):
        tune(self.after(script, 3))
        (tmp_path / "else").mkdir()
        (tmp_path / "else" / "train.py").write_text("")
        monkeypatch.chdir(tmp_path / "else")
        with pytest.raises(UsageError, match="no unfinished study of this script in this folder"):
            tune(resume=True)

    @pytest.mark.parametrize(
        "change", [{"level": Level.AGGRESSIVE}, {"objective": Objective.MEMORY}]
    )
    def test_other_options_are_another_study(self, script, change):
        tune(self.after(script, 3), study="mine")
        with pytest.raises(UsageError, match="no unfinished study"):
            tune(resume=True, **change)
        with pytest.raises(UsageError, match=r"study mine is of `train.py` in .*: give the same"):
            tune(resume=True, study="mine", **change)

    def test_another_gpu_is_another_study(self, script, monkeypatch):
        tune(self.after(script, 3))
        other = replace(gpu(0), name="A100")
        monkeypatch.setattr(first_run, "devices_for", lambda python, jobs: [other])
        with pytest.raises(UsageError, match="was measured on H100, and this is A100"):
            tune(resume=True)


def test_a_disturbed_trial_of_the_search_is_run_once_more(script):
    plain, disturbed = script.run, []

    def run(request, read_energy_j, load):
        outcome = plain(request, read_energy_j, load)
        knobs = [each.knob for each in request.specification.applications]
        if knobs == ["tf32"] and not disturbed:
            disturbed.append(request)
            return replace(outcome, disturbance="others used 2.0 of 2 CPU cores")
        return outcome

    trial_runner.run_script = run  # the fixture puts it back
    result = tune(budget=BudgetLimit(seconds=600), only=frozenset({"tf32"}))
    searched = [trial for trial in result.trials if trial.phase == "search"]
    assert [bool(trial.disturbance) for trial in searched] == [True, False]
    assert result.verdict.startswith("faster")


class TestSeveralGpus:
    def test_each_trial_is_compared_on_its_own_gpu(self, script):
        script.speed = {0: 1.0, 1: 1.5, 2: 0.7, 3: 1.2}
        script.lasts_s = 0.005
        result = tune(jobs=4)
        assert result.settings == {"tf32": True, "channels_last": True}
        for trial in result.trials:
            expected = 1.0
            for name in trial.settings:
                expected *= GAINS[name]
            if trial.gain is not None:
                assert trial.gain == pytest.approx(expected, rel=0.01)
        numbers = sorted(trial.number for trial in result.trials)
        assert numbers == list(range(len(numbers)))

    def test_what_is_hopeless_is_drawn_from_the_same_gpus_reference(self, script):
        script.speed = {1: 3.0}
        script.lasts_s = 0.005
        tune(jobs=2)
        limits = {
            index: {r.slower_than_ms for r in script.requests if r.device.index == index} - {None}
            for index in (0, 1)
        }
        assert min(limits[1]) > max(limits[0])

    def test_references_are_measured_side_by_side_as_trials_are(self, script):
        script.together = threading.Barrier(2, timeout=60)  # GPU 0 has its own
        tune(jobs=3)
        assert not script.together.broken and set(script._met) == {1, 2}

    def test_the_cores_are_split(self, script, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(9)))
        tune(jobs=4)
        cores = {r.device.index: r.specification.cores for r in script.requests}
        assert cores[0] == (0, 1)
        assert len(set().union(*cores.values())) == sum(map(len, cores.values()))

    def test_the_profile_keeps_to_the_cores_of_the_runs(self, script, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(9)))
        kept_to = []

        def profile(command, measured, device, cores, trace):
            kept_to.append((device.index, cores))
            return Diagnosis(())

        tune(jobs=4, profile=profile)
        assert kept_to == [(0, (0, 1))]

    def test_a_failing_store_ends_all(self, script, monkeypatch):
        script.lasts_s = 0.005

        def full(self, name, trial):
            raise UsageError("the disk is full")

        tune(lambda: len(script.requests) > 3, jobs=4)
        monkeypatch.setattr("gpuadvisor.storage.database.Store.add_trial", full)
        with pytest.raises(UsageError, match="the disk is full"):
            tune(jobs=4)


def finding(rule, low, high, knobs, severity=Severity.WARNING):
    return Finding(
        rule, Category.PRECISION, severity, RUN, f"It is {rule}", (), Span(low, high), 1.0,
        "in words", "Do this.", knobs,
    )  # fmt: skip


def test_a_diagnosis_leads_the_search_and_is_held_against_what_was_measured(script):
    phases = Recorder()
    diagnosis = Diagnosis(
        (
            finding("layout", 10, 20, ("channels_last",)),
            finding("matmul", 40, 50, ("tf32", "bf16_autocast")),
            finding("tuning", 5, 9, ("cudnn_benchmark",), Severity.NOTICE),
            finding("waiting", 30, 60, ("dataloader_workers",)),
            finding("healthy", 0, 0, ("compile",), Severity.INFO),
        ),
        profile="train-2",
    )
    result = tune(progress=phases, profile=lambda *_: diagnosis)
    assert any("`gpuadvisor diagnose train-2`" in note for note in result.notes)
    first = next(trial for trial in result.trials if trial.phase == "search")
    assert list(first.settings) == ["channels_last"]
    by_rule = {each.rule: each for each in result.expectations}
    assert list(by_rule) == ["layout", "matmul", "tuning", "waiting"]
    # What the best, which is 1.8 times as fast, loses without it.
    layout, matmul = by_rule["layout"], by_rule["matmul"]
    assert layout.measured_pct == pytest.approx(100 * (1.2 - 1) / 1.8, abs=0.5)
    assert 9 < layout.measured_low_pct < layout.measured_pct < layout.measured_high_pct < 13
    assert layout.low_pct <= layout.measured_pct <= layout.high_pct
    assert matmul.measured_pct == pytest.approx(100 * (1.5 - 1) / 1.8, abs=0.5)
    assert matmul.settings == {"tf32": True}
    assert not matmul.low_pct <= matmul.measured_pct <= matmul.high_pct
    assert by_rule["tuning"].measured_pct is None  # a single run is no proof
    assert by_rule["tuning"].why.startswith("cudnn_benchmark: tried once or twice and not kept")
    assert by_rule["waiting"].measured_pct is None
    assert by_rule["waiting"].why
    told = [note for note in result.notes if note.startswith("It is")]
    assert told[0] == "It is layout, worth 10 to 20 % of the time (layout)"
    assert len(told) == 3
    with open_store() as store:
        assert store.load_study("train-1").expectations == result.expectations


def test_a_script_that_works_only_once_is_said_to(script):
    script.fail = lambda names, run: TrialState.CRASHED if run else None
    with pytest.raises(ScriptError, match=r"but not again.*it failed") as error:
        tune()
    assert error.value.output == "output"
    assert len(script.requests) == 3  # once more, as one failure is no rule
    assert "--scratch" not in str(error.value)


def test_what_a_first_run_left_may_stop_the_next(script):
    def fail(names, run):
        study.Path("run.lock").touch()
        return TrialState.CRASHED if run else None

    script.fail = fail
    with pytest.raises(
        ScriptError, match=r"in the way .*run\.lock.*remove that, and use --scratch"
    ):
        tune()


def test_a_run_that_fails_once_is_repeated(script):
    script.fail = lambda names, run: TrialState.CRASHED if run == 1 else None
    assert tune().verdict == "faster"


@pytest.mark.parametrize(
    ("name", "why"),
    [("train.py", "the script itself"), ("/dev/null", "no ordinary file"), ("a.txt", "no plan")],
)
def test_a_plan_replaces_nothing_that_is_no_plan(script, tmp_path, name, why):
    (tmp_path / "a.txt").write_text("mine")
    with pytest.raises(UsageError, match=f"{why}.*; choose another place with --plan"):
        tune(plan=study.Path(name))
    assert not script.requests
    assert (tmp_path / "a.txt").read_text() == "mine"


def test_a_script_that_cannot_be_profiled_is_tuned_without(script):
    def profile(command, measured, device, cores, trace):
        raise ScriptError("train.py cannot be profiled: another profiler holds the GPU")

    result = tune(profile=profile)
    assert result.verdict == "faster"
    assert result.expectations == ()
    assert any("goes on without a profile: train.py" in note for note in result.notes)


def test_a_small_budget_is_not_spent_on_a_profile(script):
    script.lasts_s = 0.05

    def profile(command, measured, device, cores, trace):
        raise AssertionError("there was no room for it")

    result = tune(profile=profile, budget=BudgetLimit(seconds=10.0))
    assert any("no room for a profile" in note for note in result.notes)


def test_gains_in_memory_are_not_held_against_predictions_of_time(script):
    diagnosis = Diagnosis((finding("layout", 10, 20, ("channels_last",)),))
    result = tune(profile=lambda *_: diagnosis, objective=Objective.MEMORY)
    (each,) = result.expectations
    assert each.measured_pct is None
    assert each.why == "the objective was memory, not time"


def test_a_long_search_measures_the_unchanged_script_in_between(script):
    script.gains = {}
    everything = frozenset(load_knobs())
    result = tune(only=everything, level=Level.AGGRESSIVE)
    phases = [trial.phase for trial in result.trials]
    searched = "".join("s" if phase == "search" else "b" for phase in phases)
    assert "s" * evaluator.STALE_AFTER in searched
    assert "s" * (evaluator.STALE_AFTER + 1) not in searched


class TestRehearsal:
    def test_what_does_harm_is_left_out_and_the_rest_is_proven(self, script):
        script.harmful = {"tf32"}
        result = tune()
        assert result.settings == {"channels_last": True}
        assert result.verdict is Verdict.FASTER
        assert [each.knob for each in result.dropped] == ["tf32"]
        assert "relative difference" in result.dropped[0].problem.sentence
        assert read_plan(Path(result.plan)).settings == {"channels_last": True}
        # However much is left out: the third has weights changed as much as by rounding.
        assert script.lives.count([]) == 3

    def test_what_does_harm_in_all_its_parts_is_never_faster(self, script):
        script.harmful = set(GAINS)
        result = tune()
        # The rest was searched alone and does nothing.
        assert (result.verdict, result.settings) == (Verdict.NO_GAIN, {"cudnn_benchmark": True})
        assert result.rehearsal is None
        assert result.plan is None
        assert {each.knob for each in result.dropped} == {"tf32", "channels_last"}

    def test_what_cannot_be_rehearsed_is_unverified_and_has_no_plan(self, script, monkeypatch):
        monkeypatch.setattr(rehearsal, "unavailable", lambda: "no private view here")
        result = tune()
        assert result.verdict is Verdict.FASTER_UNVERIFIED
        assert result.speedup.ci99_low > 1
        assert result.plan is None
        assert "no private view here" in str(result.rehearsal.not_covered)
        assert script.lives == []

    def test_losses_that_part_in_trials_take_a_rehearsal_on_equal_weights(self, script):
        script.parting = {"tf32"}
        result = tune()  # whose rehearsal has had no reason to compare on equal weights
        assert result.settings == {"tf32": True, "channels_last": True}
        assert (result.verdict, result.plan) == (Verdict.FASTER_UNVERIFIED, None)
        assert "on equal weights" in result.equivalence.reason

    def test_what_the_search_took_for_noise_is_rehearsed_if_it_is_proven(self, script):
        script.gains = {}
        script.harmful = {"tf32"}
        phases = Recorder()

        def better(*_):
            if phases.now == "proof":
                script.gains = dict.fromkeys(GAINS, 1.2)

        script.fail = better
        result = tune(progress=phases, only=frozenset({"tf32"}))
        assert result.verdict is Verdict.INCONCLUSIVE
        assert [each.knob for each in result.dropped] == ["tf32"]
        script.harmful = set()
        script.gains, phases.now = {}, ""
        result = tune(progress=phases, only=frozenset({"tf32"}))
        assert result.verdict is Verdict.FASTER
        assert result.rehearsal.settings == result.settings == {"tf32": True}

    def test_a_verification_of_the_plan_uses_it(self, script):
        result = tune()
        script.lives.clear()
        asked = verification.VerifyOptions(Command("python", "train.py"), Path(result.plan))
        found = verification.verify(asked, Silent())
        assert (found.outcome, found.rehearsed_by) == (Outcome.HOLDS, result.study)
        assert script.lives == []
        script.parting = {"tf32"}
        found = verification.verify(asked, Silent())
        assert found.outcome is Outcome.INCONCLUSIVE
        assert "on equal weights" in found.reason
