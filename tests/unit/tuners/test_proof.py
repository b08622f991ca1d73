"""The proof: interleaved, never short of pairs, and silent where there is nothing to claim."""

import random
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count, islice

import pytest

from gpuadvisor.domain.study import InTurns, Objective, Speedup, Trial, TrialState
from gpuadvisor.tuners.proof import (
    MAX_REPEATED,
    Known,
    Proof,
    Prospect,
    is_faster,
    is_no_gain,
    pair_s,
    prove,
    prove_point,
)
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuners.turn_order import LONGEST_DELAY_S, Delay, orders
from tests import simulation
from tests.simulation import SimulatedEvaluator, multiplied

TUNED = {"knob": True}


def proof_of(gain=0.5, objective=Objective.THROUGHPUT, **evaluator):
    evaluator = {"baselines": 3, **evaluator}
    evaluator = SimulatedEvaluator(multiplied({"knob": 1 + gain}), **evaluator)
    return prove_point(evaluator, TUNED, objective), evaluator


def order_of(seed):
    noise = simulation.bimodal(random.Random(1), 0.5, 0.5)
    evaluator = SimulatedEvaluator(multiplied({"knob": 1.1}), noise=noise, budget=65)
    prove_point(evaluator, TUNED, Objective.THROUGHPUT, seed)
    return "".join("B" if trial.settings else "A" for trial in evaluator.trials[1:])


def test_pairs_come_in_random_order_which_the_seed_decides():
    order = order_of("1")
    assert len(order) == 64
    pairs = Counter(order[place : place + 2] for place in range(0, 64, 2))
    assert set(pairs) == {"AB", "BA"}
    assert min(pairs.values()) >= 8  # of 32: fewer in 4 of 1,000 orders
    assert order_of("1") == order
    assert order_of("2") != order


def test_the_first_look_sees_both_orders():
    for seed in range(200):
        assert len(set(islice(orders(str(seed)), LOOKS[0]))) == 2


def test_it_needs_three_pairs_even_without_budget():
    proof, _ = proof_of(budget=0)
    assert proof.speedup.pairs == LOOKS[0]
    assert is_faster(proof.speedup)


def test_it_ends_with_the_budget():
    noise = simulation.bimodal(random.Random(1), slower=0.5)
    proof, _ = proof_of(budget=3 + 2 * 5, noise=noise)
    assert proof.speedup.pairs == 5


def test_a_large_gain_is_settled_at_the_first_look():
    proof, _ = proof_of(gain=1.0, noise=simulation.gaussian(random.Random(1)))
    assert proof.speedup.pairs == LOOKS[0]
    assert proof.speedup.ci99_low < 2.0 < proof.speedup.ci99_high


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_follows_a_gain_comes_when_it_is_first_shown(goes_on):
    """A rehearsal: the proof goes on after it to narrow its interval, unless that says no."""
    noise = simulation.gaussian(random.Random(1), 0.05)
    evaluator = SimulatedEvaluator(
        multiplied({"knob": 1.5}), noise=noise, baselines=3, budget=3 + 22
    )
    at = []

    def shown(found):
        at.append(sum(trial.phase == "proof" for trial in evaluator.trials))
        return goes_on

    found = prove_point(evaluator, TUNED, Objective.THROUGHPUT, shown=shown).speedup
    assert is_faster(found)
    assert len(at) == 1 and at[0] // 2 in LOOKS
    assert found.pairs == (11 if goes_on else at[0] // 2)


def test_whether_it_is_worthwhile_is_asked_at_each_look_without_a_gain():
    evaluator = SimulatedEvaluator(
        multiplied({"knob": 1.03}), noise=simulation.gaussian(random.Random(1), 0.05), baselines=3
    )
    asked = []

    def worthwhile(prospect):
        asked.append(prospect)
        return len(asked) < 2

    found = prove_point(evaluator, TUNED, Objective.THROUGHPUT, worthwhile=worthwhile).speedup
    assert found.pairs == LOOKS[1] and not is_faster(found)
    assert [each.found.pairs for each in asked] == list(LOOKS[:2])
    assert all(0.02 < each.spread < 0.1 for each in asked)


@pytest.mark.parametrize(
    ("ratio", "seconds", "may"),
    [(1.3, 45.0, True), (1.05, 45.0, False), (1.05, 19.0, True), (1.05, 9000.0, True)],
    ids=["large", "small", "no-room-for-a-pair", "much-time"],
)
def test_what_a_proof_may_still_show(ratio, seconds, may):
    found = Speedup(ratio, 0.9, 1.9, LOOKS[0])
    assert Prospect(found, spread=0.06, pair_s=20.0).may_show_within(seconds) is may


def test_a_pair_whose_runs_live_at_the_same_time_takes_as_long_as_the_longer_one():
    sides = ([replace(baseline(10.0), wall_s=wall_s)] for wall_s in (20.0, 24.0))
    proof = Proof(base=next(sides), head=next(sides))
    assert pair_s(proof) == 44.0
    assert pair_s(replace(proof, ratios=[1.1])) == 24.0


def test_what_is_no_better_than_a_known_plan_is_settled():
    """A plan that is known to bring at most 1.6x is not bettered by one that brings 1.5x."""
    noise = simulation.gaussian(random.Random(1), 0.005)
    evaluator = SimulatedEvaluator(multiplied({"knob": 1.5}), noise=noise, baselines=3)
    at = []
    proof = prove_point(
        evaluator, TUNED, Objective.THROUGHPUT, shown=lambda found: at.append(1), least=1.6
    )
    assert is_faster(proof.speedup) and not at
    assert proof.speedup.pairs <= 6
    # What is compared with it later has to lie above an interval that is right more often.
    assert proof.surer.ci99_low < proof.speedup.ci99_low
    assert proof.surer.ci99_high > proof.speedup.ci99_high


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
    proof = prove_point(SimulatedEvaluator(failing_in(1), baselines=3), TUNED, Objective.THROUGHPUT)
    assert is_faster(proof.speedup)
    assert proof.speedup.pairs == LOOKS[0]
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


def steps_of(costs):
    """Returns what runs the two sides of a proof, whose runs have these costs one by one."""
    left = {side: iter(each) for side, each in costs.items()}

    def run(side):
        measured = simulation.measurement([next(left[side])])
        return Trial(0, {}, "proof", TrialState.COMPLETE, measurement=measured)

    return run


def baseline(step_ms):
    measured = simulation.measurement([step_ms])
    return Trial(0, {}, "baseline", TrialState.COMPLETE, measurement=measured)


class TestWhatALookHasShownStaysSo:
    """ResNet-50 on an H100, in ms a step: the fourth pair differs by more than the others did."""

    BASE, HEAD = (152.3, 155.5, 164.9, 200.9), (110.0, 99.3, 107.8, 88.0)

    def proof(self, pairs, base=BASE, head=HEAD, shown=lambda found: True):
        seed = next(s for n in count() if [*islice(orders(s := str(n)), 4)] == [1, 0, 0, 1])
        known = Known([baseline(187.3), baseline(183.4)])
        left = iter([True] * (pairs - LOOKS[0]))
        run = steps_of({"base": base, "head": head})
        more = lambda pair: next(left, False)  # noqa: E731
        found = prove(run, "base", "head", Objective.THROUGHPUT, more, seed, known, shown=shown)
        return found.speedup

    def test_a_larger_gain_takes_nothing_back(self):
        looks = []
        four = self.proof(4, shown=lambda found: looks.append(found) or True)
        (three,) = looks
        assert three.pairs == 3 and is_faster(three) and is_faster(four)
        assert four.ratio > three.ratio
        assert four.ci99_low >= three.ci99_low and four.ci99_high <= three.ci99_high

    def test_where_no_look_can_follow_the_last_has_the_error_of_those(self):
        looks = []
        self.proof(4, shown=lambda found: looks.append(found) or True)
        last = self.proof(3)
        assert last.ratio == looks[0].ratio
        assert looks[0].ci99_low < last.ci99_low and last.ci99_high < looks[0].ci99_high

    def test_a_ratio_that_leaves_what_was_shown_takes_all_of_it_back(self):
        head = (*self.HEAD[:3], 900.0)
        assert not is_faster(self.proof(4, head=head))


def test_what_forgotten_looks_used_up_never_exceeds_what_there_was():
    """Pairs that follow one another, then twelve in turns, then such that follow again."""
    generator = random.Random(1)
    together, left = iter([False] * 4 + [True] * 12), iter([True] * 25)

    def trial(side):
        measured = simulation.measurement(
            [(100 if side == "base" else 99) * generator.lognormvariate(0, 0.05)]
        )
        turns = InTurns(100.0, 99.0 * generator.lognormvariate(0, 0.05))
        return Trial(0, {}, "proof", TrialState.COMPLETE, measurement=measured, in_turns=turns)

    def both(sides):
        return [trial(side) for side in sides] if next(together, False) else None

    def run(side):
        return replace(trial(side), in_turns=None)

    more = lambda pair: next(left, False)  # noqa: E731
    found = prove(
        run, "base", "head", Objective.THROUGHPUT, more, known=Known([baseline(100.0)]), both=both
    ).speedup
    assert found.pairs > LOOKS[0]
    assert 0 < found.ci99_low < 1 < found.ci99_high < 2


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

        return prove(run, base, head, Objective.THROUGHPUT, affordable, self.seed)

    seed = "a study"

    def test_a_faster_head_is_proven_and_a_slower_one_shown(self):
        main, fix = Revision("main", 20.0), Revision("fix", 16.0)
        assert self.compared(main, fix).speedup.ratio == pytest.approx(1.25, rel=0.01)
        slower = self.compared(fix, main).speedup
        assert slower.ci99_high <= 1
        assert not is_faster(slower)

    def test_runs_are_kept_by_side(self):
        main, fix = Revision("main", 20.0), Revision("fix", 16.0)
        proof = self.compared(main, fix)
        assert {side.name for side in self.ran[:2]} == {"main", "fix"}
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
        main, fix = Revision("main", 20.0), Revision("fix", 16.0)
        proof = self.compared(main, fix, lambda pair: asked.append(pair))
        assert proof.speedup.pairs == LOOKS[0]
        assert asked == [[main, fix]]


def speedup(low, high):
    return Speedup((low * high) ** 0.5, low, high, 8)


@pytest.mark.parametrize(
    ("low", "high", "faster", "no_gain"),
    [
        (1.001, 1.2, True, False),
        (1.001, 1.02, True, False),
        (0.99, 1.029, False, True),
        (0.5, 0.9, False, True),
        (0.99, 1.031, False, False),
        (0.65, 14.83, False, False),
        (1.0, 1.5, False, False),
    ],
)
def test_a_proof_says_one_of_three_things(low, high, faster, no_gain):
    found = speedup(low, high)
    assert (is_faster(found), is_no_gain(found)) == (faster, no_gain)


def test_without_a_proof_neither_is_said():
    assert not is_faster(None) and not is_no_gain(None)


def test_an_undecided_proof_says_what_it_would_still_take():
    noise = simulation.gaussian(random.Random(5), 0.06)
    proof, _ = proof_of(gain=0.05, noise=noise, budget=3 + 2 * 16)
    assert not is_faster(proof.speedup) and not is_no_gain(proof.speedup)
    # (4.1 + 1.28) standard errors of 6 % * sqrt(2 / n) are 5 % at some 85 pairs.
    assert 16 <= proof.needed.pairs <= 250
    decided, _ = proof_of(gain=1.0, noise=simulation.gaussian(random.Random(3)))
    assert decided.needed is None


class TestDisturbedRuns:
    """Runs of which something else used the machine are put aside with their pair."""

    def proof(self, disturbed, has_room=True):
        self.ran = count()

        def run(side):
            number = next(self.ran)
            measured = simulation.measurement([side * (5.0 if number in disturbed else 1.0)])
            why = "another process computed" if number in disturbed else ""
            state = TrialState.COMPLETE
            return Trial(number, {}, "proof", state, measurement=measured, disturbance=why)

        known = Known([run(100.0) for _ in range(3)])
        self.ran = count()

        def affordable(sides):
            return has_room and len(sides) > 2  # pairs once more, but none beyond the first look

        return prove(run, 100.0, 50.0, Objective.THROUGHPUT, affordable, "", known)

    def test_their_pair_is_run_again(self):
        proof = self.proof({1, 4})
        assert proof.speedup.pairs == LOOKS[0]
        assert proof.speedup.ratio == pytest.approx(2.0)
        assert [trial.number for trial in proof.disturbed] == [0, 1, 4, 5]
        assert len(proof.base) == len(proof.head) == LOOKS[0]

    def test_but_counts_where_the_budget_ends(self):
        proof = self.proof({1, 4}, has_room=False)
        assert (proof.speedup.pairs, proof.disturbed) == (LOOKS[0], [])
        assert next(self.ran) == 2 * LOOKS[0]

    def test_but_not_for_ever(self):
        proof = self.proof(set(range(1000)))
        assert len(proof.disturbed) == 2 * MAX_REPEATED
        assert proof.speedup.pairs == LOOKS[0]

    def test_nor_where_most_runs_so_far_were_disturbed(self):
        noise = simulation.Neighbour(random.Random(1), 1000.0, 1.5, 0.999, recognised=1.0)
        evaluator = SimulatedEvaluator(multiplied({"knob": 3.0}), noise=noise, baselines=3)
        assert all(trial.disturbance for trial in evaluator.trials)
        proof = prove_point(evaluator, TUNED, Objective.THROUGHPUT)
        assert proof.disturbed == []
        assert is_faster(proof.speedup)

    def test_a_disturbed_earlier_run_says_nothing(self):
        evaluator = SimulatedEvaluator(multiplied({"knob": 2.0}), baselines=3)
        evaluator.trials[1] = replace(
            evaluator.trials[1],
            measurement=simulation.measurement([900.0]),
            disturbance="another process computed",
        )
        proof = prove_point(evaluator, TUNED, Objective.THROUGHPUT)
        assert proof.speedup.pairs == LOOKS[0]
        assert is_faster(proof.speedup)


def test_on_a_quiet_machine_nothing_is_delayed():
    noise = simulation.gaussian(random.Random(1), 0.002)
    quiet = SimulatedEvaluator(multiplied({}), noise=noise, baselines=3)
    delay = Delay("")
    assert [delay.next_s(quiet.trials) for _ in range(5)] == [0.0] * 5


def test_a_restless_one_delays_by_chance():
    neighbour = simulation.Neighbour(random.Random(1), 30.0, 2.0)
    restless = SimulatedEvaluator(multiplied({}), noise=neighbour, baselines=8)
    assert Delay("a").next_s(restless.trials) == 0.0  # it would move all runs of a proof alike
    trials = [*restless.trials, replace(restless.trials[-1], phase="proof")]
    drawn = [Delay("a").next_s(trials) for _ in range(2)]
    assert drawn[0] == drawn[1]  # the seed decides
    delay = Delay("b")
    many = [delay.next_s(trials) for _ in range(100)]
    assert 0 <= min(many) < 1 and 5 < max(many) <= LONGEST_DELAY_S
