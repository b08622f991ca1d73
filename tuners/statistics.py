"""Ratios of runs with intervals that hold also when one looks at them more than once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuadvisor.domain.study import Speedup, Trial

LOOKS = (4, 6, 10, 16)
"""Pairs of runs after which the interval is looked at."""
ERROR = 0.01
"""Chance, over all looks together, that the interval misses the true ratio. It is split evenly
(Bonferroni), so each look uses a wider interval than 99 % alone would need."""

LEAST_UNCERTAINTY = 0.003
"""Relative difference that two runs of the same settings show on a quiet GPU (0.2 to 0.8 %)."""


def paired_ratio(costs: Sequence[tuple[float, float]], looks: int = len(LOOKS)) -> Speedup:
    """Return the mean ratio of the first cost over the second with its 99 % interval.

    `costs` are pairs of adjacent fresh processes, so that slow drift of the machine cancels. The
    interval is Student's t on the logarithms: a bootstrap of so few pairs errs in 3 to 4 % of
    cases instead of 1 %, and pooled steps of a process are not independent. Raises ValueError
    for fewer than two pairs.
    """
    from scipy.special import stdtrit

    logs = [math.log(first / second) for first, second in costs]
    count = len(logs)
    if count < 2:
        raise ValueError("an interval needs two pairs of runs")
    mean = math.fsum(logs) / count
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in logs) / (count - 1))
    quantile = float(stdtrit(count - 1, 1 - ERROR / looks / 2))
    half = quantile * deviation / math.sqrt(count)
    return Speedup(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


def uncertainty(*trials: Trial | None) -> float:
    """Return the relative standard error of a ratio of single runs, for want of repetitions.

    Each run counts with what its windows differ by, but with `LEAST_UNCERTAINTY` at least: runs
    differ also where the windows of one run agree.
    """
    squares = 0.0
    for trial in trials:
        within = trial.measurement.uncertainty if trial and trial.measurement else 0.0
        squares += max(LEAST_UNCERTAINTY, within) ** 2
    return math.sqrt(squares)
