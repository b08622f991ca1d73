"""The search over a kernel's points: all of them, or those that a model finds promising.

Every proposal is a feasible point that was not evaluated yet: nothing is measured twice, and
nothing is proposed that a restriction forbids. Failed points steer the model away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.kernels.gaussian_process import GaussianProcess
from gpuadvisor.tuners.kernels.points import Floats, Points
from gpuadvisor.tuners.kernels.tpe_search import TpeSearch
from gpuadvisor.tuners.space import QueuedEvaluator

BRUTE_FORCE = 300
"""Points up to which all are evaluated: a search needs about a hundred anyway (replays of published
spaces), and the importance of parameters is exact then."""
_FIRST = 10
"""Points before there is a model: away from each other, so that it sees all of the space."""
_DRAWN = 20
"""Points drawn by chance, of which the one farthest from all before is the next of the first: the
best candidate of Mitchell (Spectrally optimal sampling for distribution ray tracing, 1991). With
more of them it is the corners of the space that are looked at first."""
_REFIT_SHARE, _REFIT_LEAST = 10, 4
"""The model's lengths are found anew after a tenth of the evaluations, but at least four."""
_CANDIDATES = 3000
"""Points that the model looks at for a proposal: some by chance, and all neighbours of the best."""
_NEAR = 2
"""Parameters in which a neighbour may differ."""


PROGRESS = 0.01
"""Gain over the best so far that counts as progress: what is less is seldom worth a change."""


class Strategy(Protocol):
    """Proposes one point after the other, and is told what came of each.

    It may be asked for more before it was told of all that it proposed.
    """

    def propose(self) -> int | None:
        """Return the row of a point that was neither proposed nor told of; None for none left."""
        ...

    def tell(self, row: int, cost: float | None) -> None:
        """Take in the logarithm of a point's cost; None where it failed."""
        ...


@dataclass
class InOrder:
    """All points in a given order: brute force, or a random search."""

    rows: Sequence[int]
    _place: int = 0
    _told: set[int] = field(default_factory=set)

    @classmethod
    def shuffled(cls, points: Points, seed: int) -> InOrder:
        return cls([int(n) for n in np.random.default_rng(seed).permutation(len(points))])

    def propose(self) -> int | None:
        while self._place < len(self.rows):
            row = self.rows[self._place]
            self._place += 1
            if row not in self._told:
                return row
        return None

    def tell(self, row: int, cost: float | None) -> None:
        self._told.add(row)


class ModelSearch:
    """Bayesian optimization over the rows: the largest expected improvement is next."""

    def __init__(self, points: Points, seed: int) -> None:
        self._points = points
        self._random = np.random.default_rng(seed)
        self._open = np.ones(len(points), bool)
        self._order = iter(self._random.permutation(len(points)))
        self._rows: list[int] = []
        self._costs: list[float] = []
        """Logarithms of costs; NaN for failures."""
        self._awaited: list[int] = []
        """Rows that were proposed, and not told of yet."""
        self._model = GaussianProcess(points.features.shape[1])
        self._fitted_at = 0

    def tell(self, row: int, cost: float | None) -> None:
        self._open[row] = False
        if row in self._awaited:
            self._awaited.remove(row)
        self._rows.append(row)
        self._costs.append(math.nan if cost is None else cost)

    def propose(self) -> int | None:
        if not self._open.any():
            return None
        row = self._promising()
        self._open[row] = False
        self._awaited.append(row)
        return row

    def _promising(self) -> int:
        costs = np.array(self._costs)
        taken = [*self._rows, *self._awaited]
        if taken and len(taken) < _FIRST:
            return self._farthest(taken)
        if not taken or not np.isfinite(costs).any():
            return next(int(row) for row in self._order if self._open[row])
        values = _levelled(costs)
        known = self._points.features[self._rows]
        due = max(_REFIT_LEAST, len(costs) // _REFIT_SHARE)
        if not self._fitted_at or len(costs) >= self._fitted_at + due:
            self._model.fit(known, values)
            self._fitted_at = len(costs)
        best = values.min()
        if self._awaited:
            # Until it is known what they take, they take what the model expects: the next proposal
            # lies elsewhere (Ginsbourger et al., Kriging is well-suited to parallelize
            # optimization, 2010).
            awaited = self._points.features[self._awaited]
            expected, _ = self._model.predict(known, values, awaited)
            known, values = np.concatenate([known, awaited]), np.concatenate([values, expected])
        rows = self._candidates(int(np.nanargmin(costs)))
        mean, deviation = self._model.predict(known, values, self._points.features[rows])
        return int(rows[np.argmax(_expected_improvement(best, mean, deviation))])

    def _farthest(self, taken: Sequence[int]) -> int:
        """Return the row, of some drawn by chance, that is farthest from the nearest taken one."""
        rows = np.flatnonzero(self._open)
        if len(rows) > _DRAWN:
            rows = self._random.choice(rows, _DRAWN, replace=False)
        features = self._points.features
        squares = (features[rows][:, None] - features[list(taken)][None]) ** 2
        return int(rows[np.argmax(squares.sum(2).min(1))])

    def _candidates(self, best: int) -> NDArray[np.intp]:
        rows = np.flatnonzero(self._open)
        if len(rows) <= _CANDIDATES:
            return rows
        near = self._points.neighbours(self._rows[best], _NEAR)
        drawn = self._random.choice(rows, _CANDIDATES, replace=False)
        return np.union1d(drawn, near[self._open[near]])


def _levelled(costs: Floats) -> Floats:
    """Return costs with mean 0 and deviation 1, of which all that are bad count as equally bad.

    A model that must also explain by how much the worst differ knows less of the best. Failures are
    as bad as the worst.
    """
    known = costs[np.isfinite(costs)]
    middle = float(np.median(known))
    most = 2 * middle - float(known.min())
    levelled = np.minimum(np.where(np.isfinite(costs), costs, np.inf), most)
    found: Floats = (levelled - levelled.mean()) / (levelled.std() + 1e-9)
    return found


def _expected_improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """Return by how much each point may be expected to fall below the best (Jones et al., 1998)."""
    away = (best - mean) / deviation
    density = np.exp(-0.5 * away * away) / math.sqrt(2 * math.pi)
    found: Floats = deviation * (away * ndtr(away) + density)
    return found


STRATEGIES: dict[str, Callable[[Points, int], Strategy]] = {
    "model": ModelSearch,
    "optuna": TpeSearch,
    "random": InOrder.shuffled,
    "all": InOrder.shuffled,
}
"""Strategies by name, as `--strategy` takes them: `all` knows no patience and no usual budget."""


@dataclass
class PointSearch:
    """A search in progress, on an evaluator that counts trials and knows the budget."""

    evaluator: QueuedEvaluator
    points: Points
    seed: int = 0
    strategy: str | None = None
    """Name of the strategy; None for all points of a small space, else the model."""
    enough: Callable[[Trial], bool] = lambda trial: False
    """Whether a trial is good enough to end the search."""
    patience: int | None = None
    """Evaluations in a row that may bring less than `PROGRESS` before the search ends; None for
    any number, as for strategies other than the model."""
    ended: str = field(default="", init=False)
    """Why the search ended before the budget did and before all points were known; or empty."""

    def run(
        self, first: Sequence[int] = (), known: Sequence[tuple[int, Trial]] = ()
    ) -> Trial | None:
        """Evaluate until the budget ends, all points are known, or a rule of this search says so.

        `first` are rows that are evaluated before others, `known` those that were earlier. Returns
        the best complete trial, or None where there is none.
        """
        small = len(self.points) <= BRUTE_FORCE
        name = self.strategy or ("random" if small else "model")
        course = _Course(STRATEGIES[name](self.points, self.seed), list(first))
        for known_row, trial in known:
            course.tell(known_row, trial)
        patience = self.patience if name == "model" else None
        flying = 0
        while True:
            self.ended = self.ended or self._why_enough(course, patience)
            while not self.ended and flying < self.evaluator.capacity:
                if not self.evaluator.affordable(flying + 1):
                    break
                row = course.next_row()
                if row is None:
                    break
                self.evaluator.start(self.points.point(row))
                flying += 1
            if not flying or (done := self.evaluator.finished()) is None:
                return course.best
            flying -= 1
            found = self.points.find(done.settings)
            assert found is not None
            course.tell(found, done)

    def _why_enough(self, course: _Course, patience: int | None) -> str:
        if course.best is not None and self.enough(course.best):
            return "good enough"
        if patience is not None and course.in_vain >= patience:
            return f"no progress in {course.in_vain} evaluations"
        return ""


class _Course:
    """What a search has found so far, and what is next."""

    def __init__(self, strategy: Strategy, waiting: list[int]) -> None:
        self._strategy = strategy
        self._waiting = waiting
        self._taken: set[int] = set()
        self.best: Trial | None = None
        self._milestone = 0.0
        self.in_vain = 0
        """Evaluations since the last that was better by `PROGRESS`."""

    def next_row(self) -> int | None:
        """Return a row that was not taken before; None where there is none left."""
        row: int | None = None
        while row is None or row in self._taken:
            row = self._waiting.pop(0) if self._waiting else self._strategy.propose()
            if row is None:
                return None
        self._taken.add(row)
        return row

    def tell(self, row: int, trial: Trial) -> None:
        self._taken.add(row)
        self._strategy.tell(row, None if trial.gain is None else -math.log(trial.gain))
        self.in_vain += 1
        if trial.state is not TrialState.COMPLETE or not trial.gain:
            return
        if self.best is None or trial.gain > (self.best.gain or 0.0):
            self.best = trial
        if trial.gain > self._milestone * (1 + PROGRESS):
            self._milestone, self.in_vain = trial.gain, 0
