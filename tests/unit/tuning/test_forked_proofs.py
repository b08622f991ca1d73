"""Of a proof the first pair is of fresh processes; the others are forked where that is alike."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from gpuadvisor.collectors.script.runner import is_forked
from gpuadvisor.domain.study import Forking, Verdict
from gpuadvisor.reports.study import wording
from gpuadvisor.reports.study.notes import notes
from tests.study_simulation import Machine, studies
from tests.unit.tuning.test_ten_minutes import Even, Launching


class Importing(Launching):
    """The vae of pytorch/examples, whose start is imports but for a second."""

    start_s, imports_s = 9.0, 8.0


class Restless(Importing):
    """The same beside another job, which comes while the first pair of a proof runs."""

    disturbed = 0

    def run(self, request, *meters):
        outcome = super().run(request, *meters)
        if self.phase != "proof" or self.disturbed == 2:
            return outcome
        self.disturbed += 1
        return replace(outcome, disturbance="others used 16.0 of 16 CPU cores, and none was idle")


class Growing(Machine):
    """A script that gains by a variable, which has to be there before torch is."""

    imports_s, between = 8.0, 0.005
    brings: ClassVar = {"host_memory": 1.4}


@pytest.fixture
def tune(tmp_path):
    with studies(tmp_path) as tuned:
        yield tuned


def kinds(result):
    """Whether each run of each pair of the first proof was forked."""
    forked = [t.is_forked for t in result.trials if t.phase == "proof"]
    return list(zip(forked[::2], forked[1::2], strict=True))


def test_a_proof_has_its_first_look_sooner(tune):
    machine, plain = Importing("a"), Launching("a")
    result, said = tune(machine, 300.0)
    tune(plain, 300.0)
    assert result.verdict is Verdict.FASTER
    fresh, *others = kinds(result)
    assert fresh == (False, False)
    assert others and set(others) == {(True, True)}
    assert machine.began_s["rehearsal"] < 135 < 165 < plain.began_s["rehearsal"]
    assert machine.now_s <= 300
    runs = 2 * len(others)
    of = f" of processes, 2 fresh and {runs} forked from one that had imported already"
    assert wording.processes(result) == of
    assert any(f"{runs} of the proof's, were forked" in each for each in notes(result))
    assert any("but the first pair of each proof" in each for each in said)
    refused = replace(result, forking=Forking(2, -3.0, "a step cost 0.41 times as much"))
    assert "had shown no difference" not in "".join(notes(refused))


def test_a_fresh_pair_that_something_disturbed_is_run_afresh(tune):
    result, _ = tune(Restless("a"), 300.0)
    disturbed, fresh, *others = kinds(result)
    assert disturbed == fresh == (False, False)
    assert others and set(others) == {(True, True)}


def test_settings_that_come_before_imports_are_proven_in_fresh_processes(tune):
    result, _ = tune(Growing("a"), 300.0, only=frozenset({"host_memory"}))
    assert result.settings == {"host_memory": "32M"}
    assert set(kinds(result)) == {(False, False)}
    assert wording.processes(result) == " of fresh processes"


def test_on_a_cpu_proofs_are_of_fresh_processes(tune):
    """The memory that a forked process holds is not what one of its own would."""
    machine = Importing("a")
    machine.computes_on = "cpu"
    result, said = tune(machine, 600.0)
    assert any("runs are forked" in each and "but those of proofs" in each for each in said)
    assert kinds(result) and set(kinds(result)) == {(False, False)}


class Ending(Importing):
    """The same, where what runs are forked from ends in the middle of the proof."""

    def run(self, request, *meters):
        outcome = super().run(request, *meters)
        if self.phase != "proof" or self.now_s < 110:
            return outcome
        self.asked = (*getattr(self, "asked", ()), is_forked(request))
        return replace(outcome, forked=False)


def test_where_what_runs_are_forked_from_ends_the_rest_is_fresh(tune):
    machine = Ending("a")
    result, _ = tune(machine, 300.0)
    assert result.verdict is Verdict.FASTER
    assert sum(machine.asked) == 1 and len(machine.asked) > 2  # it is asked for once
    assert machine.now_s <= 300


class Compiling(Even):
    """A script that takes twice as long to compile as is usual, and is mostly imports else."""

    imports_s = 7.0


def test_what_there_is_time_to_prove_is_where_the_best_compiled_too_long(tune):
    result, _ = tune(Compiling("0"), 300.0)
    searched = [trial for trial in result.trials if trial.phase == "search"]
    assert max(searched, key=lambda each: each.gain or 0.0).settings["compile"] == "default"
    assert result.verdict in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)
    assert result.settings == {"channels_last": True}
