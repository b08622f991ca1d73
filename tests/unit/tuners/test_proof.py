"""The proof: interleaved, never short of pairs, and silent where there is nothing to claim."""

import random
from dataclasses import dataclass
from itertools import count

import pytest

from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.tuners.proof import is_faster, prove, prove_point
from tests import simulation
from tests.simulation import SimulatedEvaluator, multiplied

TUNED = {"knob": True}


def proof_of(gain=0.5, objective=Objective.THROUGHPUT, **evaluator):
    evaluator = SimulatedEvaluator(multiplied({"knob": 1 + gain}), **evaluator)
    return prove_point(evaluator, TUNED, objective), evaluator


def test_baseline_and_best_take_turns_in_abba_order():
    _, evaluator = proof_of(noise=simulation.bimodal(random.Random(1)))
    order = "".join("B" if trial.settings else "A" for trial in evaluator.ran[1:])
    assert len(order) >= 16
    assert order == ("ABBA" * len(order))[: len(order)]


def test_it_needs_four_pairs_even_without_budget():
    proof, _ = proof_of(budget=0)
    assert proof.speedup.pairs == 4
    assert is_faster(proof.speedup)


def test_it_ends_with_the_budget():
    noise = simulation.bimodal(random.Random(1), slower=0.5)
    proof, _ = proof_of(budget=1 + 2 * 5, noise=noise)
    assert proof.speedup.pairs == 5


def test_a_large_gain_is_settled_at_the_first_look():
    proof, _ = proof_of(gain=1.0, noise=simulation.gaussian(random.Random(1)))
    assert proof.speedup.pairs == 4
    assert proof.speedup.ci99_low < 2.0 < proof.speedup.ci99_high


def test_no_gain_is_settled_too():
    proof, _ = proof_of(gain=-0.1, noise=simulation.gaussian(random.Random(1)))
    assert proof.speedup.pairs <= 6
    assert not is_faster(proof.speedup)


def test_drift_cancels():
    proof, _ = proof_of(gain=0.0, noise=simulation.drifting(random.Random(1), total=0.5))
    assert proof.speedup.ratio == pytest.approx(1.0, abs=0.02)


def failing_in(*runs, state=TrialState.CRASHED):
    """A model under which the best fails in these of its runs, counted from 0."""
    runs_of_best = count()

    def model(settings):
        failed = bool(settings) and next(runs_of_best) in runs
        return state if failed else (50.0 if settings else 100.0)

    return model


def test_one_accident_is_forgiven():
    proof = prove_point(SimulatedEvaluator(failing_in(1)), TUNED, Objective.THROUGHPUT)
    assert is_faster(proof.speedup)
    assert proof.speedup.pairs == 4
    assert proof.failed is None


def test_what_fails_twice_is_not_recommended():
    proof = prove_point(SimulatedEvaluator(failing_in(1, 3)), TUNED, Objective.THROUGHPUT)
    assert proof.speedup is None
    assert proof.failed.state is TrialState.CRASHED


def test_a_wrong_result_is_not_forgiven():
    model = failing_in(2, state=TrialState.WRONG)
    proof = prove_point(SimulatedEvaluator(model), TUNED, Objective.THROUGHPUT)
    assert proof.speedup is None
    assert proof.failed.state is TrialState.WRONG


def test_other_objectives_compare_their_own_costs():
    def leaner(settings, run):
        return simulation.measurement(run.step_ms, peak_memory_bytes=10 if settings else 20)

    evaluator = SimulatedEvaluator(multiplied({}), change=leaner)
    assert prove_point(evaluator, TUNED, Objective.MEMORY).speedup.ratio == pytest.approx(2.0)


def test_a_reference_that_moves_does_not_bias_the_ratio():
    """Gains are relative to earlier baselines, which may have been slow."""
    noise = simulation.drifting(random.Random(2), total=3.0, runs=8)
    proof, evaluator = proof_of(gain=0.0, noise=noise)
    assert evaluator.reference_ms < 110
    assert not is_faster(proof.speedup)


@dataclass(frozen=True)
class Revision:
    """A side that is no point of any space: a checkout, as a gate compares them."""

    name: str
    step_ms: float
    broken: bool = False


class TestAnyTwoSides:
    def compared(self, base, head, affordable=lambda pair: True):
        self.ran = []
        noise = simulation.gaussian(random.Random(1))

        def run(side):
            self.ran.append(side)
            number = len(self.ran)
            if side.broken:
                return Trial(number, {}, "proof", TrialState.CRASHED, "exit status 1")
            measured = simulation.measurement([side.step_ms * each for each in next(noise)])
            return Trial(number, {}, "proof", TrialState.COMPLETE, measurement=measured)

        return prove(run, base, head, Objective.THROUGHPUT, affordable)

    def test_a_faster_head_is_proven_and_a_slower_one_shown(self):
        main, fix = Revision("main", 20.0), Revision("fix", 16.0)
        assert self.compared(main, fix).speedup.ratio == pytest.approx(1.25, rel=0.01)
        slower = self.compared(fix, main).speedup
        assert slower.ci99_high < 1
        assert not is_faster(slower)

    def test_runs_are_kept_by_side(self):
        main, fix = Revision("main", 20.0), Revision("fix", 16.0)
        proof = self.compared(main, fix)
        assert [side.name for side in self.ran[:4]] == ["main", "fix", "fix", "main"]
        assert len(proof.base) == len(proof.head) == proof.speedup.pairs
        assert all(trial.measurement.mean_step_ms > 19 for trial in proof.base)
        assert all(trial.measurement.mean_step_ms < 17 for trial in proof.head)

    def test_the_side_that_fails_is_known(self):
        main, broken = Revision("main", 20.0), Revision("broken", 16.0, broken=True)
        proof = self.compared(main, broken)
        assert proof.speedup is None
        assert proof.failed in proof.head and proof.failed not in proof.base

    def test_the_budget_is_asked_for_pairs_of_sides(self):
        asked = []
        main = Revision("main", 20.0)
        proof = self.compared(main, main, lambda pair: asked.append(pair))
        assert proof.speedup.pairs == 4
        assert asked == [[main, main]]
