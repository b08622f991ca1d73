"""Proofs in which both processes of a pair live at the same time, on a simulated script."""

import math
import random
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.study import Speedup, TrialState
from gpuadvisor.storage.database import open_store
from gpuadvisor.tuning.plans.file import write_plan
from gpuadvisor.tuning.trials import first_run, proof_processes, trial_runner
from tests.unit.tuning.test_gate_in_turns import Player
from tests.unit.tuning.verifying import test_verification
from tests.unit.tuning.verifying.test_verification import Path, plan

script, document = test_verification.script, test_verification.document
CPU = replace(test_verification.GPU, kind="cpu", name="a CPU", memory_bytes=1 << 40)
SETTINGS = {"host_memory": "all"}


class Processes(Player):
    """Plays runs whose speed differs by a third from start to start."""

    def __init__(self, script, folder):
        super().__init__(script, folder)
        self.scratch = []
        self.level = random.Random(1)

    def run(self, request, *meters):
        if request.seat is not None:
            self.scratch.append(request.scratch)
        return super().run(request, *meters)

    def side(self, request):
        return "head" if request.specification.applications else "base"


@pytest.fixture
def processes(script, tmp_path, monkeypatch):
    made = Processes(script, tmp_path)
    monkeypatch.setattr(trial_runner, "run_script", made.run)
    monkeypatch.setattr(first_run, "devices_for", lambda python, jobs: [CPU])
    monkeypatch.setattr(proof_processes, "unavailable", lambda: None)
    promise(1.2)
    script.gain = 1.2
    return made


def promise(gain):
    promised = Speedup(gain, 0.99 * gain, 1.01 * gain, 8)
    write_plan(plan(settings=SETTINGS, speedup=promised), Path("p.toml"))


def test_they_tell_what_runs_one_after_the_other_do_not(script, processes, capsys):
    for gain, outcome, rehearsed_by in ((1.2, "holds", None), (1.0, "gain_gone", "train-1")):
        script.gain, runs = gain, script.runs
        found = document(capsys)[1]
        assert (found["outcome"], found["rehearsed_by"]) == (outcome, rehearsed_by)
    assert script.runs - runs == 1 + 2 * found["study"]["speedup"]["pairs"] <= 9
    assert all(processes.scratch)
    assert "the runs of a pair took turns" in " ".join(found["study"]["notes"])
    with open_store() as store:
        trials = store.load_study("train-2").trials
    pairs = [trial.in_turns for trial in trials if trial.phase == "proof"]
    assert pairs[::2] == pairs[1::2]
    ratios = [math.log(each.base_ms / each.head_ms) for each in pairs]
    assert math.exp(math.fsum(ratios) / len(ratios)) == pytest.approx(gain, rel=0.02)


def no_view(processes, monkeypatch):
    monkeypatch.setattr(proof_processes, "unavailable", lambda: "no user namespaces")


def crash(processes, monkeypatch):
    crashed = RunOutcome(TrialState.CRASHED, "the port is in use", None, "", 1.0)
    processes.fault = lambda side, blocks: crashed if side == "head" and blocks == 3 else None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (no_view, "each process would find what the other one writes: no user namespaces"),
        (crash, "the script with the settings could not be measured (the port is in use), when"),
    ],
)
def test_where_they_cannot_they_follow_one_another(
    script, processes, capsys, monkeypatch, change, words
):
    change(processes, monkeypatch)
    script.gain = 3.0
    promise(3.0)
    test_verification.verified()
    said = " ".join(capsys.readouterr().err.split())
    assert processes.in_turns == (2 if change is crash else 0)
    assert words in said
    with open_store() as store:
        trials = store.load_study("train-1").trials
    proof = [trial for trial in trials if trial.phase == "proof"]
    assert len(proof) >= 6
    assert all(trial.in_turns is None for trial in proof)
    assert all(trial.measurement is not None for trial in proof)
