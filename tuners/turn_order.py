"""When the sides of a comparison have their turns: in an order and after delays by chance, so that
nothing else that comes and goes on a machine is in step with one of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from gpuadvisor.domain.study import Trial
from gpuadvisor.tuners.statistics import LOOKS, Spread, pooled

LONGEST_DELAY_S = 10.0
"""Most by which a run's measurement is delayed. In simulated studies beside jobs of periods from
4 s to 5 min, whose runs' starts took different time on both sides, up to 5 in 100 claimed a gain
without, and 0.7 with 6 s at a period of 15 s (`benchmarks/false_claims.py`). With 8 s 11 of 1,500
did at a period of 20 s, with 10 s 4."""
RESTLESS = 0.01
"""Relative spread of runs of one side from which measurements are delayed: on a quiet GPU they
differ by less, and nothing needs to be waited for."""


def orders(seed: str) -> Iterator[bool]:
    """Yield for each pair in turn whether the base comes first, by chance.

    In a fixed order a second job that comes and goes in step with it passes for a gain: with ABBA
    one of a period of four runs did in 21 to 26 of 100 simulated studies. Only equal orders until
    the first look are drawn again: what they found could be the order's.
    """
    generator = random.Random(f"order of pairs: {seed}")
    first = [True] * LOOKS[0]
    while len(set(first)) == 1:
        first = [generator.random() < 0.5 for _ in first]
    yield from first
    while True:
        yield generator.random() < 0.5


class Delay:
    """Draws how much later than usual a run of a proof is to be measured.

    A job that comes and goes slows down the start of a run while it works. So runs come to be
    measured in step with it, and in another step where the other side takes longer to start: that
    is a difference of the sides which no order of runs removes. A delay by chance does.
    """

    def __init__(self, seed: str) -> None:
        self._generator = random.Random(f"delays: {seed}")
        self._seen = 0
        self._shortest_s = LONGEST_DELAY_S
        self._sides: dict[tuple[int, frozenset[tuple[str, object]]], Spread] = {}

    def next_s(self, trials: Sequence[Trial]) -> float:
        """Return the next delay, from all runs of the study so far; 0 on a quiet machine.

        The first run of a proof has none: it would move all that follow by as much, and what
        another job does when they begin is by chance already.
        """
        if trials and trials[-1].phase != "proof":
            return 0.0
        longest_s = self._longest_s(trials)
        return self._generator.uniform(0, longest_s) if longest_s else 0.0

    def mean_s(self, trials: Sequence[Trial]) -> float:
        """Return how long the next delays will be on average, from all runs so far."""
        return self._longest_s(trials) / 2

    def _longest_s(self, trials: Sequence[Trial]) -> float:
        """Return how long the next delay may be; 0 on a quiet machine."""
        for trial in trials[self._seen :]:
            if trial.measurement is not None and trial.phase in ("baseline", "proof"):
                side = trial.gpu, frozenset(trial.settings.items())
                self._sides.setdefault(side, Spread()).add(trial.measurement.mean_step_ms)
                self._shortest_s = min(self._shortest_s, trial.wall_s)
        self._seen = len(trials)
        if pooled(self._sides.values()) < RESTLESS:
            return 0.0
        return self._shortest_s
