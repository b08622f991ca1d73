"""Ablation keeps what is missed, and nothing else."""

import math
import random
from dataclasses import replace
from itertools import combinations

import pytest

from gpuadvisor.domain.knobs import Contribution, Origin
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.ablation import MIN_CONTRIBUTION, ROUNDS, Ablation
from tests import simulation
from tests.simulation import SimulatedEvaluator, Switch, multiplied, space_of, tuned


def ablated(evaluator, settings, *knobs, fallback=None):
    known = {name: Switch(name) for name in settings} | {knob.name: knob for knob in knobs}
    ablation = Ablation(evaluator, space_of(known.values()), fallback or {})
    kept, contributions = ablation.run(settings)
    return kept, {each.knob: each for each in contributions}, ablation


def unmeasured(worth):
    return {name for name, each in worth.items() if each.origin is Origin.SEARCH}


def all_of(*names):
    return dict.fromkeys(names, True)


def test_what_contributes_is_kept_with_its_worth():
    evaluator = SimulatedEvaluator(multiplied({"tf32": 1.2, "bf16": 1.5}))
    kept, worth, _ = ablated(evaluator, all_of("tf32", "bf16"))
    assert kept == all_of("tf32", "bf16")
    assert worth["tf32"].ratio == pytest.approx(1.2)
    assert worth["bf16"].ratio == pytest.approx(1.5)
    assert list(worth) == ["bf16", "tf32"]


def test_what_does_nothing_and_what_harms_is_dropped():
    model = multiplied({"tf32": 1.2, "bf16": 1.5, "harm": 0.9})
    evaluator = SimulatedEvaluator(model, simulation.gaussian(random.Random(1), 0.001, 0.001))
    kept, _, _ = ablated(evaluator, all_of("tf32", "idle", "harm", "bf16"))
    assert kept == all_of("tf32", "bf16")


def test_one_of_two_that_do_the_same_is_kept():
    evaluator = SimulatedEvaluator(lambda s: 50.0 if {"fused", "foreach"} & s.keys() else 100.0)
    kept, _, _ = ablated(evaluator, all_of("fused", "foreach", "idle"))
    assert len(kept) == 1
    assert kept.keys() < {"fused", "foreach"}


def test_a_knob_goes_with_the_one_it_needs():
    needs = Switch("persistent", needs="workers")
    evaluator = SimulatedEvaluator(
        multiplied({"persistent": 0.8, "workers": 1.1, "tf32": 1.2, "a": 1.2})
    )
    kept, _, _ = ablated(evaluator, all_of("workers", "tf32", "a", "persistent"), needs)
    assert kept == all_of("workers", "tf32", "a")


def test_clear_knobs_are_measured_once_and_unclear_ones_three_times():
    noise = simulation.gaussian(random.Random(3), 0.001, 0.002)
    evaluator = SimulatedEvaluator(multiplied({"clear": 1.5, "vague": 1.01}), noise)
    ablated(evaluator, all_of("clear", "vague"))
    assert sum(trial.settings == {"vague": True} for trial in evaluator.trials) == 1
    assert sum(trial.settings == {"clear": True} for trial in evaluator.trials) == ROUNDS


def test_every_other_round_runs_backwards():
    noise = simulation.drifting(random.Random(1), total=0.05, runs=10)
    evaluator = SimulatedEvaluator(multiplied({"a": 1.005, "b": 1.005}), noise)
    ablated(evaluator, all_of("a", "b"))
    sizes = [len(trial.settings) for trial in evaluator.trials[1:7]]
    assert sizes == [2, 1, 1, 1, 1, 2]


def test_an_interval_needs_three_rounds():
    noise = simulation.gaussian(random.Random(1), 0.001, 0.002)
    evaluator = SimulatedEvaluator(multiplied({"clear": 1.5, "vague": 1.01}), noise)
    _, worth, _ = ablated(evaluator, all_of("clear", "vague"))
    assert worth["clear"].low is None
    if "vague" in worth:
        assert worth["vague"].low < 1.01 < worth["vague"].high


def test_what_the_script_fails_without_is_kept():
    def model(settings):
        return 50.0 if "allocator" in settings else TrialState.OUT_OF_MEMORY

    kept, worth, _ = ablated(
        SimulatedEvaluator(lambda s: 100.0 if not s else model(s)),
        all_of("allocator", "idle", "idler"),
        fallback={"allocator": 2.0},
    )
    assert kept == all_of("allocator")
    assert worth == {}  # one knob alone is the proof's


def test_one_accident_does_not_save_a_knob():
    accidents = iter([True])

    def model(settings):
        if settings == all_of("tf32", "bf16") and next(accidents, False):
            return TrialState.CRASHED
        return multiplied({"tf32": 1.5, "bf16": 1.2})(settings)

    kept, _, _ = ablated(SimulatedEvaluator(model), all_of("tf32", "idle", "bf16"))
    assert kept == all_of("tf32", "bf16")


@pytest.mark.parametrize(
    ("knobs", "disturbed"),
    [
        (("tf32", "idle", "bf16"), ("tf32", "bf16")),  # without the one that does nothing
        (("tf32", "bf16"), ("tf32", "bf16")),  # the whole
    ],
)
def test_one_run_that_something_disturbs_decides_nothing(knobs, disturbed):
    disturbances = iter([10.0])

    def model(settings):
        factor = next(disturbances, 1.0) if settings == all_of(*disturbed) else 1.0
        return factor * multiplied({"tf32": 1.5, "bf16": 1.2})(settings)

    fallback = {"tf32": 1.5, "bf16": 1.2, "idle": 1.02}
    kept, worth, _ = ablated(SimulatedEvaluator(model), all_of(*knobs), fallback=fallback)
    assert kept == all_of("tf32", "bf16")
    assert worth["tf32"].ratio == pytest.approx(1.5)
    assert worth["bf16"].ratio == pytest.approx(1.2)


def test_a_run_that_was_cut_off_says_nothing():
    def model(settings):
        if settings == all_of("tf32"):
            return TrialState.PRUNED
        return 50.0 if "tf32" in settings else 60.0

    kept, worth, _ = ablated(SimulatedEvaluator(model), all_of("tf32", "slow"))
    assert unmeasured(worth) == {"slow"}
    assert math.isnan(worth["slow"].ratio)
    assert kept == all_of("tf32", "slow")


class TestKnown:
    """What parameters bring beside all others may be known from elsewhere."""

    KNOWN = Contribution("b", True, 1.3, 1.2, 1.4, Origin.LIVE)

    def ablated(self, settings, known, gains):
        evaluator = SimulatedEvaluator(multiplied(gains))
        beside = all_of("a", "b")
        ablation = Ablation(evaluator, space_of(map(Switch, settings)), {}, known, beside)
        kept, worth = ablation.run(dict.fromkeys(settings, True))
        return kept, {each.knob: each for each in worth}, evaluator.trials[1:]

    def test_it_is_not_measured_again(self):
        kept, worth, trials = self.ablated("ab", {"b": self.KNOWN}, {"a": 1.5, "b": 1.3})
        assert [trial.settings for trial in trials] == [all_of("a", "b"), all_of("b")]
        assert worth["b"] == self.KNOWN
        assert worth["a"].origin is Origin.FRESH
        known = {"b": self.KNOWN, "a": replace(self.KNOWN, knob="a")}
        kept, worth, trials = self.ablated("ab", known, {})
        assert (kept, worth, trials) == (all_of("a", "b"), known, [])

    def test_what_was_added_since_is_taken_out_first(self):
        known = {"b": self.KNOWN, "a": replace(self.KNOWN, knob="a")}
        gains = {"a": 1.5, "b": 1.3, "idle": 1.0}
        kept, worth, trials = self.ablated(["a", "b", "idle"], known, gains)
        assert (kept, worth) == (all_of("a", "b"), known)
        assert {len(trial.settings) for trial in trials} == {2, 3}

    def test_it_says_nothing_beside_more_or_fewer(self):
        kept, worth, _ = self.ablated("abc", {"b": self.KNOWN}, {"a": 1.5, "b": 1.3, "c": 1.2})
        assert kept == all_of("a", "b", "c")
        assert {each.origin for each in worth.values()} == {Origin.FRESH}
        kept, worth, _ = self.ablated("abc", {"b": self.KNOWN}, {"b": 1.3, "c": 1.2})
        assert kept == all_of("b", "c")
        assert worth["b"].origin is Origin.FRESH


class TestBudget:
    def test_without_any_the_search_is_believed_and_that_is_said(self):
        evaluator = SimulatedEvaluator(multiplied({}), budget=1)
        kept, worth, _ = ablated(evaluator, all_of("a", "b"), fallback={"a": 1.2, "b": 1.1})
        assert kept == all_of("a", "b")
        assert unmeasured(worth) == {"a", "b"}
        assert (worth["a"].ratio, worth["a"].low) == (1.2, None)

    def test_the_least_sure_are_measured_first(self):
        evaluator = SimulatedEvaluator(multiplied({"sure": 2.0, "real": 1.1}), budget=1 + 3)
        fallback = {"sure": 2.0, "real": 1.1, "doubtful": 1.01}
        ablated(evaluator, all_of("sure", "doubtful", "real"), fallback=fallback)
        assert evaluator.trials[2].settings == all_of("sure", "real")

    def test_it_is_never_exceeded(self):
        for budget in range(1, 20):
            evaluator = SimulatedEvaluator(multiplied({"a": 1.2, "b": 1.1}), budget=budget)
            ablated(evaluator, all_of("a", "b", "idle", "idler"))
            assert len(evaluator.trials) <= budget


def test_a_knob_is_weighed_against_the_whole_on_its_own_gpu():
    gains = {"good": 1.5, "better": 2.0, "idle": 1.0}
    evaluator = SimulatedEvaluator(multiplied(gains), parallel=2, references=(1.0, 1.2))
    ablation = Ablation(evaluator, space_of(Switch(name) for name in gains))
    settings, contributions = ablation.run(dict.fromkeys(gains, True))
    assert settings == {"good": True, "better": True}
    assert {each.knob: each.ratio for each in contributions} == {
        "good": pytest.approx(1.5),
        "better": pytest.approx(2.0),
    }


def random_model(generator, names):
    """Gains, harms and pairwise interactions, some of them large."""
    single = {name: generator.choice([0.8, 1.0, 1.0, 1.02, 1.1, 1.5]) for name in names}
    pairs = {
        pair: generator.choice([0.7, 0.9, 1.1]) if generator.random() < 0.3 else 1.0
        for pair in combinations(names, 2)
    }

    def cost(settings):
        log = sum(math.log(single[name]) for name in settings)
        log += sum(math.log(f) for pair, f in pairs.items() if set(pair) <= settings.keys())
        return 100.0 * math.exp(-log)

    return cost


@pytest.mark.parametrize("parallel", [1, 4])
def test_no_knob_survives_that_its_own_ablation_does_not_support(parallel):
    names = [f"knob{n}" for n in range(6)]
    for seed in range(60):
        model = random_model(random.Random(seed), names)
        result = tuned(SimulatedEvaluator(model, parallel=parallel), [Switch(n) for n in names])
        for name in result.settings:
            lacking = {n: v for n, v in result.settings.items() if n != name}
            assert model(lacking) / model(result.settings) >= 1 + 0.9 * MIN_CONTRIBUTION
        if result.proof is not None:
            assert result.proof.speedup.ratio == pytest.approx(100 / model(result.settings))
