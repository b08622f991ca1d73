"""How far rounding carries a model that is given its own outputs, as a simulation's is.

A life ends such a loop early. Whether its errors add up shows in the calls that were lived, and how
far they would come follows from that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from statistics import fmean

from gpuadvisor.domain.rehearsal import Call, Life, LoopKind
from gpuadvisor.tuners.rehearsal.outputs import outputs_apart

LEAST_CALLS = 8
"""Calls in a row that show whether a difference grows: of fewer, one decides."""
UNTOLD_CALLS = 1000
"""Calls of a loop that does not say how many it makes, as in a simulation until something happens.
"""
ROUNDING = 2.0**-24
"""Relative rounding error of float32: below it no difference says how it grows."""


def rollout_apart(first: Life, second: Life, plan: Life) -> tuple[float, str] | None:
    """Return how far outputs would be apart at the end of the longest loop that was ended early,
    and that in words; None where no model of both lives is given its own outputs in one.

    A difference that grows with the n-th call as n to the power p is (2^(p+1) - 1) times as large
    in the second half of the calls as in the first.
    """
    cut = [loop for loop in first.loops if loop.shortened and loop.kind is LoopKind.STEPS]
    times = [(loop.planned or UNTOLD_CALLS) / max(1, loop.done) for loop in cut]
    if not cut:
        return None
    worst = None
    for run in _runs(first, second, plan):
        middle = len(run) // 2
        before, after = (max(ROUNDING, fmean(part)) for part in (run[:middle], run[middle:]))
        power = math.log2(1 + after / before) - 1
        at_end = after * max(1.0, *times) ** max(0.0, power)
        said = f"after {len(run):,} calls on its own outputs a model's differ by {after:.2%},"
        worst = max(worst or (0.0, ""), (at_end, f"{said} and the script makes more"))
    return worst


def _runs(first: Life, second: Life, plan: Life) -> Iterator[list[float]]:
    """Yield the relative differences of calls without gradients that follow each other and are
    given what a call before put out: their inputs differ where that of the root's first does not.
    """
    lives = [[call for call in life.calls if not call.grad] for life in (first, second, plan)]
    for root in {call.root for call in lives[0]}:
        sides = list(zip(*([c for c in calls if c.root == root] for calls in lives), strict=False))
        if not sides or sides[0][0].input != sides[0][2].input:
            continue  # a second model, which is given the outputs of a first
        for is_fed, run in groupby(sides, lambda calls: _is_fed(*calls)):
            found = [outputs_apart([ours], [theirs]) for ours, _, theirs in run] if is_fed else []
            apart = [each[0] for each in found if each is not None and math.isfinite(each[0])]
            if len(apart) >= LEAST_CALLS:
                yield apart


def _is_fed(ours: Call, again: Call, theirs: Call) -> bool:
    """Say whether a call is given what depends on what the plan rounds."""
    return ours.input == again.input != theirs.input and ours.rows_in == theirs.rows_in
