"""Runs of the unchanged script of which something held one up, on a clock of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from gpuadvisor.domain.study import TrialState, Verdict
from tests.study_simulation import Machine, studies

BUSY = "others used 1.0 of 2 CPU cores, and none was idle"


class HeldUp(Machine):
    """A script without a loader, some runs of which wait for a thread that has no core."""

    loaded_ms, computed_ms, between, start_s = 0.0, 20.0, 0.02, 6.0
    brings: ClassVar = {"tf32": 1.5}
    facts = replace(Machine.facts, loaders=())

    def __init__(self, slower):
        super().__init__("a")
        self.slower, self.runs = slower, 0

    def factor(self):
        self.runs += 1
        return super().factor() * self.slower.get(self.runs - 1, 1.0)

    def run(self, *asked, **known):
        outcome = super().run(*asked, **known)
        return replace(outcome, disturbance=BUSY if self.runs - 1 in self.slower else "")


@pytest.fixture
def tune(tmp_path):
    with studies(tmp_path) as tuned:
        yield lambda slower, seconds=300: tuned(HeldUp(slower), seconds, only=frozenset({"tf32"}))


@pytest.mark.parametrize("stray", [0, 1])
def test_one_that_was_held_up_is_left_out_and_the_gain_is_proven(tune, stray):
    result, said = tune({stray: 44.0})
    left = result.trials[stray]
    assert (left.state, left.measurement, left.gain) == (TrialState.PRUNED, None, None)
    assert left.reason.endswith(f"times as much as two others, while {BUSY}")
    told = f"run {stray}, of the unchanged script, is left out: {left.reason}"
    assert [line for line in said if "left out" in line] == [told]
    assert told in result.notes
    assert not any("only large gains can be proven" in note for note in result.notes)
    assert result.baseline.mean_step_ms == pytest.approx(20, rel=0.1)
    assert result.speedup.ci99_low > 1.3
    assert all(0.9 < t.gain < 1.7 for t in result.trials if t.gain)


def test_a_script_whose_runs_are_far_apart_keeps_them(tune):
    """The third says nothing of the two, and is no run with another seed either."""
    result, said = tune({1: 5.0, 2: 25.0})
    assert [trial.number for trial in result.trials if trial.measurement is None] == [2]
    told = "run 2, of the unchanged script, is left out: two runs before it are as far apart"
    assert [line for line in said if "left out" in line] == [told]
    assert any("only large gains can be proven" in note for note in result.notes)
    assert result.verdict is not Verdict.FASTER


@pytest.mark.parametrize(("slower", "seconds"), [({}, 300), ({0: 2.0}, 300), ({1: 44.0}, 60)])
def test_nothing_is_left_out_where_runs_are_near_or_there_is_no_time(tune, slower, seconds):
    result, _ = tune(slower, seconds)
    assert all(trial.measurement for trial in result.trials if trial.phase == "baseline")
