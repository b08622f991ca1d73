"""From the proof's runs to what is shown, and where the plan goes."""

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.results import plan_path, typical
from tests.simulation import measurement


def trial(number, step_ms, state=TrialState.COMPLETE):
    return Trial(number, {}, "proof", state, measurement=measurement([step_ms]))


def test_the_run_of_median_cost_is_shown():
    runs = [trial(n, ms) for n, ms in enumerate([12.0, 10.0, 50.0, 11.0, 11.5])]
    assert typical(runs, Objective.THROUGHPUT).number == 4
    assert typical(runs[:2], Objective.THROUGHPUT).number == 1


def test_runs_that_failed_are_not():
    runs = [trial(0, 1.0, TrialState.WRONG), trial(1, 2.0)]
    assert typical(runs, Objective.THROUGHPUT).number == 1
    assert typical(runs[:1], Objective.THROUGHPUT) is None
    assert typical(runs, Objective.ENERGY) is None


@pytest.mark.parametrize(
    ("script", "is_module", "expected"),
    [
        ("train.py", False, "train.plan.toml"),
        ("src/train.py", False, "train.plan.toml"),
        ("train.v2.py", False, "train.v2.plan.toml"),
        ("package.train", True, "train.plan.toml"),
        ("package", True, "package.plan.toml"),
    ],
)
def test_the_plan_is_named_after_the_script(tmp_path, monkeypatch, script, is_module, expected):
    monkeypatch.chdir(tmp_path)
    assert str(plan_path(TuneOptions(Command("python", script, (), is_module)))) == expected


def test_where_it_cannot_be_written_nothing_begins(tmp_path):
    command = Command("python", "train.py")
    for path in (tmp_path, tmp_path / "no" / "x.toml"):
        with pytest.raises(UsageError, match="choose another place with --plan"):
            plan_path(TuneOptions(command, plan=path))
