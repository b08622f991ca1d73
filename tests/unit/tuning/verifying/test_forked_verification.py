"""A verification's proof forks as that of a study does: after a fresh first pair, where alike."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.runner import is_forked
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.measurement import Trace
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuning.plans.file import write_plan
from gpuadvisor.tuning.trials import forking
from tests.study_simulation import Imported
from tests.unit.tuning.verifying.test_verification import (
    Script,
    document,
    plan,
    simulated,
    verified,
)

FRESH, FORKED = (False, False), (True, True)
STARTED_S, FORKED_S = 16.0, 7.0
"""Until the first step, of a fresh process and of a fork."""


class Importing(Script):
    """The same script, whose runs note what they import, and can be forked."""

    def __init__(self):
        super().__init__()
        self.kinds, self.processes = [], []
        """Whether each run was forked, and what runs can be forked from, with the runs before."""
        self.disturbed = 0
        """Number of the run beside which something else used the machine; 0 for none."""
        self.does = lambda number, has_plan, outcome: outcome
        """What becomes of a forked run, by its number and whether it is of the plan."""
        self.prints = lambda has_plan: "epoch 1\nloss 0.5\nend of"

    def run(self, request, *meters):
        outcome = super().run(request, *meters)
        if request.specification.notes:
            Path(request.specification.notes).write_text("[]")
        if len(self.kinds) + 1 == self.disturbed:
            outcome = replace(outcome, disturbance="others used 16.0 of 16 CPU cores")
        has_plan = bool(request.specification.applications)
        self.kinds.append(is_forked(request))
        start_s = FORKED_S if self.kinds[-1] else STARTED_S
        outcome = replace(
            outcome,
            forked=self.kinds[-1],
            output=self.prints(has_plan),
            wall_s=start_s + 1.0,
            measurement=outcome.measurement and replace(outcome.measurement, startup_s=start_s),
        )
        return self.does(sum(self.kinds), has_plan, outcome) if outcome.forked else outcome

    def begun(self, *_):
        self.processes.append((Process(STARTED_S - FORKED_S), len(self.kinds)))
        return self.processes[-1][0]


class Process(Imported):
    closed = False

    def close(self):
        self.closed = True


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script, of which a first verification has rehearsed the plan."""
    made = simulated(tmp_path, monkeypatch, Importing())
    monkeypatch.setattr(forking, "begin_template", made.begun)
    monkeypatch.setattr(forking, "start_template", lambda request, notes, begun: begun)
    assert verified() == 0
    made.first = made.kinds
    made.kinds = []
    made.processes.clear()
    return made


def pairs(found):
    """Whether the runs of each pair of the proof were forked."""
    forked = [each["start_saved_s"] is not None for each in proof(found)]
    return list(zip(forked[::2], forked[1::2], strict=True))


def proof(found):
    return [each for each in found["study"]["trials"] if each["phase"] == "proof"]


def test_of_six_starts_two_are_fresh_while_what_they_import_is_imported(script, capsys):
    status, found = document(capsys)
    assert (status, found["rehearsed_by"]) == (0, "train-1")
    assert (script.kinds, pairs(found)) == ([False] * 2 + [True] * 4, [FRESH, FORKED, FORKED])
    ((process, runs),) = script.processes
    assert (runs, process.closed) == (1, True)
    saved_s = 4 * (STARTED_S - FORKED_S)
    assert found["study"]["forking"] == {"runs": 4, "saved_s": saved_s, "why": None}
    assert verified() == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of processes, 2 fresh and 4 forked from one that had imported already" in said


def test_a_gain_that_is_gone_is_as_soon_known(script, capsys):
    script.gain = 1.0
    status, found = document(capsys)
    assert (status, found["outcome"]) == (1, "gain_gone")
    assert script.kinds == [False] * 2 + [True] * 4


def test_where_it_is_rehearsed_anew_a_run_of_its_own_is_compared(script):
    """Two baselines, of which the second has the process import beside it, and the forked one."""
    assert script.first == [False, False, True, False, False, True, True, True, True]


def other_losses(number, has_plan, outcome):
    other = replace(outcome.measurement, trace=Trace((1.0, 0.9, 0.7)))
    return outcome if has_plan else replace(outcome, measurement=other)


def wrong_losses(number, has_plan, outcome):
    other = replace(outcome.measurement, trace=Trace((1.0, 0.5, 0.3)))
    return replace(outcome, measurement=other) if has_plan else outcome


def slow(number, has_plan, outcome):
    slower = [1.2 * ms for ms in outcome.measurement.step_ms]
    windows = [replace(each, seconds=1.2 * each.seconds) for each in outcome.measurement.windows]
    return replace(
        outcome,
        measurement=replace(outcome.measurement, step_ms=tuple(slower), windows=tuple(windows)),
    )


def crash(number, has_plan, outcome):
    if not has_plan:
        return outcome
    return replace(outcome, state=TrialState.CRASHED, reason="CUDA", measurement=None)


def other_words(number, has_plan, outcome):
    return replace(outcome, output="epoch 1\na warning of forks\nend of")


@pytest.mark.parametrize(
    ("does", "why"),
    [
        (other_losses, "loss 3 was another"),
        (wrong_losses, "a run failed (median relative difference"),
        (slow, "a step cost 1.20 times as much"),
        (crash, "a run failed (CUDA"),
        (other_words, "it printed 'a warning of forks' instead of 'loss 0.5'"),
    ],
)
def test_a_forked_pair_that_does_something_else_counts_for_nothing(script, capsys, does, why):
    script.does, script.gain = does, 1.0
    _, found = document(capsys)
    assert (found["outcome"], pairs(found)) == ("gain_gone", [FRESH, FORKED, FRESH, FRESH])
    assert found["study"]["speedup"]["pairs"] == 3
    assert found["study"]["speedup"]["ratio"] == pytest.approx(1.0, rel=0.01)
    assert why in found["study"]["forking"]["why"]
    (told,) = [note for note in found["study"]["notes"] if "imports anew" in note]
    assert why in told
    assert all(process.closed for process, _ in script.processes)


def test_forked_runs_that_did_not_count_are_not_told_as_evidence(script, capsys):
    script.does = slow
    verified()
    said = " ".join(capsys.readouterr().out.split())
    assert "The pairs were of fresh processes." in said
    assert "forked from" not in said


def test_what_the_plan_prints_otherwise_by_itself_is_no_difference(script, capsys):
    script.prints = lambda has_plan: f"loss {0.52 if has_plan else 0.5}\n" * 3
    assert pairs(document(capsys)[1]) == [FRESH, FORKED, FORKED]


def test_a_pair_of_which_one_run_was_forked_counts_for_nothing(script, capsys):
    script.does = lambda number, _, outcome: replace(outcome, forked=number != 2)
    status, found = document(capsys)
    assert (status, pairs(found)[0], pairs(found)[2:]) == (0, FRESH, [FRESH, FRESH])
    assert sorted(pairs(found)[1]) == [False, True]
    assert found["study"]["speedup"]["pairs"] == 3


def test_a_first_pair_that_something_disturbed_is_run_afresh(script, capsys):
    script.disturbed = 2
    assert pairs(document(capsys)[1]) == [FRESH, FRESH, FORKED, FORKED]


def test_settings_that_come_before_imports_are_verified_in_fresh_processes(script, capsys):
    before = plan(settings={"host_memory": "32M"}, study="train-1")
    write_plan(before, Path("p.toml"))
    verified()
    capsys.readouterr()
    script.kinds.clear()
    document(capsys)
    assert script.kinds and not any(script.kinds)
    assert all(process.closed for process, _ in script.processes)


def test_on_a_cpu_all_are_fresh(tmp_path, monkeypatch, capsys):
    # Without a name of its own it would be this machine's, which other tests may measure on.
    cpu = Device("cpu", 0, "EPYC", f"cpu of {os.getpid()}", cores=16)
    script = simulated(tmp_path, monkeypatch, Importing(), cpu)
    monkeypatch.setattr(forking, "begin_template", script.begun)
    for _ in range(2):
        document(capsys)
    assert not any(script.kinds)
    assert script.processes == []
