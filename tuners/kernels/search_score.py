"""How good a search is, on a space of which every point was evaluated.

The performance score is that of Willemsen et al. (doi 10.1016/j.future.2024.05.021) over
evaluations in place of time: 0 is a random search, 1 the optimum at once, below 0 is worse than
random. A random search itself scores -0.02 to -0.12 for the rounding of ranks, so its score belongs
beside every other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from gpuadvisor.tuners.kernels.points import Floats

START, CUT_OFF = 0.01, 0.95
"""Shares of the way from the median to the optimum: curves are compared from where a random search
is expected to have the first to where it has the second (the methodology's defaults)."""


class KnownSpace:
    """The costs of all points of a space; infinite for those that fail."""

    def __init__(self, costs: Sequence[float]) -> None:
        """Take the cost of each point; ValueError where none is finite."""
        self.points = len(costs)
        self.valid = np.sort([cost for cost in costs if math.isfinite(cost)])
        """Finite costs, the best first."""
        if not len(self.valid):
            raise ValueError("no point has a cost")
        self.best = float(self.valid[0])
        self.median = float(np.median(self.valid))

    def evaluations_within(self, costs: Sequence[float], share: float) -> int | None:
        """Return the evaluations until a search was within a share of the best; None: never."""
        limit = self.best * (1 + share)
        return next((n for n, cost in enumerate(costs, 1) if cost <= limit), None)

    def random_evaluations_within(self, share: float) -> int:
        """Return the median number of draws without repetition until a point lies within a share of
        the best: exactly, failures among the draws.
        """
        good = int((self.valid <= self.best * (1 + share)).sum())
        missed = 1.0
        for drawn in range(self.points):
            missed *= max(0, self.points - good - drawn) / (self.points - drawn)
            if missed <= 0.5:
                return drawn + 1
        return self.points

    @property
    def compared(self) -> tuple[int, int]:
        """The first evaluation that the score compares, and the one after the last: few where the
        median is far from the best, as a random search has soon gone most of that way.
        """
        first = max(1, self._evaluations_to(START))
        return first, max(self._evaluations_to(CUT_OFF), first + 3)

    def score(self, searches: Sequence[Sequence[float]]) -> float:
        """Return the performance score of searches with different seeds: the costs of each in the
        order of evaluation.
        """
        counts = np.arange(*self.compared, dtype=np.int64)
        expected = self._random_curve(counts)
        reached = self.valid[np.round(self._mean_rank(searches, counts)).astype(int)]
        left = expected - self.best
        shares = np.where(left < 1e-9, 0.0, (expected - reached) / np.maximum(left, 1e-12))
        return float(shares.mean())

    def _evaluations_to(self, share: float) -> int:
        """Return the evaluations after which a random search is expected to be that near."""
        target = self.best + (self.median - self.best) * (1 - share)
        worse = int((self.valid > target).sum())
        return math.ceil(worse / (len(self.valid) + 1 - worse))

    def _random_curve(self, counts: NDArray[np.int64]) -> Floats:
        """Return the expected best of so many draws, smoothed over the rounding of ranks."""
        from scipy.interpolate import PchipInterpolator

        valid = len(self.valid)
        places = [min(valid - 1, round(n * (valid + 1) / (n + 1))) for n in counts.tolist()]
        worst_first = self.valid[::-1]
        curve: Floats = PchipInterpolator(counts, worst_first[places])(counts)
        return curve

    def _mean_rank(self, searches: Sequence[Sequence[float]], counts: NDArray[np.int64]) -> Floats:
        """Return the mean rank of the best so far after so many valid evaluations.

        The mean rank, as the baseline is an expected rank: against the median of values a random
        search would score up to 0.26.
        """
        ranks = []
        for search in searches:
            valid = [cost for cost in search if math.isfinite(cost)]
            if valid:
                rank = np.searchsorted(self.valid, np.minimum.accumulate(valid))
                ranks.append(rank[np.minimum(counts, len(rank)) - 1])
        found: Floats = np.mean(ranks, axis=0)
        return found


def median_or_none(counts: Sequence[int | None]) -> float | None:
    """Return the median, of which None stands for more than any number; None where it is that."""
    middle = median(math.inf if count is None else count for count in counts)
    return middle if math.isfinite(middle) else None
