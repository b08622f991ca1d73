"""Ratios of runs with intervals that hold also when one looks at them more than once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuadvisor.domain.study import InTurns, Speedup, Trial

ERROR = 0.01
"""Chance that an interval misses the true ratio."""
LOOK_ERRORS: Mapping[int, float] = {
    3: 0.0010,
    4: 0.0018,
    6: 0.0018,
    8: 0.0018,
    12: 0.0014,
    16: 0.0012,
    24: 0.0004,
    32: 0.0003,
    48: 0.0002,
    64: 0.0001,
}
"""Pairs of runs after which a proof looks at its interval, and the part of `ERROR` that this look
may use up (Bonferroni). Most of it goes to the looks that nearly every study can afford. The first
shows what is several times as much as runs differ by: 1.14x on a quiet GPU, 2x where they differ by
a tenth."""
LOOKS = tuple(LOOK_ERRORS)
LAST_SHARE = 0.5
"""Part of the error left that the last look of a proof uses up whose budget ends: where runs have
two speeds, the few of a side are of one too often for Student's t. Simulated, half of runs 20 %
slower: with all of it up to 1.9 of 100 intervals miss the gain, with half 0.5 after three and four
pairs (`benchmarks/false_claims.py`)."""

LATER_SHARE = 0.25
"""Part of an interval's error that the next proof may use up after one that showed no gain. Any
number of them claims a gain that is not there in 0.67 of 100 studies: the upper half of `ERROR` and
a third. After one that did show a gain the next has the whole error of its place: where the first
of several proofs in a row claims nothing false, the study's error was not touched (the fixed
sequence procedure of clinical trials)."""

BY_ORDER_ALONE = 8
"""Pairs from which their random order alone keeps a second job on the machine from passing for a
gain: that it slows down one side in all of eight pairs has a chance of 1 in 256."""
FEW_KNOWN = 2
"""Earlier runs of the first side without which fewer pairs show nothing: a job that slows down one
side in all of four pairs, which has a chance of 1 in 16, shows in them too."""
MOST_PAIRS = 5000
"""Pairs beyond which nobody will wait for an answer."""
LIKELY = 1.28
"""Standard errors by which a gain has to be clearer than its interval is wide, so that nine of ten
studies of it prove it."""

WIDEST = 300.0
"""Half an interval of logarithms that stands for any wider one: powers of e end at 709."""
LEAST_UNCERTAINTY = 0.003
"""Relative difference that two runs of the same settings show on a quiet GPU (0.2 to 0.8 %)."""


@dataclass(frozen=True)
class Pair:
    """Costs of two fresh processes, one right after the other."""

    base: float
    head: float
    base_first: bool = True


def paired_ratio(costs: Sequence[tuple[float, float]]) -> Speedup:
    """Return the mean ratio of the first cost over the second with its 99 % interval.

    `costs` are pairs of adjacent fresh processes, so that slow drift of the machine cancels. The
    interval is Student's t on the logarithms: a bootstrap of so few pairs errs in 3 to 4 % of
    cases instead of 1 %, and pooled steps of a process are not independent. Raises ValueError
    for fewer than two pairs.
    """
    logs = [math.log(first / second) for first, second in costs]
    if len(logs) < 2:
        raise ValueError("an interval needs two pairs of runs")
    half = _quantile(len(logs) - 1, ERROR) * math.sqrt(_variance(logs) / len(logs))
    return _speedup(_mean(logs), half, len(logs))


def proven_ratio(
    pairs: Sequence[Pair],
    known_base: Sequence[float] = (),
    known_head: Sequence[float] = (),
    earlier: int = 0,
    error: float | None = None,
    at_another_time: bool = False,
    is_clear: bool = False,
) -> Speedup:
    """Return the mean ratio of base over head with an interval that holds over all looks.

    Two intervals share the error of a look, and the narrower one counts: Student's t on the pairs,
    in which drift of the machine cancels, and one whose variance is pooled over the runs of each
    side (Welch), which knows more with few pairs. For the latter, `known_base` and `known_head`
    are costs of earlier runs of the two sides: they say how much such runs differ, never what the
    ratio is. Its standard error is the largest of those of the pairs, of the sides, and of the
    sides with the earlier runs, since a job that comes and goes in step with the pairs hides from
    some of them. What the order within the pairs makes out widens both: where runs of one side
    last longer, such a job can prefer one order.

    With `earlier` proofs of other settings in the same study it is wider, so that the chance that
    any of them claims too much stays below `ERROR`. `error` replaces what this look may use up.

    Known runs `at_another_time` have another level: they widen an interval where runs differed more
    then, make it no narrower, and keep few pairs from showing anything where they lie between the
    sides of today.

    The interval includes one where fewer than `BY_ORDER_ALONE` pairs have nothing earlier to be
    compared with, or do not separate the sides, unless something else has made it `is_clear`, and
    where all pairs had one order. Raises ValueError for fewer than two pairs.
    """
    count = len(pairs)
    if count < 2:
        raise ValueError("an interval needs two pairs of runs")
    differences = [math.log(pair.base / pair.head) for pair in pairs]
    mean = _mean(differences)
    of_pairs = math.sqrt(_variance(differences) / count)
    base, head = [math.log(p.base) for p in pairs], [math.log(p.head) for p in pairs]
    all_base = base + [math.log(cost) for cost in known_base]
    all_head = head + [math.log(cost) for cost in known_head]
    of_sides = math.sqrt((_variance(base) + _variance(head)) / count)
    alike_base, alike_head, freedom = all_base, all_head, _freedom(all_base, all_head)
    if at_another_time:
        alike_base, alike_head = _levelled(all_base, count), _levelled(all_head, count)
        freedom = _freedom(base, head)
    of_all = math.sqrt((_variance(alike_base) + _variance(alike_head)) / count)
    error = LATER_SHARE**earlier * (error or error_of_look(count))
    enough = count >= BY_ORDER_ALONE
    share = error / 2 if enough else error
    half = _quantile(max(count - 1.0, freedom), share) * max(of_pairs, of_sides, of_all)
    if enough:
        half = min(half, _quantile(count - 1, share) * of_pairs)
    order = _order_effect(pairs, differences)
    half = math.hypot(half, order or 0.0)
    clear = is_clear or enough or _is_clear(all_base, all_head, len(known_base))
    if order is None or not clear:
        half = max(half, abs(mean))
    return _speedup(mean, half, count)


def ratio_in_turns(
    pairs: Sequence[Pair],
    sides: Sequence[tuple[InTurns, InTurns]],
    earlier: int = 0,
    error: float | None = None,
) -> Speedup:
    """Return the ratio of base over head from processes that timed both in turns, too.

    `pairs` are what the processes cost as they had started, `sides` what they then took in turns:
    of each pair, the process that started as the base, and the other. Each cost is taken relative
    to the level of its process, which both kinds of process know in the same way: the ratio is
    still that of fresh starts, without what differs from one process to the next. What turning
    leaves behind, or brings along, changes the level of both kinds and does not pass for a gain.

    The interval holds that of the blocks, too, which are compared within each process in an order
    by chance. So a gain is shown by both, and a job that comes and goes in step with the starts is
    none. Other arguments, and ValueError, as in `proven_ratio`.
    """
    error = error or error_of_look(len(pairs))
    fresh = proven_ratio(relative(pairs, sides), earlier=earlier, error=error, is_clear=True)
    blocks = [
        Pair(each.base_ms, each.head_ms, base_first=place == 0)
        for both in sides
        for place, each in enumerate(both)
    ]
    logs = [math.log(block.base / block.head) for block in blocks]
    quantile = _quantile(len(logs) - 1, LATER_SHARE**earlier * error)
    half = quantile * math.sqrt(_variance(logs) / len(logs))
    live = _speedup(_mean(logs), math.hypot(half, _order_effect(blocks, logs) or 0.0), len(pairs))
    return replace(
        fresh,
        ci99_low=min(fresh.ci99_low, live.ci99_low),
        ci99_high=max(fresh.ci99_high, live.ci99_high),
        in_turns=True,
    )


def relative(pairs: Sequence[Pair], sides: Sequence[tuple[InTurns, InTurns]]) -> list[Pair]:
    """Return what pairs of processes cost relative to the levels of these processes."""
    return [
        Pair(pair.base / base.level_ms, pair.head / head.level_ms, pair.base_first)
        for pair, (base, head) in zip(pairs, sides, strict=True)
    ]


def error_of_look(pairs: int) -> float:
    """Return the error that a look may use up after so many pairs, or the next one that comes."""
    return next((error for look, error in LOOK_ERRORS.items() if look >= pairs), ERROR / 100)


def error_of_last_look(pairs: int) -> float:
    """Return the error that the interval of a proof may use up that can afford no further pair.

    It is a part of what looks at fewer pairs have not used up, as later ones never come, and no
    less than its own. Only where it is not what pairs show that ends the proof.
    """
    left = ERROR - math.fsum(error for look, error in LOOK_ERRORS.items() if look < pairs)
    return max(error_of_look(pairs), LAST_SHARE * left)


def pairs_needed(distance: float, spread: float, least: int = LOOKS[0]) -> int | None:
    """Return the pairs after which a ratio is probably known to within `distance`.

    `distance` is a difference of logarithms, `spread` the relative standard deviation of runs of
    the same settings. None beyond `MOST_PAIRS`.
    """
    if distance <= 0:
        return None
    count = max(least, 2)
    while count <= MOST_PAIRS:
        error = error_of_look(count) / (2 if count >= BY_ORDER_ALONE else 1)
        widths = _quantile(2 * count - 2, error) + LIKELY
        if widths * spread * math.sqrt(2 / count) <= distance:
            return count
        count += max(1, count // 16)
    return None


def least_shown(pairs: int, spread: float) -> float:
    """Return the least gain that a proof shows half of the time which ends after so many pairs.

    `spread` is as in `pairs_needed`; two earlier runs of the first side are known.
    """
    quantile = _quantile(2 * pairs - 1, error_of_last_look(pairs))
    return math.exp(min(quantile * spread * math.sqrt(2 / pairs), WIDEST))


@dataclass
class Spread:
    """How much the runs of one side differ, while they come in (Welford's sums)."""

    count: int = 0
    _mean: float = 0.0
    squares: float = 0.0
    """Sum of the squared differences of the logarithms of costs from their mean."""

    def add(self, cost: float) -> None:
        """Take in the cost of one more run."""
        log = math.log(cost)
        self.count += 1
        before = log - self._mean
        self._mean += before / self.count
        self.squares += before * (log - self._mean)


def pooled(sides: Iterable[Spread]) -> float:
    """Return the relative standard deviation of runs of one side, pooled over all sides.

    Sides of fewer than two runs say nothing; `LEAST_UNCERTAINTY` is the least that is believed.
    """
    freedom, squares = 0, 0.0
    for side in sides:
        freedom += max(0, side.count - 1)
        squares += side.squares
    return max(LEAST_UNCERTAINTY, math.sqrt(squares / freedom)) if freedom else LEAST_UNCERTAINTY


def spread_of(*sides: Iterable[float]) -> float:
    """Return the relative standard deviation of runs of one side, pooled, from their costs."""
    spreads = [Spread() for _ in sides]
    for spread, costs in zip(spreads, sides, strict=True):
        for cost in costs:
            spread.add(cost)
    return pooled(spreads)


def mean_with_interval(
    costs: Sequence[float], spread: float, freedom: int
) -> tuple[float, float, float]:
    """Return the mean of some costs and the ends of its 99 % interval.

    `spread` is their relative standard deviation, known with so many degrees of freedom.
    """
    mean = _mean([math.log(cost) for cost in costs])
    half = _quantile(freedom, ERROR) * spread / math.sqrt(len(costs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


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


def _speedup(mean: float, half: float, count: int) -> Speedup:
    half = min(half, WIDEST)
    return Speedup(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _levelled(values: Sequence[float], count: int) -> list[float]:
    """Return the values, those after the first `count` moved to the mean of these."""
    first, rest = list(values[:count]), values[count:]
    by = _mean(first) - _mean(rest) if rest else 0.0
    return first + [value + by for value in rest]


def _quantile(freedom: float, error: float) -> float:
    """Return how many standard errors Student's t lies away with this chance, on both sides."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - error / 2))


def _freedom(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the degrees of freedom of a difference of two means (Welch and Satterthwaite)."""
    first, second = _variance(base), _variance(head)
    parts = first**2 / (len(base) - 1) + second**2 / (len(head) - 1)
    return (first + second) ** 2 / parts if parts else len(base) + len(head) - 2.0


def _order_effect(pairs: Sequence[Pair], differences: Sequence[float]) -> float | None:
    """Return half the difference between pairs of one order and those of the other.

    None with one order only: then nothing tells the second place from the second side.
    """
    first = [each for pair, each in zip(pairs, differences, strict=True) if pair.base_first]
    second = [each for pair, each in zip(pairs, differences, strict=True) if not pair.base_first]
    return abs(_mean(first) - _mean(second)) / 2 if first and second else None


def _is_clear(base: Sequence[float], head: Sequence[float], known: int) -> bool:
    """Say whether no run of one side reaches the other, with earlier runs of the first."""
    return known >= FEW_KNOWN and (max(head) < min(base) or max(base) < min(head))
