"""Where the level of a series changed for good.

The series is looked at as it grew, value by value: a change that was found once stays, and what
comes after it is a series of its own. Each look tests the place that splits it best by permutation.
The statistic is that of Pettitt (1979), on ranks, so that single outliers, however large, are no
levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

ERROR = 0.001
"""Chance that one look finds a change where there is none."""
PERMUTATIONS = 9999
"""Orders that are tried: nine of them may split as well as the series itself, so that luck in
drawing them decides little."""
LEAST = 3
"""Values that make a level: two days may have had a visitor."""
UNLIKELY = 3.0
"""Standard deviations below which a split is not worth the permutations: a single place exceeds
them with a chance of 0.0027."""
SEED = 1


def change_points(values: Sequence[float], least_change: float = 0.0) -> list[int]:
    """Return the places in a series of positive values at which a new level begins, in order.

    Changes of medians by less than `least_change`, as a relative difference, are left alone. The
    same series has the same places, always, and a longer one has them, too. Fewer than seven values
    on each side seldom show a change, as too many orders of so few would split as well; beside
    twenty, five to six do.
    """
    found: list[int] = []
    start = 0
    for end in range(2 * LEAST, len(values) + 1):
        place = _change(values[start:end], math.log1p(least_change))
        if place is not None:
            start += place
            found.append(start)
    return found


def _change(values: Sequence[float], least: float) -> int | None:
    """Return the place where the level of a series changed; None where none is shown."""
    if len(values) < 2 * LEAST:
        return None
    import numpy as np
    from scipy.stats import rankdata

    ranks = rankdata(values) - (len(values) + 1) / 2
    (splits,) = _splits(ranks[None, :])
    place = LEAST + int(np.argmax(splits))
    size = math.log(median(values[place:]) / median(values[:place]))
    if splits.max() < UNLIKELY or abs(size) <= least:
        return None
    tiled = np.tile(ranks, (PERMUTATIONS, 1))
    shuffled = np.random.default_rng(SEED).permuted(tiled, axis=1)
    as_good = int((_splits(shuffled).max(axis=1) >= splits.max() - 1e-9).sum())
    return place if (1 + as_good) / (1 + PERMUTATIONS) < ERROR else None


def _splits(ranks: np.ndarray) -> np.ndarray:
    """Return how well each place splits each row of ranks around zero, in standard deviations."""
    import numpy as np

    count = ranks.shape[1]
    places = np.arange(LEAST, count - LEAST + 1)
    sums = np.abs(np.cumsum(ranks, axis=1)[:, places - 1])
    found: np.ndarray = sums / np.sqrt(places * (count - places) * (count + 1) / 12)
    return found
