"""The neighbourhood: combinations that one knob at a time cannot find, each tried once."""

import optuna
import pytest

from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.neighbourhood import PATIENCE, Neighbourhood
from tests.simulation import SimulatedEvaluator, Switch, multiplied, searched


@pytest.fixture(autouse=True)
def silent():
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def explored(bench, knobs):
    search = searched(bench, knobs)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=5)
    )
    neighbourhood = Neighbourhood(study, search.space, bench.baseline)
    for trial in search.trials:
        neighbourhood.record(trial)
    before = len(bench.ran)
    best = neighbourhood.search(bench, search.best)
    return best, bench.ran[before:], study


@pytest.mark.parametrize("parallel", [1, 4])
def test_two_knobs_that_only_pay_together_are_found(parallel):
    both = {"tf32", "bf16"}
    bench = SimulatedEvaluator(lambda s: 50.0 if both <= s.keys() else 100.0, parallel=parallel)
    best, _, _ = explored(bench, [Switch("tf32"), Switch("bf16"), Switch("idle")])
    assert best.settings.keys() == both


@pytest.mark.parametrize("parallel", [1, 4])
def test_nothing_is_tried_twice(parallel):
    knobs = [Switch("a", (1, 2)), Switch("b", (1, 2)), Switch("c")]
    bench = SimulatedEvaluator(multiplied({}), parallel=parallel)
    explored(bench, knobs)
    tried = [frozenset(trial.settings.items()) for trial in bench.ran]
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
    bench = SimulatedEvaluator(multiplied({"compile": 1.1}))
    explored(bench, knobs)
    for trial in bench.ran:
        assert not {"compile", "graphs"} <= trial.settings.keys()
        assert "persistent" not in trial.settings or "workers" in trial.settings


def test_a_batch_that_did_not_fit_is_not_made_larger():
    def model(settings):
        factor = settings.get("batch_size", 1)
        return TrialState.OUT_OF_MEMORY if factor > 4 else 100.0 / factor

    knobs = [Switch("batch_size", (2, 4, 8, 16, 32), progressive=True), Switch("a"), Switch("b")]
    bench = SimulatedEvaluator(model)
    best, _, _ = explored(bench, knobs)
    assert best.settings == {"batch_size": 4}
    assert max(trial.settings.get("batch_size", 1) for trial in bench.ran) == 8


def test_it_keeps_to_the_budget():
    for budget in range(5, 12):
        bench = SimulatedEvaluator(multiplied({"a": 1.2}), budget=budget, parallel=4)
        explored(bench, [Switch(n) for n in "abcd"])
        assert len(bench.ran) <= budget


def test_optuna_has_the_record():
    bench = SimulatedEvaluator(lambda s: TrialState.CRASHED if "b" in s else 100.0)
    _, _, study = explored(bench, [Switch("a"), Switch("b")])
    told = [t for t in study.trials if "number" in t.user_attrs]
    assert len(told) == len(bench.ran) - 1  # all but the baseline
    assert {t.user_attrs["state"] for t in told} == {"complete", "crashed"}


def test_what_failed_alone_is_not_combined():
    bench = SimulatedEvaluator(lambda s: TrialState.PRUNED if s.get("workers") == 2 else 100.0)
    explored(bench, [Switch("workers", (1, 2)), Switch("a"), Switch("b")])
    assert sum(trial.settings.get("workers") == 2 for trial in bench.ran) == 1
