"""Whole studies with the real program: an interruption, its continuation, a gain.

Their scripts sleep for as long as an argument says, and their clock counts that and what they
compute, so that what is found is known however busy the machine is. An interruption comes when the
script says that it is where it belongs, as no time that passes says so on another machine.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import psutil
import pytest

from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuning.plans.file import read_plan
from tests.integration import program
from tests.integration.program import Answer, Running

TUNE = ("tune", "paced.py", "--only", "cpu_threads")
ARGUMENTS = ("--steps", "10", "--pause", "0.12")
"""Long steps, and a gain so large that a few pairs of runs show it."""
CLOCK = {"PYTHONPATH": program.CLOCK}
HOLD = """
import os, sys, time
while "0.04" in sys.argv and os.path.exists("hold"):
    os.close(os.open("held", os.O_CREAT | os.O_WRONLY))
    time.sleep(0.01)
"""
"""Has a run with the shorter pause wait, and say so, for as long as there is a file."""


def workshop(path: Path) -> Path:
    text = (program.SCRIPTS / "paced.py").read_text("utf-8")
    (path / "paced.py").write_text(HOLD + text, "utf-8")
    return path


def wait_for(file: Path, study: Running) -> None:
    """Return once the script of a study has made the file."""
    deadline = time.monotonic() + program.PATIENCE_S
    while not file.exists():
        assert study.process.poll() is None, study.end().err
        assert time.monotonic() < deadline, f"no {file.name}"
        time.sleep(0.02)


@dataclass(frozen=True)
class Stopped:
    home: Path
    intruder: Answer
    children: list[psutil.Process]
    answer: Answer
    resumed: Answer


@dataclass(frozen=True)
class Gain:
    home: Path
    answer: Answer
    result: dict


def interrupt_and_resume(home: Path) -> Stopped:
    """What comes first is slower than the unchanged script; what is left is a gain."""
    (home / "paced.plan.toml").write_text("an old one")
    (home / "hold").touch()
    words = (*TUNE, "--arg", "pause=0.16,0.04", "--budget", "2 trials", "--json")
    arguments = ("--", *ARGUMENTS)
    first = Running(home, *words, *arguments, **CLOCK)
    first.wait_for("^Baseline")
    intruder = program.run(home, *words, *arguments, **CLOCK)
    wait_for(home / "held", first)
    children = first.children()
    first.process.send_signal(signal.SIGINT)
    answer = first.end()
    (home / "hold").unlink()
    resumed = program.run(home, *words, "--resume", *arguments, **CLOCK)
    return Stopped(home, intruder, children, answer, resumed)


@dataclass(frozen=True)
class Ended:
    home: Path
    children: list[psutil.Process]
    answer: Answer


def terminate_at_once(home: Path) -> Ended:
    study = Running(home, *TUNE, **CLOCK)
    study.wait_for("^Baseline")
    time.sleep(0.5)
    children = study.children()
    study.process.send_signal(signal.SIGTERM)
    return Ended(home, children, study.end())


@pytest.fixture(scope="module")
def stopped(cpu, tmp_path_factory) -> Stopped:
    return interrupt_and_resume(workshop(tmp_path_factory.mktemp("stopped")))


@pytest.fixture(scope="module")
def gain(stopped) -> Gain:
    answer = stopped.resumed
    assert answer.status == 0, answer.err
    return Gain(stopped.home, answer, json.loads(answer.out))


@pytest.fixture(scope="module")
def ended(cpu, tmp_path_factory) -> Ended:
    return terminate_at_once(workshop(tmp_path_factory.mktemp("ended")))


class TestGain:
    def test_it_is_proven(self, gain):
        result = gain.result
        assert result["verdict"] == "faster", result["rehearsal"]
        assert result["best"]["knobs"] == {"arg:pause": "0.04"}
        speedup = result["speedup"]
        assert 1 < speedup["ci99_low"] < speedup["ratio"] < speedup["ci99_high"]
        assert 2 < speedup["ratio"] < 4, "0.12 s to 0.04 s, and what a step computes"

    def test_its_figures_are_those_of_the_script(self, gain):
        assert gain.result["baseline"]["step_ms"]["p50"] == pytest.approx(121, rel=0.4)
        assert gain.result["baseline"]["samples_per_step"] == 2
        assert gain.result["args"] == list(ARGUMENTS)
        assert gain.result["device"]["kind"] == "cpu"

    def test_a_knob_alone_is_worth_the_whole(self, gain):
        (contribution,) = gain.result["contributions"]
        assert contribution["knob"] == "arg:pause"
        assert contribution["ratio"] == gain.result["speedup"]["ratio"]

    def test_every_trial_is_there_once(self, gain):
        trials = gain.result["trials"]
        assert [trial["number"] for trial in trials] == list(range(len(trials)))
        phases = [phase for phase, _ in groupby(trials, lambda trial: trial["phase"])]
        assert phases == ["baseline", "search", "baseline", "search", "proof"]
        assert all(trial["state"] == "complete" for trial in trials)

    def test_what_was_not_compared_and_not_tried_is_said(self, gain):
        assert gain.result["equivalence"]["status"] == "not_checked"
        notes = " ".join(gain.result["notes"])
        assert gain.result["untried"] == {
            "cpu_threads": "the budget had no room for it: `--budget '3 trials'` would have"
        }
        assert "the script ends after 10 steps" in notes
        assert "the plan that was in paced.plan.toml before is replaced" in notes

    def test_progress_goes_to_stderr_without_control_characters(self, gain):
        err = gain.answer.err
        assert "+ arg:pause=0.04" in err
        assert "Proof" in err
        assert all(letter.isprintable() or letter == "\n" for letter in err)

    def test_the_plan_can_be_read(self, gain):
        plan = read_plan(gain.home / gain.result["plan"])
        assert plan.settings == {"arg:pause": "0.04"}
        assert plan.speedup.ratio == gain.result["speedup"]["ratio"]

    @pytest.mark.slow  # `test_commands.py` runs a plan with an argument, and this one can be read
    def test_the_plan_runs(self, gain):
        words = ("run", "--plan", gain.result["plan"], "paced.py", "--", "--steps", "2")
        answer = program.run(gain.home, *words, **CLOCK)
        assert (answer.status, answer.out, answer.err) == (0, "trained 0.04\n", "")

    def test_the_store_has_the_same_for_a_report(self, gain, here):
        words = ("--json", "--markdown", "pull.md", "--html", "page.html")
        answer = here(gain.home, "report", *words)
        assert json.loads(answer.out) == gain.result
        assert "faster" in (gain.home / "pull.md").read_text("utf-8")
        assert (gain.home / "page.html").read_text("utf-8").lower().startswith("<!doctype html>")

    @pytest.mark.slow
    def test_a_script_that_fails_without_it_is_not_verified(self, gain):
        words = (
            "--plan",
            gain.result["plan"],
            "paced.py",
            "--budget",
            "8s",
            "--",
            *ARGUMENTS,
            "--steps",
            "none",
        )
        answer = program.run(gain.home, "verify", *words, **CLOCK)
        assert answer.status == 3
        last = answer.err.splitlines()[-1]
        assert last.startswith("gpuadvisor: paced.py cannot be measured: ")

    @pytest.mark.slow
    def test_the_plan_is_verified_without_another_rehearsal(self, gain):
        words = ("--plan", gain.result["plan"], "paced.py", "--budget", "1m", "--json")
        answer = program.run(gain.home, "verify", *words, "--", *ARGUMENTS, **CLOCK)
        found = json.loads(answer.out)
        assert found["rehearsed_by"] == gain.result["study"], found["study"]["notes"]
        assert (answer.status, found["outcome"]) == (0, "holds")
        assert "Rehearsal" not in answer.err


class TestInterruption:
    def test_a_second_study_is_refused(self, stopped):
        assert stopped.intruder.status == 7
        assert stopped.intruder.sentence.startswith("another gpuadvisor measures on the CPU")
        assert stopped.intruder.sentence.endswith("wait for it or stop it")

    def test_nothing_is_left_running(self, stopped):
        assert stopped.children
        assert not [process for process in stopped.children if process.is_running()]

    def test_there_is_a_readable_result_so_far(self, stopped):
        assert stopped.answer.status == 130, stopped.answer.err
        result = json.loads(stopped.answer.out)
        assert (result["verdict"], result["interrupted"]) == ("inconclusive", "interrupted")
        assert result["untried"]["cpu_threads"] == "the study ended early"
        fresh = [each["phase"] for each in result["trials"] if each["start_saved_s"] is None]
        assert fresh == ["baseline", "baseline", "search"]
        assert stopped.answer.err.endswith("gpuadvisor: interrupted; go on with --resume\n")

    def test_it_goes_on_where_it_ended(self, stopped):
        assert stopped.resumed.status == 0, stopped.resumed.err
        assert "goes on: 1 trials are known already" in stopped.resumed.err
        result = json.loads(stopped.resumed.out)
        numbers = [trial["number"] for trial in result["trials"]]
        assert len(numbers) == len(set(numbers))
        searched = [trial for trial in result["trials"] if trial["phase"] == "search"]
        assert [trial["knobs"]["arg:pause"] for trial in searched] == ["0.16", "0.04"]
        assert result["interrupted"] is None
        assert result["started"] == json.loads(stopped.answer.out)["started"]

    def test_a_finished_study_is_not_resumed(self, stopped, monkeypatch):
        monkeypatch.setenv("GPUADVISOR_HOME", str(stopped.home / "store"))
        folder = str(stopped.home.resolve())
        with open_store() as store:
            found = store.load_unfinished(
                "paced.py", ARGUMENTS, Level.BALANCED, Objective.THROUGHPUT, folder
            )
        assert found is None


@pytest.mark.slow
class TestTermination:
    def test_sigterm_in_the_first_run(self, ended):
        assert ended.answer.status == 143
        last = ended.answer.err.splitlines()[-1]
        assert last == "gpuadvisor: interrupted before the unchanged script was measured"
        assert not [process for process in ended.children if process.is_running()]

    def test_nothing_measured_is_nothing_stored(self, ended, here):
        answer = here(ended.home, "report")
        assert answer.status == 1
        assert "no study yet" in answer.sentence
