"""Whether a plan still holds: what is claimed of it, said, stored and told by the exit status."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import AppliedKnob, Level, ScriptFacts
from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.rehearsal import Call, Life
from gpuadvisor.domain.study import (
    Aspect,
    Equivalence,
    Objective,
    Plan,
    Problem,
    Rehearsal,
    Speedup,
    TrialState,
    Verdict,
)
from gpuadvisor.domain.verification import Outcome
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuners.proof import prove_point
from gpuadvisor.tuning import rehearsal, study
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.plans.file import write_plan
from gpuadvisor.tuning.trials import first_run, trial_runner
from gpuadvisor.tuning.trials.trial_runner import Silent
from gpuadvisor.tuning.verifying.judgement import judge, least_ratio
from gpuadvisor.tuning.verifying.verification import VerifyOptions, verify
from tests.json_page import documented
from tests.simulation import SimulatedEvaluator, gaussian, measurement, multiplied, quiet

SAME = Equivalence("equivalent", "10 losses", 0.001, 0.01)
PROMISE = Speedup(1.5, 1.45, 1.55, 8)
SETTINGS = {"tf32": True}


def plan(**changes):
    known = {
        "script": "train.py",
        "args": (),
        "settings": SETTINGS,
        "speedup": PROMISE,
        "level": Level.BALANCED,
        "objective": Objective.THROUGHPUT,
        "equivalence": SAME,
    }
    return Plan(**{**known, **changes})


def proof(gain, noise=None, state=None, budget=10_000):
    """The proof of a simulated script on which the plan gains so much, or ends so."""
    model = multiplied({"tf32": gain or 1.0})
    if state is not None:
        model = lambda settings: state if settings else 100.0  # noqa: E731
    evaluator = SimulatedEvaluator(model, noise or quiet(), budget=budget)
    return prove_point(evaluator, SETTINGS, Objective.THROUGHPUT)


class TestJudgement:
    @pytest.mark.parametrize(
        ("gain", "outcome", "words"),
        [
            (1.5, Outcome.HOLDS, "still there"),
            (3.0, Outcome.HOLDS, "still there"),
            (1.45, Outcome.HOLDS, "still there"),
            (1.2, Outcome.GAIN_GONE, "smaller than promised"),
            (1.0, Outcome.GAIN_GONE, "no gain any more"),
            (0.5, Outcome.GAIN_GONE, "no gain any more"),
        ],
    )
    def test_gains(self, gain, outcome, words):
        found, reason = judge(plan(), proof(gain), SAME, None)
        assert found is outcome
        assert words in reason
        assert f"{gain:.2f}x" in reason
        assert "where the plan promised 1.50x (1.45-1.55)" in reason

    def test_without_a_promise_any_gain_holds_and_none_does_not(self):
        assert judge(plan(speedup=None), proof(1.05), SAME, None)[0] is Outcome.HOLDS
        assert judge(plan(speedup=None), proof(1.0), SAME, None)[0] is Outcome.GAIN_GONE

    def test_a_wide_interval_shows_nothing(self):
        noise = gaussian(random.Random(1), between=0.4)
        found, reason = judge(plan(), proof(1.5, noise, budget=12), SAME, None)
        assert found is Outcome.INCONCLUSIVE
        assert "too wide to tell" in reason

    @pytest.mark.parametrize("gain", [1.05, 1.5, 3.0])
    def test_a_second_proof_of_the_same_gain_holds(self, gain):
        """Of 30 plans, each promised by one proof and verified by another on a usual machine."""
        outcomes = []
        for seed in range(30):
            promised = proof(gain, gaussian(random.Random(seed))).speedup
            again = proof(gain, gaussian(random.Random(1000 + seed)))
            outcomes.append(judge(plan(speedup=promised), again, SAME, None)[0])
        assert Outcome.GAIN_GONE not in outcomes
        assert outcomes.count(Outcome.HOLDS) >= 28

    @pytest.mark.parametrize("gain", [1.2, 1.5, 3.0])
    def test_a_gain_that_is_gone_never_holds(self, gain):
        promised = Speedup(gain, gain * 0.98, gain * 1.02, 8)
        for seed in range(20):
            noise = gaussian(random.Random(seed), between=0.02)
            assert judge(plan(speedup=promised), proof(1.0, noise), SAME, None)[0] is not (
                Outcome.HOLDS
            )

    @pytest.mark.parametrize(
        ("state", "outcome"),
        [
            (TrialState.WRONG, Outcome.RESULTS_DIFFER),
            (TrialState.CRASHED, Outcome.FAILS),
            (TrialState.HUNG, Outcome.FAILS),
            (TrialState.OUT_OF_MEMORY, Outcome.FAILS),
            (TrialState.UNSUPPORTED, Outcome.INCONCLUSIVE),
        ],
    )
    def test_runs_that_fail_under_the_plan(self, state, outcome):
        assert judge(plan(), proof(None, state=state), None, None)[0] is outcome

    @pytest.mark.parametrize(
        ("promised", "found", "outcome"),
        [
            (SAME, SAME, Outcome.HOLDS),
            (SAME, Equivalence("not_checked", "", reason="dropout"), Outcome.INCONCLUSIVE),
            (SAME, None, Outcome.INCONCLUSIVE),
            (Equivalence("not_checked", ""), Equivalence("not_checked", ""), Outcome.HOLDS),
            (None, None, Outcome.HOLDS),
        ],
    )
    def test_results_that_were_checked_once_must_be_again(self, promised, found, outcome):
        assert judge(plan(equivalence=promised), proof(1.5), found, None)[0] is outcome

    @pytest.mark.parametrize(
        ("aspects", "outcome"),
        [
            ((), Outcome.HOLDS),
            ((Aspect.BATCHES,), Outcome.RESULTS_DIFFER),
            ((Aspect.ROWS, Aspect.END), Outcome.FAILS),
        ],
    )
    def test_a_rehearsal_that_found_a_problem(self, aspects, outcome):
        problems = tuple(Problem(each, f"{each} differ") for each in aspects)
        found, reason = judge(plan(), proof(1.5), SAME, Rehearsal(SETTINGS, problems=problems))
        assert found is outcome
        assert not aspects or reason == f"{aspects[-1]} differ"

    def test_the_least_ratio_is_below_what_was_promised(self):
        assert least_ratio(PROMISE) == pytest.approx(1.45 - 0.05)
        assert least_ratio(Speedup(1.05, 1.03, 1.07, 8)) == pytest.approx(1.03 - 0.021)


# -- whole verifications on a script that is only simulated ----------------------------------------


class Script:
    """Stands for the script: answers each run from a model."""

    def __init__(self):
        self.gain = 1.5
        self.losses = (1.0, 0.9, 0.8)
        """Losses under the plan."""
        self.plain_losses = (1.0, 0.9, 0.8)
        self.level = 1.0
        """Factor of all costs."""
        self.spread = 0.0
        self.failing = {}
        """State of runs, by whether they have settings."""
        self.failing_from = 0
        self.effective = True
        self.cancel_after = None
        self.writes = None
        self.no_rehearsal = None
        """Why it cannot be rehearsed."""
        self.later_losses, self.life_ends = (1.0,) * 8, TrialState.COMPLETE
        """What lives under the plan show."""
        self.lives = 0
        """Shortened lives that it had."""
        self.disturbance = ""
        self.runs = 0
        self._count = itertools.count()

    def cancelled(self):
        return self.cancel_after is not None and next(self._count) > self.cancel_after

    def run(self, request, read_energy_j, load):
        run = next(self._count)
        self.runs += 1
        has_plan = bool(request.specification.applications)
        if self.writes is not None:
            self.writes.write_text("weights")
        if has_plan in self.failing and run >= self.failing_from:
            state = self.failing[has_plan]
            return RunOutcome(state, "it failed", None, "its words", 1.0, "train.py, line 3")
        cost = self.level * 100.0 / (self.gain if has_plan else 1.0)
        # In pairs of runs the second is slower, then the first: no order makes a gain of that.
        cost *= 1 + self.spread * (run % 2) + 0.001 * (run % 3)
        measured = measurement(
            [cost] * 8,
            facts=ScriptFacts(device="cuda", roots=("Net",), optimizers=("SGD",)),
            trace=Trace(self.losses if has_plan else self.plain_losses),
            applied=self.applied(has_plan),
        )
        return RunOutcome(TrialState.COMPLETE, "", measured, "", 1.0, disturbance=self.disturbance)

    def applied(self, has_plan):
        state = "effective" if self.effective else "no_effect"
        return (AppliedKnob("tf32", state),) if has_plan else ()

    def live(self, request, shortening):
        self.lives += 1
        has_plan = bool(request.specification.applications)
        losses = self.later_losses if has_plan else (1.0,) * 8
        state = self.life_ends if has_plan else TrialState.COMPLETE
        calls = tuple(Call(n, 64, 64, True, ((1.0,),)) for n in range(40))
        return Life(
            state,
            wall_s=3.0,
            losses=losses,
            calls=calls,
            written={},
            applied=self.applied(has_plan),
        )


GPU = Device("cuda", 0, "H100", f"GPU-verified-{os.getpid()}", 80 << 30, (9, 0), cores=16)


@pytest.fixture
def script(tmp_path, monkeypatch):
    return simulated(tmp_path, monkeypatch)


def simulated(folder, monkeypatch, made=None, device=GPU):
    made = made or Script()
    (folder / "train.py").write_text("")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPUADVISOR_HOME", str(folder / "store"))
    monkeypatch.setattr(trial_runner, "run_script", made.run)
    monkeypatch.setattr(rehearsal, "run_life", made.live)
    monkeypatch.setattr(rehearsal, "unavailable", lambda: made.no_rehearsal)
    made.python = TargetPython("/usr/bin/python3", "3.12.3", torch="2.7.1")
    asked = SimpleNamespace(path="simulated", end=lambda: None)  # no run begins with it
    monkeypatch.setattr(first_run, "ask_python", lambda command: asked)
    monkeypatch.setattr(first_run, "target_python", lambda command, asked=None: made.python)
    monkeypatch.setattr(first_run, "devices_for", lambda python, jobs: [device])
    write_plan(plan(), folder / "p.toml")
    return made


def verified(*words):
    return cli.main(["verify", "--plan", "p.toml", "train.py", "--budget", "1h", *words])


def document(capsys, *words):
    status = verified("--json", *words)
    return status, json.loads(capsys.readouterr().out)


def test_a_plan_that_holds(script, capsys):
    status, found = document(capsys)
    assert (status, found["outcome"]) == (0, "holds")
    assert found["promised"]["ratio"] == 1.5
    assert found["least_ratio"] == pytest.approx(1.4)
    assert found["study"]["speedup"]["ratio"] == pytest.approx(1.5, rel=0.01)
    assert found["study"]["equivalence"]["status"] == "equivalent"
    assert (found["is_rehearsed"], found["study"]["verdict"]) == (True, "faster")
    assert found.keys() == documented("A verification as JSON").keys()
    assert "not rehearsed" not in " ".join(found["study"]["notes"])


def test_nothing_is_claimed_of_what_was_not_rehearsed(script, capsys):
    script.no_rehearsal = "no private view here"
    status, found = document(capsys)
    assert (status, found["outcome"], found["is_rehearsed"]) == (0, "holds", False)
    assert found["study"]["verdict"] == "faster_unverified"
    notes = " ".join(found["study"]["notes"])
    assert "compared by the losses or outputs of the measured steps only" in notes
    assert "no private view here" in notes


def test_a_life_in_which_the_plan_changed_nothing_shows_nothing(script, capsys):
    script.effective = False
    _, found = document(capsys)
    assert found["is_rehearsed"] is False
    assert found["study"]["verdict"] == "faster_unverified"
    assert "the settings changed nothing in this script" in " ".join(found["study"]["notes"])


def test_results_that_differ_later_in_its_life(script, capsys):
    script.later_losses = (1.5,) * 8
    status, found = document(capsys)
    assert (status, found["outcome"], found["study"]["verdict"]) == (
        *(1, "results_differ", "inconclusive"),
    )
    assert found["study"]["speedup"] is None  # nobody needs it any more


def test_an_end_that_fails_under_the_plan(script, capsys):
    script.life_ends = TrialState.CRASHED
    status, found = document(capsys)
    assert (status, found["outcome"]) == (1, "fails")


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """The folder in which a first verification rehearsed and was stored."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        script = simulated(folder, patch)
        Path("helper.py").write_text("")
        assert verified() == 0
    assert script.lives == 3
    return folder


class TestEarlierRehearsals:
    """Whether a second verification rehearses again after a first one, `train-1`, that did."""

    @pytest.fixture
    def script(self, rehearsed, tmp_path, monkeypatch):
        shutil.copytree(rehearsed, tmp_path, dirs_exist_ok=True)
        yield simulated(rehearsed, monkeypatch)
        os.chdir(tmp_path)
        shutil.rmtree(rehearsed)
        shutil.copytree(tmp_path, rehearsed)

    def test_it_takes_six_starts_and_no_rehearsal_where_nothing_changed(self, script, capsys):
        runs = script.runs
        status, found = document(capsys)
        assert (script.runs - runs, script.lives, status, found["outcome"]) == (6, 0, 0, "holds")
        assert len(found["study"]["trials"]) == 6
        assert found["study"]["equivalence"]["status"] == "equivalent"
        assert (found["rehearsed_by"], found["is_rehearsed"]) == ("train-1", True)
        assert found["study"]["verdict"] == "faster"
        notes = " ".join(found["study"]["notes"])
        assert "rehearsal of study train-1 from 20" in notes
        assert "still holds: the same script, arguments, packages and device" in notes
        assert document(capsys)[1]["rehearsed_by"] == "train-1"  # the second made none

    @pytest.mark.parametrize("gain", [0.7, 1.0, 1.25])
    def test_a_gain_that_went_away_is_noticed_in_as_many(self, script, capsys, gain):
        script.gain, runs = gain, script.runs
        status, found = document(capsys)
        assert (script.runs - runs, status, found["outcome"]) == (6, 1, "gain_gone")

    def test_what_is_not_plain_says_what_it_would_take(self, script, capsys):
        script.spread, runs = 0.4, script.runs
        assert verified() == 6
        assert script.runs - runs > 8
        assert re.search(
            r"too wide to tell: .*; (about \d+ more pairs? of runs would, in [\d.]+ min|no number)",
            capsys.readouterr().err.splitlines()[-1],
        )

    def test_a_machine_that_others_always_use_takes_no_more(self, script, capsys):
        script.disturbance = "others used 60 % of the cores"
        verified("--rehearse")
        capsys.readouterr()
        runs = script.runs
        assert document(capsys)[1]["outcome"] == "holds"
        assert script.runs - runs == 6

    def test_a_faster_machine_is_no_loss(self, script, capsys):
        script.level, runs = 0.7, script.runs
        assert document(capsys)[1]["outcome"] == "holds"
        assert script.runs - runs == 6

    def test_other_data_are_noticed_and_rehearsed(self, script, capsys):
        script.losses = script.plain_losses = (1.0, 0.9, 0.805)
        status, found = document(capsys)
        assert (script.lives, status, found["rehearsed_by"]) == (3, 0, None)
        assert "computes something else than in study train-1" in str(found["study"]["notes"])

    def test_an_interrupted_one_keeps_its_rehearsal(self, script, capsys):
        Path("helper.py").write_text("pass")
        script.cancel_after = 60
        options = VerifyOptions(Command("python", "train.py"), Path("p.toml"))
        verify(options, Silent(), script.cancelled)
        assert script.lives == 3
        script.cancel_after = None
        assert document(capsys)[1]["rehearsed_by"] == "train-2"
        assert script.lives == 3

    def test_that_of_the_study_which_made_the_plan_holds_too(self, script, capsys):
        write_plan(plan(study="train-1"), Path("other.toml"))
        found = document(capsys, "--plan", "other.toml")[1]
        assert (script.lives, found["rehearsed_by"]) == (0, "train-1")

    @pytest.mark.parametrize("made_by", ["", "train-7"])
    def test_a_plan_of_an_unknown_study_is_rehearsed(self, script, capsys, made_by):
        write_plan(plan(study=made_by), Path("other.toml"))
        found = document(capsys, "--plan", "other.toml")[1]
        assert (script.lives, found["rehearsed_by"]) == (3, None)
        assert "no earlier rehearsal of this plan is stored here" in str(found["study"]["notes"])

    @pytest.mark.parametrize("name", ["train.py", "helper.py"])
    def test_changed_code_is_rehearsed(self, script, capsys, name):
        Path(name).write_text("pass")
        found = document(capsys)[1]
        assert (script.lives, found["rehearsed_by"]) == (3, None)
        assert f"does not hold any more: {name} has changed" in str(found["study"]["notes"])

    def test_another_torch_is_rehearsed(self, script, capsys):
        script.python = replace(script.python, torch="2.8.0")
        found = document(capsys)[1]
        assert script.lives == 3
        assert "does not hold any more: torch: 2.8.0 now" in str(found["study"]["notes"])

    def test_another_package_is_rehearsed(self, script, capsys):
        script.python = replace(script.python, packages=("transformers-5.1",))
        found = document(capsys)[1]
        assert script.lives == 3
        assert "packages: transformers-5.1 now, none then" in str(found["study"]["notes"])

    @pytest.mark.parametrize(
        "words", [("--", "--epochs", "3"), ("--tolerance", "5"), ("--rehearse",)]
    )
    def test_other_words_on_the_command_line_are_rehearsed(self, script, words):
        verified(*words)
        assert script.lives == 3

    def test_other_settings_are_rehearsed(self, script):
        write_plan(plan(settings={**SETTINGS, "arg:epochs": 3}, study="train-1"), Path("p.toml"))
        verified()
        assert script.lives == 3

    def test_one_that_found_a_problem_is_repeated(self, script, capsys):
        script.later_losses = (1.5,) * 8
        assert verified("--rehearse") == 1
        script.lives, script.later_losses = 0, (1.0,) * 8
        capsys.readouterr()
        found = document(capsys)[1]
        assert script.lives == 3
        assert "the rehearsal of study train-2" in str(found["study"]["notes"])
        assert "found a problem" in str(found["study"]["notes"])

    def test_one_that_covered_little_is_repeated(self, script, capsys):
        script.no_rehearsal = "no private view here"
        verified("--rehearse")
        script.no_rehearsal = None
        capsys.readouterr()
        found = document(capsys)[1]
        assert script.lives == 3
        assert "did not cover enough" in str(found["study"]["notes"])

    def test_a_script_that_got_wrong_since_is_told_by_its_runs(self, script, capsys):
        script.losses = (1.0, 0.5, 0.3)  # for a reason that no file shows
        status, found = document(capsys)
        assert (script.lives, status, found["outcome"]) == (0, 1, "results_differ")


def tuned():
    options = TuneOptions(
        Command("python", "train.py"), budget=BudgetLimit(trials=1), only=frozenset({"tf32"})
    )
    made = study.tune(options, Silent())
    assert made.verdict is Verdict.FASTER
    return made


@pytest.mark.parametrize("words", [(), ("--rehearse",)])
def test_the_run_that_begins_while_all_is_got_ready_is_the_first(
    script, capsys, monkeypatch, words
):
    made, early = tuned(), []

    def run(*asked):
        early.append(script.runs)
        return script.run(*asked)

    def starts():
        runs = script.runs
        assert document(capsys, "--plan", made.plan, *words)[1]["outcome"] == "holds"
        return script.runs - runs

    usual = starts()
    asked = SimpleNamespace(path=script.python.executable, end=lambda: None)
    monkeypatch.setattr(first_run, "ask_python", lambda command: asked)
    monkeypatch.setattr(first_run, "likely_device", lambda asked: GPU)
    monkeypatch.setattr(first_run, "run_script", run)
    runs = script.runs
    assert starts() == usual
    assert early == [runs]


def test_a_plan_that_tune_made_takes_six_starts(script, capsys, monkeypatch):
    made = tuned()
    for gain, outcome in ((1.5, "holds"), (1.0, "gain_gone")):
        runs, lives, script.gain = script.runs, script.lives, gain
        found = document(capsys, "--plan", made.plan)[1]
        assert (script.runs - runs, script.lives - lives) == (6, 0)
        assert (found["outcome"], found["rehearsed_by"]) == (outcome, made.study)


def test_a_gain_that_is_gone(script, capsys):
    script.gain = 1.0
    status, found = document(capsys)
    assert (status, found["outcome"], found["study"]["verdict"]) == (1, "gain_gone", "no_gain")
    assert found["study"]["plan"] is None


def test_a_gain_that_got_smaller(script, capsys):
    script.gain = 1.2
    status, found = document(capsys)
    assert (status, found["outcome"]) == (1, "gain_gone")
    assert found["study"]["verdict"] == "faster"


def test_results_that_differ(script, capsys):
    script.losses = (1.0, 0.5, 0.3)
    status, found = document(capsys)
    assert (status, found["outcome"]) == (1, "results_differ")
    assert found["study"]["equivalence"]["status"] == "wrong"
    assert found["study"]["verdict"] == "inconclusive"


def test_a_script_that_fails_under_the_plan(script, capsys):
    script.failing = {True: TrialState.CRASHED}
    status = verified()
    said = capsys.readouterr()
    assert status == 1
    assert said.err.splitlines()[-1] == (
        "gpuadvisor: the plan does not hold: the script fails under the plan: crashed: it failed "
        "(train.py, line 3); make a new one with `gpuadvisor tune`"
    )


def test_a_script_that_fails_without_the_plan(script, capsys):
    script.failing = {False: TrialState.CRASHED}
    assert verified() == 3
    assert "train.py cannot be measured" in capsys.readouterr().err


def test_a_script_that_fails_without_the_plan_later(script, capsys):
    script.failing, script.failing_from = {False: TrialState.CRASHED}, 3
    assert verified() == 3
    assert "the unchanged script failed beside the plan: crashed" in capsys.readouterr().err
    with open_store() as store:
        assert store.load_study("train-1").interrupted.startswith("the unchanged script failed")


def test_what_cannot_be_told(script, capsys):
    script.spread = 1.0
    assert verified() == 6
    told = capsys.readouterr().err.splitlines()[-1]
    assert re.search("more pairs of runs would, in .* for which a larger --budget has room$", told)


def test_it_is_stored_as_a_study_and_listed(script, capsys):
    verified()
    capsys.readouterr()
    assert cli.main(["studies"]) == 0
    assert "verifies " in capsys.readouterr().out
    with open_store() as store:
        found = store.load_study("train-1")
    assert found.verifies == str(Path("p.toml").absolute())
    assert found.verdict is Verdict.FASTER
    assert found.settings == SETTINGS
    assert cli.main(["report", "train-1", "--markdown"]) == 0
    assert "this study verified" in capsys.readouterr().out


def test_the_report_of_one_that_failed_speaks_of_the_plan(script, capsys):
    script.gain = 1.0
    verified()
    capsys.readouterr()
    cli.main(["report", "--markdown"])
    said = capsys.readouterr().out
    assert "this study verified" in said.split("####")[0]
    assert "there is no gain any more: 1.00x" in said
    assert "best left as it is" not in said


def test_its_text_and_markdown_say_the_same(script, capsys):
    verified()
    text = " ".join(capsys.readouterr().out.split())
    verified("--markdown")
    marked = " ".join(capsys.readouterr().out.split())
    for words in (text, marked):
        assert "The plan holds: the gain is still there: 1.50x" in words
        assert "Results are equivalent" in words


def test_differences_from_the_proof_are_said(script, capsys):
    write_plan(
        plan(script="other.py", environment={"device": "A100", "torch": "2.6.0"}),
        Path("p.toml"),
    )
    verified("--", "--epochs", "3")
    said = " ".join(capsys.readouterr().err.split())
    assert "the plan was proven on A100, this is H100: its gain is not known here" in said
    assert "proven with torch 2.6, this is 2.7" in said
    assert "the plan was proven for other.py, not for train.py" in said
    assert "proven with other arguments of the script" in said


def test_files_that_runs_leave_are_named(script, capsys):
    script.writes = Path("left.pt")
    verified()
    said = " ".join(capsys.readouterr().out.split())
    assert "Runs left files in the script's folder: `left.pt`" in said


def test_a_knob_that_does_nothing_any_more_is_named(script, capsys):
    script.effective = False
    verified()
    assert "found nothing to change any more: tf32" in capsys.readouterr().err


def test_an_interruption_leaves_what_was_measured(script):
    script.cancel_after = 12
    options = VerifyOptions(Command("python", "train.py"), Path("p.toml"))
    found = verify(options, Silent(), script.cancelled)
    assert (found.outcome, found.result.interrupted) == (Outcome.INCONCLUSIVE, "interrupted")
    with open_store() as store:
        assert store.load_study("train-1").interrupted == "interrupted"


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"settings": {}}, "sets nothing"), ({"settings": {"tf32": "maybe"}}, "tf32")],
)
def test_a_plan_that_cannot_be_applied(script, changes, words):
    write_plan(plan(**changes), Path("p.toml"))
    options = VerifyOptions(Command("python", "train.py"), Path("p.toml"))
    with pytest.raises(UsageError, match=words):
        verify(options, Silent())


def test_what_is_missing_is_named(script, capsys):
    assert cli.main(["verify", "--plan", "no.toml", "train.py"]) == 2
    assert capsys.readouterr().err == (
        "gpuadvisor: cannot read a plan no.toml: No such file or directory; check the path.\n"
    )
    assert cli.main(["verify", "--plan", "no.toml", "no.py"]) == 2
    said = capsys.readouterr().err
    assert "cannot read a plan no.toml: No such file" in said
    assert "there is no script no.py in " in said


def test_a_budget_in_trials_is_refused(script, capsys):
    assert verified("--budget", "30 trials") == 2
    assert "so give a time" in capsys.readouterr().err
