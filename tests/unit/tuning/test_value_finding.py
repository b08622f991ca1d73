"""When the running script is asked for the value of a knob, and what becomes of the answer."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.inquiry import Found
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.knob_space import KnobSpace
from gpuadvisor.tuners.space import Parameter, Space
from gpuadvisor.tuning.budgeting.budget import FINDING_SHARE, USUAL_FINDING_S, Budget
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.live.value_finding import ValueFinder
from gpuadvisor.tuning.options import TuneOptions
from tests.simulation import Switch, measurement


class Shown(Switch):
    """A knob that is asked for, which tells that it was."""

    finds = True

    def __init__(self):
        super().__init__("shown", ())

    def find(self, script):
        self.left_s = script.left_s
        return Found("a line", sentences=("it was asked",))


KNOBS = {"shown": Shown()}
UNFOUND = KnobSpace(Space(), {}, ("shown",))


@pytest.fixture
def found(tmp_path):
    """What a study with this budget and these trials knows of the knob, and what it said."""
    (tmp_path / "ends.py").write_text("import torch\n")

    def find(limit, *trials, space=UNFOUND.space):
        options = TuneOptions(
            Command(sys.executable, "ends.py", folder=str(tmp_path)), budget=limit, timeout_s=30.0
        )
        finder = ValueFinder(options, Device("cpu", 0, "cpu"), KNOBS, measurement([10.0] * 8))
        said = []
        chosen = finder.found(
            replace(UNFOUND, space=space),
            trials,
            Budget(limit, KNOBS),
            lambda *phase: said.append(phase[0]),
            said.append,
        )
        return chosen, said

    return find


def test_what_the_script_shows_is_a_value_to_be_tried(found):
    chosen, said = found(BudgetLimit(trials=3))
    assert chosen.space["shown"].values == ("a line",)
    assert said == ["finding", "it was asked"]


def test_a_study_that_goes_on_has_its_value_already(found):
    trial = Trial(3, {"tf32": True, "shown": "an older line"}, "search", TrialState.COMPLETE)
    chosen, said = found(BudgetLimit(trials=3), trial)
    assert chosen.space["shown"].values == ("an older line",)
    assert said == []


def test_a_budget_without_room_for_it(found):
    chosen, said = found(BudgetLimit(seconds=20.0))
    assert "the budget has no room for it" in chosen.unavailable["shown"]
    assert said == []


def test_how_long_the_script_may_be_asked():
    assert Budget(BudgetLimit(trials=3), KNOBS).finding_s() == USUAL_FINDING_S
    usual = Budget(BudgetLimit(seconds=3600.0), KNOBS).finding_s()
    assert usual == pytest.approx(FINDING_SHARE * 3600, rel=0.01)
    alone = Budget(BudgetLimit(seconds=3600.0), KNOBS).finding_s(alone=True)
    assert alone == pytest.approx(2 * usual, rel=0.01)


@pytest.mark.parametrize("seconds", [480.0, 520.0, 700.0])
@pytest.mark.parametrize("alone", [True, False])
def test_a_rehearsal_is_left_its_time_where_the_least_has_room_besides(seconds, alone):
    """520 s were spent on a value, and on a proof of it that could not be rehearsed."""
    budget = Budget(BudgetLimit(seconds=seconds), KNOBS)
    budget.record(Trial(0, {}, "baseline", TrialState.COMPLETE, wall_s=30.0))
    left_s = budget.left_s - budget.finding_s(alone, 60.0)
    assert left_s >= budget.deciding_s({}) - 1.0
    assert budget.finding_s(alone, 60.0) >= 60.0
    least_s = seconds - budget.durations.first_look_s({}) - 60.0
    assert budget.finding_s(True, least_s) == pytest.approx(least_s, abs=1.0)


@pytest.mark.parametrize(("others", "share"), [((), 2), ((Parameter("tf32", (True,)),), 1)])
def test_a_knob_that_is_alone_in_its_study_has_more_time(found, others, share):
    limit = BudgetLimit(seconds=36_000.0)
    found(limit, space=Space(others))
    left_s = KNOBS["shown"].left_s
    assert left_s == pytest.approx(share * FINDING_SHARE * 36_000, abs=600)
