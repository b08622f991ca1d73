"""The neighbourhood: combinations that one knob at a time cannot find, each tried once."""

import optuna
import pytest

from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.neighbourhood import PATIENCE, Neighbourhood
from tests.simulation import SimulatedEvaluator, Switch, multiplied, searched


@pytest.fixture(autouse=True)
def silent():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def explored(evaluator, knobs):
    search = searched(evaluator, knobs)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=5)
    )
    neighbourhood = Neighbourhood(study, search.space, evaluator.baseline)
    for trial in search.trials:
        neighbourhood.record(trial)
    before = len(evaluator.trials)
    best = neighbourhood.search(evaluator, search.best)
    return best, evaluator.trials[before:], study


@pytest.mark.parametrize("parallel", [1, 4])
def test_two_knobs_that_only_pay_together_are_found(parallel):
    both = {"tf32", "bf16"}
    evaluator = SimulatedEvaluator(lambda s: 50.0 if both <= s.keys() else 100.0, parallel=parallel)
    best, _, _ = explored(evaluator, [Switch("tf32"), Switch("bf16"), Switch("idle")])
    assert best.settings.keys() == both


@pytest.mark.parametrize("parallel", [1, 4])
def test_nothing_is_tried_twice(parallel):
    knobs = [Switch("a", (1, 2)), Switch("b", (1, 2)), Switch("c")]
    evaluator = SimulatedEvaluator(multiplied({}), parallel=parallel)
    explored(evaluator, knobs)
    tried = [frozenset(trial.settings.items()) for trial in evaluator.trials]
    assert len(tried) == len(set(tried))


def test_it_gives_up_after_some_in_vain():
    _, ran, _ = explored(SimulatedEvaluator(multiplied({})), [Switch(n) for n in "abcdef"])
    assert len(ran) == PATIENCE


def test_it_ends_where_there_are_no_neighbours_left():
    _, ran, _ = explored(SimulatedEvaluator(multiplied({})), [Switch("a")])
    assert ran == []


def test_it_keeps_to_what_can_be_set_together():
    knobs = [
        Switch("compile", excludes=["graphs"]),
        Switch("graphs"),
        Switch("persistent", needs="workers"),
        Switch("workers", (4,)),
    ]
    evaluator = SimulatedEvaluator(multiplied({"compile": 1.1}))
    explored(evaluator, knobs)
    for trial in evaluator.trials:
        assert not {"compile", "graphs"} <= trial.settings.keys()
        assert "persistent" not in trial.settings or "workers" in trial.settings


def test_a_batch_that_did_not_fit_is_not_made_larger():
    def model(settings):
        factor = settings.get("batch_size", 1)
        return TrialState.OUT_OF_MEMORY if factor > 4 else 100.0 / factor

    knobs = [Switch("batch_size", (2, 4, 8, 16, 32), progressive=True), Switch("a"), Switch("b")]
    evaluator = SimulatedEvaluator(model)
    best, _, _ = explored(evaluator, knobs)
    assert best.settings == {"batch_size": 4}
    assert max(trial.settings.get("batch_size", 1) for trial in evaluator.trials) == 8


def test_it_keeps_to_the_budget():
    for budget in range(5, 12):
        evaluator = SimulatedEvaluator(multiplied({"a": 1.2}), budget=budget, parallel=4)
        explored(evaluator, [Switch(n) for n in "abcd"])
        assert len(evaluator.trials) <= budget


def test_optuna_has_the_record():
    evaluator = SimulatedEvaluator(lambda s: TrialState.CRASHED if "b" in s else 100.0)
    _, _, study = explored(evaluator, [Switch("a"), Switch("b")])
    told = [t for t in study.trials if "number" in t.user_attrs]
    assert len(told) == len(evaluator.trials) - 1  # all but the baseline
    assert {t.user_attrs["state"] for t in told} == {"complete", "crashed"}


def test_what_failed_alone_is_not_combined():
    evaluator = SimulatedEvaluator(lambda s: TrialState.PRUNED if s.get("workers") == 2 else 100.0)
    explored(evaluator, [Switch("workers", (1, 2)), Switch("a"), Switch("b")])
    assert sum(trial.settings.get("workers") == 2 for trial in evaluator.trials) == 1
