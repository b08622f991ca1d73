"""The decision of a gate: what pairs of runs of two versions show of one figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean

from gpuadvisor.domain.gate import Difference, GateVerdict
from gpuadvisor.domain.study import InTurns
from gpuadvisor.tuners.statistics import BY_ORDER_ALONE, Pair, proven_ratio

LOOK_ERRORS: Mapping[int, float] = {
    3: 0.0001,
    4: 0.0003,
    6: 0.0003,
    8: 0.0008,
    10: 0.0015,
    12: 0.01,
    15: 0.018,
    20: 0.001,
    24: 0.001,
}
"""Pairs after which a gate looks, and the error that each look may use up where a version is worse
by just the tolerance. Looks share their pairs, and an interval is widened for the order of runs, so
that fewer gates than the sum are wrong (`benchmarks/gate_decision.py`). Something else works
beside one side in all of three pairs by chance once in 8: they decide only where runs hardly
differ."""
SURE_ERROR = 0.0005
"""Error of each look, 0.45 of 100 over all of them, by which it has to be sure that a version is
slower at all to fail, and not worse by `FAR` limits to pass. Where runs differ by much more than
tolerance and limit, as beside a second job that comes and goes, those let up to 0.9 of 100
unchanged versions fail by themselves, and 5 of 100 that are 5 % slower pass. Where runs differ by
less this costs next to nothing: 3 % are as far from no difference as 2 % at an error of 0.01
(counted in `benchmarks/gate_decision.py`)."""
FAR = 2.0
"""A version that is worse by so many limits, 6 %, is not to pass because runs differ much."""
LOOKS = tuple(LOOK_ERRORS)
PASS_ERRORS: Mapping[int, float] = {
    3: 0.005,
    4: 0.01,
    6: 0.01,
    8: 0.01,
    10: 0.02,
    12: 0.02,
    15: 0.03,
    20: 0.1,
    24: 0.2,
}
"""Pairs after which a gate looks, and the error that each look may use up by passing a version that
is worse by just the limit. Early looks are strict: what they let pass is never looked at again.
Only where runs differ so much that 15 pairs do not tell, it is better to say what is likely than
nothing."""

TOLERANCE = 0.01
"""Relative difference that is no regression: runs of one version differ by 0.2 to 0.8 % on a quiet
GPU, and what a new layout of the code moves is of that size."""
LIMIT = 0.03
"""Relative difference that a version must be shown to stay below to pass."""
LEAST_ADJUSTED = 6
"""Pairs from which times are adjusted for clocks: how they follow them is learnt from the pairs."""
SYSTEMATIC = 0.05
"""Chance by which clocks of equal sides are taken for different ones. Where a version makes the GPU
clock lower, that is part of what it costs. So are times of a side as it had started, and turned."""


@dataclass(frozen=True)
class Run:
    """What one run cost, and the SM clock meanwhile (any unit; None where it is not known)."""

    cost: float
    clock: float | None = None


@dataclass(frozen=True)
class RunPair:
    """Runs of both versions, one right after the other."""

    base: Run
    head: Run
    base_first: bool = True
    ratio: float | None = None
    """The head's cost over the base's where both took turns, and what each cost says nothing of
    that; None where they ran one after the other."""
    within: tuple[InTurns, InTurns] | None = None
    """What both sides took in turns within the process of the base, and within that of the head,
    after these had cost what they did; None where each process had one side only."""


@dataclass(frozen=True)
class Bounds:
    """What of a metric is no regression, and what must be ruled out, as relative differences."""

    tolerance: float = TOLERANCE
    limit: float = LIMIT
    error_share: float = 1.0
    """Part of the looks' errors that this metric may use up."""


ORDINARY = Bounds()


def compare(
    metric: str,
    pairs: Sequence[RunPair],
    known_base: Sequence[Run] = (),
    bounds: Bounds = ORDINARY,
    first_head: Run | None = None,
) -> Difference:
    """Say what so many pairs show of a metric; ValueError for fewer than two.

    `known_base` are earlier runs of the old version: they say how much its runs differ. With fewer
    than `BY_ORDER_ALONE` pairs, which follow one another, `first_head` has to lie above all runs of
    the old version, and nearer to those of the new one, for that to be worse: where a third of the
    processes is slow as a whole, all of these happen to be so in a third as many gates. Where all
    runs have a clock, the ratio is also looked at with times as they would have been at one clock,
    and the narrower interval counts, if the clocks of both versions were alike and both point
    the same way. Between two looks the error of the next one is used up.

    Where both sides were timed within each process, too, their ratio there counts, unless turning
    them is seen to change what they take.
    """
    plain, most = _judged(metric, pairs, known_base, bounds, 1.0, first_head)
    within = [pair.within for pair in pairs if pair.within is not None]
    if len(within) == len(pairs) and not _changes(pairs, within):
        turned = [
            replace(pair, ratio=ratio_within(*both))
            for pair, both in zip(pairs, within, strict=True)
        ]
        found, most = _judged(metric, turned, (), bounds, 1.0)
        return _shown(replace(found, unadjusted=plain.ratio, in_turns=True), most)
    share = clock_share(pairs)
    if not share:
        return _shown(plain, most)
    widened = _widening(pairs)
    adjusted, most_adjusted = _judged(
        metric,
        [
            replace(p, base=_at_one_clock(p.base, share), head=_at_one_clock(p.head, share))
            for p in pairs
        ],
        [_at_one_clock(run, share) for run in known_base],
        bounds,
        widened,
        first_head and _at_one_clock(first_head, share),
    )
    agree = (adjusted.ratio > 1) == (plain.ratio > 1) or adjusted.verdict is not GateVerdict.FAIL
    if not agree or adjusted.high / adjusted.low >= plain.high / plain.low:
        return _shown(plain, most)
    return _shown(replace(adjusted, unadjusted=plain.ratio, clock_share=share), most_adjusted)


def _shown(found: Difference, most: float) -> Difference:
    """Return what was found with the upper end that it was decided by, where it passes."""
    passes = found.verdict is GateVerdict.PASS
    return replace(found, high=min(found.high, most)) if passes else found


def ratio_within(base: InTurns, head: InTurns) -> float:
    """Return the head's time over the base's as both took turns in two processes.

    One had started as the base and one as the head, so that what a start leaves behind cancels.
    """
    return math.sqrt(base.head_ms / base.base_ms * head.head_ms / head.base_ms)


def chance_to_tell(found: Difference, pairs: int, share: float) -> float:
    """Return how likely a later look decides what so many pairs left open, if runs go on so.

    It is the chance at the best of the looks that are left: given what was measured, the mean of
    all pairs by then is normal around the mean so far. `share` is that of the looks' errors which
    the metric may use up.
    """
    from scipy.special import ndtr, stdtrit

    mean = math.log(found.ratio)
    now = float(stdtrit(pairs - 1, 1 - _at(LOOK_ERRORS, pairs) * share / 2))
    deviation = math.log(found.high / found.ratio) / now * math.sqrt(pairs)
    best = 0.0
    for look in (each for each in LOOKS if each > pairs):
        moves = deviation * math.sqrt(1 / pairs - 1 / look) or math.ulp(1.0)
        of_mean = deviation / math.sqrt(look)
        fails, passes, sure = (
            float(stdtrit(look - 1, 1 - error / 2)) * of_mean
            for error in (LOOK_ERRORS[look] * share, PASS_ERRORS[look], SURE_ERROR * share)
        )
        slower = max(math.log1p(found.tolerance) + fails, sure)
        near = min(math.log1p(found.limit) - passes, math.log1p(FAR * found.limit) - sure)
        worse, fine = ndtr((mean - slower) / moves), ndtr((near - mean) / moves)
        best = max(best, float(worse + fine))
    return best


def clock_share(pairs: Sequence[RunPair]) -> float:
    """Return how step times follow the SM clock: 1 for inversely, 0 for not at all or not known.

    It is the slope of the pairs' log ratios of times over those of clocks, between 0 and 1. 0 where
    the clocks of both versions differ on the whole.
    """
    clocks = _clock_differences(pairs)
    if clocks is None or len(pairs) < LEAST_ADJUSTED or _is_systematic(clocks):
        return 0.0
    times = [math.log(pair.head.cost / pair.base.cost) for pair in pairs]
    mean_clock, mean_time = math.fsum(clocks) / len(pairs), math.fsum(times) / len(pairs)
    squares = math.fsum((c - mean_clock) ** 2 for c in clocks)
    if not squares:
        return 0.0
    products = math.fsum(
        (c - mean_clock) * (t - mean_time) for c, t in zip(clocks, times, strict=True)
    )
    return min(1.0, max(0.0, -products / squares))


def _judged(
    metric: str,
    pairs: Sequence[RunPair],
    known_base: Sequence[Run],
    bounds: Bounds,
    widened: float,
    first_head: Run | None = None,
) -> tuple[Difference, float]:
    """Return what is found, and the upper end that has to lie below the limit to pass."""
    costs = [_costs(pair) for pair in pairs]
    in_turns = any(pair.ratio for pair in pairs)
    known = [] if in_turns else [run.cost for run in known_base]
    wide, sure, strict = (
        proven_ratio(costs, known, error=2 * error, is_clear=in_turns)
        for error in (
            _at(LOOK_ERRORS, len(pairs)) * bounds.error_share,
            _at(PASS_ERRORS, len(pairs)),
            SURE_ERROR * bounds.error_share,
        )
    )
    # Of the old version's cost over the new one's; what is asked for is the other way round.
    ratio = 1 / wide.ratio
    low, high = (
        ratio * (wide.ratio / wide.ci99_high) ** widened,
        ratio * (wide.ratio / wide.ci99_low) ** widened,
    )
    at_all, at_most = (
        ratio * (strict.ratio / strict.ci99_high) ** widened,
        ratio * (strict.ratio / strict.ci99_low) ** widened,
    )
    low = min(low, at_all * (1 + bounds.tolerance))  # above the tolerance where both are shown
    if not in_turns and len(pairs) < BY_ORDER_ALONE and first_head is not None:
        base = [cost.base for cost in costs]
        least = max(*known, *base, geometric_mean(base) * math.sqrt(ratio))
        low = min(low, 1.0) if first_head.cost <= least else low
    surely_below = ratio * (sure.ratio / sure.ci99_low) ** widened
    is_near = at_most < 1 + FAR * bounds.limit
    if low > 1 + bounds.tolerance:
        verdict = GateVerdict.FAIL
    elif surely_below < 1 + bounds.limit and is_near:
        verdict = GateVerdict.PASS
    else:
        verdict = GateVerdict.INCONCLUSIVE
    found = Difference(metric, verdict, ratio, low, high, ratio, bounds.tolerance, bounds.limit)
    return found, surely_below


def _costs(pair: RunPair) -> Pair:
    """Return what the runs of a pair cost; where they took turns, as multiples of the base's.

    Beside such a pair nothing can slow down one side alone, so that few pairs may show something,
    and what the machine did meanwhile is no part of how much runs differ.
    """
    if pair.ratio is None:
        return Pair(pair.base.cost, pair.head.cost, pair.base_first)
    return Pair(1.0, pair.ratio, pair.base_first)


def _at(errors: Mapping[int, float], pairs: int) -> float:
    """Return the error that a look at so many pairs may use up: that of the next one if between."""
    return next((error for look, error in errors.items() if look >= pairs), min(errors.values()))


def _at_one_clock(run: Run, share: float) -> Run:
    return replace(run, cost=run.cost * (run.clock or 1.0) ** share)


def _clock_differences(pairs: Sequence[RunPair]) -> list[float] | None:
    """Return each pair's log ratio of clocks, head over base; None where one is not known."""
    found = []
    for pair in pairs:
        if not pair.base.clock or not pair.head.clock or pair.ratio is not None:
            return None  # in turns both had the same clock
        found.append(math.log(pair.head.clock / pair.base.clock))
    return found


def _changes(pairs: Sequence[RunPair], within: Sequence[tuple[InTurns, InTurns]]) -> bool:
    """Say whether sides surely take something else as they are turned than as they had started.

    Each process had its own side in both ways, so that it is no matter how processes differ.
    """
    return _is_systematic(
        [
            math.log(pair.head.cost / head.head_ms) - math.log(pair.base.cost / base.base_ms)
            for pair, (base, head) in zip(pairs, within, strict=True)
        ]
    )


def _is_systematic(differences: Sequence[float]) -> bool:
    """Say whether differences, such as those of clocks, are not around 0 by chance alone."""
    from scipy.special import stdtrit

    count = len(differences)
    mean = math.fsum(differences) / count
    squares = math.fsum((each - mean) ** 2 for each in differences)
    error = math.sqrt(squares / (count - 1) / count)
    return abs(mean) > error * float(stdtrit(count - 1, 1 - SYSTEMATIC / 2))


def _widening(pairs: Sequence[RunPair]) -> float:
    """Return by how much wider an interval is for the slope that was learnt from the same pairs.

    It is what an analysis of covariance adds: a degree of freedom, and the slope's own error at the
    mean difference of clocks.
    """
    clocks = _clock_differences(pairs) or []
    count = len(clocks)
    mean = math.fsum(clocks) / count
    squares = math.fsum((each - mean) ** 2 for each in clocks)
    return math.sqrt((count - 1) / (count - 2) * (1 + count * mean**2 / squares))
