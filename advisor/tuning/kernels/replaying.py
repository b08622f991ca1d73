"""A search on a space that was brute-forced before: no GPU, and the same costs each time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from gpuadvisor.domain.kernel_records import WITHIN, Evaluation, Record, Replay, Replayed
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.kernels.point_search import PointSearch
from gpuadvisor.tuners.kernels.points import Points
from gpuadvisor.tuners.kernels.search_score import KnownSpace, median_or_none
from gpuadvisor.tuners.space import Parameter, Point
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.kernels.evaluator import InTurn, PointEvaluator


def replay(
    record: Record,
    strategies: Sequence[str],
    seeds: Sequence[int],
    budget: int,
    cancelled: Callable[[], bool] = lambda: False,
    on_search: Callable[[str, int], None] = lambda strategy, seed: None,
    capacity: int = 1,
) -> Replay:
    """Let each strategy search a recorded space once a seed; UsageError where nothing is valid.

    With a `capacity` above 1 so many points are on their way at once, as where they are compiled
    ahead: a strategy then proposes before it knows what came of the ones before.
    """
    if not any(evaluation.time_ms for evaluation in record.evaluations):
        raise UsageError("the file holds no point that could be timed: there is nothing to search")
    space = KnownSpace([_cost(each) for each in record.evaluations])
    parameters = [Parameter(name, values) for name, values in record.parameters.items()]
    points = Points(parameters, [tuple(e.point.values()) for e in record.evaluations])
    replayed = []
    for strategy in strategies:
        searches, best, cpu_s = [], None, 0.0
        for seed in seeds:
            if cancelled():
                break
            on_search(strategy, seed)
            evaluator = _evaluator(record, points, budget, cancelled, capacity)
            began_s = time.process_time()
            PointSearch(evaluator, points, seed, strategy).run()
            cpu_s += time.process_time() - began_s
            searches.append(tuple(_cost(each) for each in evaluator.evaluations))
            for each in evaluator.evaluations:
                if best is None or _cost(each) < _cost(best):
                    best = each
        if searches and best is not None:
            replayed.append(_judged(strategy, space, searches, best, cpu_s))
    exact = tuple(space.random_evaluations_within(share) for share in WITHIN)
    return Replay(
        record.kernel,
        record.device,
        space.points,
        len(space.valid),
        space.best,
        space.median,
        exact,
        tuple(replayed),
        budget,
    )


def _evaluator(
    record: Record, points: Points, budget: int, cancelled: Callable[[], bool], capacity: int
) -> PointEvaluator:
    def measure(point: Point, give_up_at: float | None) -> Evaluation:
        row = points.find(point)
        assert row is not None
        return record.evaluations[row]

    return PointEvaluator(InTurn(measure, capacity), BudgetLimit(trials=budget), cancelled)


def _judged(
    strategy: str,
    space: KnownSpace,
    searches: Sequence[tuple[float, ...]],
    best: Evaluation,
    cpu_s: float,
) -> Replayed:
    counts = [[space.evaluations_within(each, share) for each in searches] for share in WITHIN]
    return Replayed(
        strategy,
        tuple(searches),
        space.score(searches),
        tuple(median_or_none(each) for each in counts),
        tuple(sum(count is not None for count in each) / len(each) for each in counts),
        1e3 * cpu_s / max(1, sum(map(len, searches))),
        best,
    )


def _cost(evaluation: Evaluation) -> float:
    usable = evaluation.state in (TrialState.COMPLETE, TrialState.PRUNED)
    return evaluation.time_ms if usable and evaluation.time_ms else math.inf
