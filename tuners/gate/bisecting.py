"""Which of several changes made it worse, where each can be compared with a good one."""

from __future__ import annotations

import math
from collections.abc import Callable

from gpuadvisor.domain.gate import GateVerdict


def first_bad(count: int, judge: Callable[[int], GateVerdict]) -> range:
    """Return the places among which the first bad change is: one, or those between that none tells.

    The last of `count` changes is bad, as was shown before. `judge` compares the state after a
    change with the good one before all of them; where that is inconclusive, a neighbour is tried.
    """
    good, bad, untold = -1, count - 1, set[int]()
    while True:
        middle = (good + bad) / 2
        left = [place for place in range(good + 1, bad) if place not in untold]
        if not left:
            return range(good + 1, bad + 1)
        place = min(left, key=lambda each: abs(each - middle))
        verdict = judge(place)
        if verdict is GateVerdict.FAIL:
            bad = place
        elif verdict is GateVerdict.PASS:
            good = place
        else:
            untold.add(place)


def steps(count: int) -> int:
    """Return how many comparisons that takes at most if each tells."""
    return math.ceil(math.log2(count)) if count > 1 else 0
