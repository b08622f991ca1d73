"""Searches over feasible points, on spaces whose best is known."""

import math
from itertools import combinations
from statistics import median

import pytest

from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.kernels.point_search import BRUTE_FORCE, PointSearch
from gpuadvisor.tuners.kernels.points import Points
from gpuadvisor.tuners.kernels.search_score import KnownSpace
from gpuadvisor.tuners.space import Parameter, Space
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.kernels.evaluator import InTurn, PointEvaluator

X, Y = Parameter("x", tuple(range(16, 1025, 16)), 16), Parameter("y", (1, 2, 4, 8, 16), 1)
MODE = Parameter("mode", ("plain", "vector"), "plain")


def too_many_threads(point):
    return "too many threads" if point["x"] * point["y"] > 1024 else None


POINTS = Points.of(Space((X, Y, MODE), (too_many_threads,)))


def time_ms(point):
    """Best at 128 x 4 with vectors; no multiple of the warp is slower, large blocks fail."""
    if point["x"] > 960:
        return None
    away = (math.log2(point["x"] / 128) ** 2 + math.log2(point["y"] / 4) ** 2) / 4
    return 1 + away + 0.3 * (point["x"] % 32 > 0) + 0.2 * (point["mode"] == "plain")


def evaluator(budget, capacity=1):
    def measure(point, give_up_at):
        time = time_ms(point)
        state = TrialState.CRASHED if time is None else TrialState.COMPLETE
        return Evaluation(dict(point), state, "", recorded_ms=time)

    return PointEvaluator(InTurn(measure, capacity), BudgetLimit(trials=budget))


def test_points_are_the_feasible_ones_and_are_found_again():
    assert (
        len(POINTS) == sum(x * y <= 1024 for x in X.values for y in Y.values) * 2 > BRUTE_FORCE - 80
    )
    assert all(POINTS.find(POINTS.point(row)) == row for row in range(0, len(POINTS), 7))
    assert POINTS.find({"x": 1024, "y": 2, "mode": "plain"}) is None


@pytest.mark.parametrize("strategy, budget", [("model", 30), ("optuna", 90)])
def test_the_best_is_found_in_few_evaluations_and_none_is_repeated(strategy, budget):
    made = evaluator(budget)
    best = PointSearch(made, POINTS, 0, strategy).run()
    assert best.settings == {"x": 128, "y": 4, "mode": "vector"}
    visited = [tuple(trial.settings.values()) for trial in made.trials]
    assert len(set(visited)) == len(visited) == budget


@pytest.mark.parametrize("capacity", [1, 5])
def test_optuna_comes_to_the_end_of_a_space(capacity):
    few = Points(POINTS.parameters, [tuple(POINTS.point(row).values()) for row in range(40)])
    made = evaluator(1000, capacity)
    PointSearch(made, few, 0, "optuna").run()
    assert len(made.trials) == len({tuple(each.settings.values()) for each in made.trials}) == 40


def test_the_model_proposes_other_points_while_some_are_on_their_way():
    made = evaluator(40, capacity=5)
    best = PointSearch(made, POINTS, 0, "model").run()
    assert best.settings == {"x": 128, "y": 4, "mode": "vector"}
    visited = [tuple(trial.settings.values()) for trial in made.trials]
    assert len(set(visited)) == len(visited) == 40


def nearest_two(strategy, seed):
    """The distance of the two nearest of the first ten points."""
    made = evaluator(10)
    PointSearch(made, POINTS, seed, strategy).run()
    features = POINTS.features[[POINTS.find(trial.settings) for trial in made.trials]]
    return min(math.dist(one, other) for one, other in combinations(features, 2))


def test_the_first_points_of_the_model_lie_away_from_each_other():
    seeds = range(20)
    apart = median(nearest_two("model", seed) for seed in seeds)
    assert apart > 1.5 * median(nearest_two("random", seed) for seed in seeds)


@pytest.mark.parametrize(
    "rule, said",
    [
        ({"patience": 12}, "no progress in 12 evaluations"),
        ({"enough": lambda trial: trial.gain > 1 / 1.2}, "good enough"),
        ({}, ""),
    ],
)
def test_a_search_ends_where_a_rule_says_so(rule, said):
    made = evaluator(60)
    search = PointSearch(made, POINTS, 0, "model", **rule)
    search.run()
    assert search.ended == said
    assert (len(made.trials) == 60) is (said == "")


def test_a_small_space_is_evaluated_whole():
    made = evaluator(1000)
    best = PointSearch(made, POINTS).run(first=[5])
    assert len(made.trials) == len(POINTS)
    assert made.trials[0].settings == POINTS.point(5)
    assert time_ms(best.settings) == min(
        filter(None, map(time_ms, map(POINTS.point, range(len(POINTS)))))
    )


def test_what_is_known_is_not_evaluated_again_and_counts():
    first = evaluator(13)
    PointSearch(first, POINTS, 0, "model").run()
    known = [(POINTS.find(trial.settings), trial) for trial in first.trials]
    second = evaluator(13)
    PointSearch(second, POINTS, 0, "model").run(known=known)
    assert not {tuple(t.settings.values()) for t in first.trials} & {
        tuple(t.settings.values()) for t in second.trials
    }


def test_a_space_where_everything_fails_has_no_best():
    def measure(point, give_up_at):
        return Evaluation(dict(point), TrialState.CRASHED, "launch failed")

    made = PointEvaluator(InTurn(measure), BudgetLimit(trials=15))
    assert PointSearch(made, POINTS, 0, "model").run() is None
    assert len(made.trials) == 15


def test_scores_tell_random_from_good():
    space = KnownSpace([1 + number / 100 for number in range(999)] + [math.inf])
    import random

    draws = []
    for seed in range(60):
        order = list(range(999))
        random.Random(seed).shuffle(order)
        draws.append([1 + number / 100 for number in order])
    assert space.score(draws) == pytest.approx(0, abs=0.15)
    assert space.score([[1.0]]) == pytest.approx(1)
    assert space.random_evaluations_within(0.001) == 500
    assert space.compared == (2, 38)
    # From a median that is far away, a few draws go most of the way to the best.
    assert KnownSpace([1 + number / 2 for number in range(999)] + [1e6] * 1500).compared == (2, 5)
    assert space.evaluations_within([math.inf, 1.5, 1.0], 0.01) == 3
