"""Points of a kernel's space measured one by one, within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.study import Trial
from gpuadvisor.tuners.space import Point
from gpuadvisor.tuning.budget import BudgetLimit

Measure = Callable[[Point, float | None], Evaluation]
"""Evaluates a point; of one whose time exceeds the number times the default's it need not know by
how much."""


class PointEvaluator:
    """Makes trials of evaluations, and says when the budget is spent; an `Evaluator`."""

    parallel = 1

    def __init__(
        self,
        measure: Measure,
        budget: BudgetLimit,
        cancelled: Callable[[], bool] = lambda: False,
        on_evaluation: Callable[[Evaluation], None] = lambda evaluation: None,
        spent: int = 0,
    ) -> None:
        """Count from now on; `spent` evaluations were made before."""
        self._measure = measure
        self._budget = budget
        self._cancelled = cancelled
        self._on_evaluation = on_evaluation
        self._began_s = time.monotonic()
        self._spent = spent
        self.evaluations: list[Evaluation] = []
        self.trials: list[Trial] = []
        self.measuring_s = 0.0
        """Time within `measure`: the rest of the search's is overhead."""

    def measure(
        self,
        points: Sequence[Point],
        phase: str,
        slower_than: float | None = None,
        turned: Point | None = None,
    ) -> list[Trial]:
        """Evaluate points one after the other; `turned` is left aside: each is timed in turns with
        the default anyway.
        """
        return [self._trial(point, phase, slower_than) for point in points]

    def affordable(self, batch: Sequence[Point]) -> bool:
        """Say whether the budget has room for one more evaluation of each."""
        if self._cancelled():
            return False
        if self._budget.trials is not None:
            return len(self.trials) + self._spent + len(batch) <= self._budget.trials
        return time.monotonic() - self._began_s < (self._budget.seconds or 0.0)

    def _trial(self, point: Point, phase: str, floor: float | None) -> Trial:
        began_s = time.monotonic()
        evaluation = self._measure(point, None if floor is None else 1 / floor)
        took_s = time.monotonic() - began_s
        self.measuring_s += took_s
        self.evaluations.append(evaluation)
        self._on_evaluation(evaluation)
        trial = trial_of(evaluation, len(self.trials), phase, took_s)
        self.trials.append(trial)
        return trial


def trial_of(
    evaluation: Evaluation, number: int, phase: str = "search", wall_s: float = 0.0
) -> Trial:
    """Return an evaluation as the search knows it."""
    return Trial(
        number,
        evaluation.point,
        phase,
        evaluation.state,
        evaluation.reason,
        gain=evaluation.gain,
        wall_s=wall_s,
    )
