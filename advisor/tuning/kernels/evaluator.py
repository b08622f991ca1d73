"""Points of a kernel's space measured within a budget, and counted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.study import Trial
from gpuadvisor.tuners.space import Point
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit

Measure = Callable[[Point, float | None], Evaluation]
"""Evaluates a point; of one whose time exceeds the number times the default's it need not know by
how much."""


class Workers(Protocol):
    """Who evaluates points: `gpuadvisor.tuning.kernels.pipeline`, or `InTurn`."""

    give_up_at: float | None
    """Time of the best so far, in the default's: what is clearly slower need not be timed well."""

    @property
    def capacity(self) -> int:
        """Points that they take at once."""
        ...

    def start(self, point: Point) -> None:
        """Take a point."""
        ...

    def finished(self) -> Evaluation | None:
        """Wait for the next that is evaluated; None once the user has stopped."""
        ...


class InTurn:
    """One point after the other, in the order in which they come."""

    def __init__(self, measure: Measure, capacity: int = 1) -> None:
        """Take more than one point at once to know less of the ones before, as a pipeline does."""
        self._measure = measure
        self._waiting: deque[Point] = deque()
        self.capacity = capacity
        self.give_up_at: float | None = None

    def start(self, point: Point) -> None:
        self._waiting.append(point)

    def finished(self) -> Evaluation | None:
        return self._measure(self._waiting.popleft(), self.give_up_at)


class PointEvaluator:
    """Makes trials of evaluations, and says when the budget is spent; a `QueuedEvaluator`."""

    def __init__(
        self,
        workers: Workers,
        budget: BudgetLimit,
        cancelled: Callable[[], bool] = lambda: False,
        on_evaluation: Callable[[Evaluation], None] = lambda evaluation: None,
        spent: int = 0,
    ) -> None:
        """Count from now on; `spent` evaluations were made before."""
        self._workers = workers
        self._budget = budget
        self._cancelled = cancelled
        self._on_evaluation = on_evaluation
        self._began_s = time.monotonic()
        self._spent = spent
        self._best = 0.0
        self.evaluations: list[Evaluation] = []
        self.trials: list[Trial] = []
        self.waiting_s = 0.0
        """Time in which points were worked on: the rest of the search's is overhead."""

    @property
    def capacity(self) -> int:
        return self._workers.capacity

    def affordable(self, points: int) -> bool:
        if self._cancelled():
            return False
        if self._budget.trials is not None:
            return len(self.trials) + self._spent + points <= self._budget.trials
        if self._budget.seconds is None:
            return True
        return time.monotonic() - self._began_s < self._budget.seconds

    def start(self, point: Point) -> None:
        self._workers.start(point)

    def finished(self) -> Trial | None:
        began_s = time.monotonic()
        evaluation = self._workers.finished()
        self.waiting_s += time.monotonic() - began_s
        if evaluation is None:
            return None
        if (evaluation.gain or 0.0) > self._best:
            self._best = evaluation.gain or 0.0
            self._workers.give_up_at = 1 / self._best
        self.evaluations.append(evaluation)
        self._on_evaluation(evaluation)
        trial = trial_of(evaluation, len(self.trials))
        self.trials.append(trial)
        return trial


def trial_of(evaluation: Evaluation, number: int) -> Trial:
    """Return an evaluation as the search knows it."""
    return Trial(
        number,
        evaluation.point,
        "search",
        evaluation.state,
        evaluation.reason,
        gain=evaluation.gain,
        wall_s=(evaluation.compile_ms + evaluation.check_ms + evaluation.timing_ms) / 1e3,
    )
