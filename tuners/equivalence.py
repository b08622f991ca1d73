"""Whether a run computed what the unchanged script computes, within a calibrated tolerance."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from statistics import median

from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.measurement import OutputSample, Trace
from gpuadvisor.domain.study import Equivalence

TOLERANCES = {Level.CONSERVATIVE: 1e-3, Level.BALANCED: 1e-2, Level.AGGRESSIVE: 2e-2}
"""Relative difference that a level allows: rounding that training has amplified for some steps,
mixed precision, and half precision with scaling."""
SPREAD_FACTOR = 3.0
"""Least limit, in differences between two unchanged runs."""
SEEDS_FACTOR = 5.0
"""Differences between two seeds of the unchanged script that a third seed exceeds once in a hundred
times: beyond them it is not the random numbers. (Medians of ten losses' differences, normal and
correlated by one half, are 5 times each other once in a hundred times, and twice once in seven.)"""
ERRATIC = 0.5
"""Relative difference of two unchanged, equally seeded runs above which nothing can be compared."""
MIN_LOSSES = 3
"""Losses that two runs must share to be compared by them."""
BLOCK = 10
"""Losses whose median is taken: enough that single spikes say nothing, and few enough that what
differs in one pass only, such as after a late event, is not outvoted by the passes before."""
LEAST_SCALE = 0.1
"""Part of the losses' median magnitude that a difference is taken relative to at least."""
MOST_AT_ONCE = 0.05
"""Relative difference that rounding makes of the second loss at most. (Of a ResNet-50 that learns
random pictures by 16, with SGD at 0.1 and 0.01 and Adam: another order of summation, a nudge of its
weights by 2**-23 of their size and bfloat16 move it by 0.4 to 1.3 %, and later ones by up to 59 %;
twice or half the learning rate by 0.7 to 84 %, a batch that is given again by 19 to 81 %.)"""
PARTING = (
    "its losses agree at first and part later, which rounding alone may do; that takes a rehearsal"
    " on equal weights"
)
"""Why nothing is said of losses that may part by chaos alone."""


def difference(
    reference: Trace, trace: Trace, calls: int | None = None
) -> tuple[float, str] | None:
    """Return how far two traces are apart and what was compared, or None if nothing can be.

    For training, the median of the first losses' relative differences: a single spike of a script
    that trains at its limit says nothing, while a wrong gradient shows in most steps. Of many
    losses, the largest median of a block. For inference, the largest relative L2 difference of an
    output. `calls` limits the outputs.
    """
    count = min(len(reference.losses), len(trace.losses))
    if count >= MIN_LOSSES:
        return _losses_apart(reference.losses[:count], trace.losses[:count])
    outputs = list(zip(reference.outputs, trace.outputs, strict=False))[:calls]
    apart = [_outputs_apart(a, b) for a, b in outputs]
    comparable = [value for value in apart if value is not None]
    if not comparable:
        return None
    return max(comparable), f"largest relative difference of {len(comparable)} outputs"


def _losses_apart(reference: Sequence[float], losses: Sequence[float]) -> tuple[float, str]:
    count, metric = len(losses), "median relative difference of"
    if not any(reference):
        return math.inf if any(losses) else 0.0, f"{metric} the first {count} losses"
    apart = _each_apart(reference, losses)
    if count <= BLOCK:
        return median(apart), f"{metric} the first {count} losses"
    starts = [min(start, count - BLOCK) for start in range(0, count, BLOCK)]
    value, start = max((median(apart[start : start + BLOCK]), start) for start in starts)
    return value, f"{metric} losses {start + 1} to {start + BLOCK}"


def _each_apart(reference: Sequence[float], losses: Sequence[float]) -> list[float]:
    # A loss near zero by chance would make any difference look large.
    least = max(LEAST_SCALE * median(map(abs, reference)), sys.float_info.min)
    return [abs(a - b) / max(abs(a), least) for a, b in zip(reference, losses, strict=False)]


def _outputs_apart(reference: OutputSample, output: OutputSample) -> float | None:
    if len(reference.values) != len(output.values):
        return None
    return relative_difference(reference.values, output.values)


def relative_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the L2 norm of the difference over that of `ours`.

    Infinite where there are not as many numbers, where NaN and infinity are not in the same places,
    and where `ours` are all 0 and the others are not.
    """
    if len(ours) != len(theirs):
        return math.inf
    pairs = list(zip(ours, theirs, strict=True))
    if any(math.isfinite(a) != math.isfinite(b) for a, b in pairs):
        return math.inf
    pairs = [(a, b) for a, b in pairs if math.isfinite(a)]
    scale = math.sqrt(math.fsum(a * a for a, _ in pairs))
    apart = math.sqrt(math.fsum((a - b) ** 2 for a, b in pairs))
    return apart / scale if scale else (0.0 if apart == 0 else math.inf)


def tolerance_of(level: Level, tolerance: float | None = None) -> float:
    """Return the relative difference that is allowed: the user's own, or else the level's."""
    return TOLERANCES[level] if tolerance is None else tolerance


def is_broken(reference: Trace, trace: Trace) -> bool:
    """Say whether NaN or infinity turned up where the reference has none."""

    def finite(values: Trace) -> bool:
        last = [] if values.last_loss is None else [values.last_loss]
        return all(map(math.isfinite, [*values.losses, *last]))

    return finite(reference) and not finite(trace)


class Comparison:
    """The comparison of one study: its reference, its tolerance, and what keeps it from judging."""

    def __init__(self, level: Level, tolerance: float | None = None) -> None:
        self._tolerance = tolerance_of(level, tolerance)
        self._reference: Trace | None = None
        self._spread = 0.0
        self._seed_spread: float | None = None
        self._has_other_seed = True

    def calibrate(
        self,
        baselines: Sequence[Trace],
        other_seed: Trace | None = None,
        has_other_seed: bool = True,
    ) -> None:
        """Learn from repeated baselines how far two unchanged runs are apart.

        `has_other_seed` is False where a run with another seed would differ, but none was made.
        """
        self._reference, self._has_other_seed = baselines[0], has_other_seed
        found = [difference(self._reference, trace) for trace in baselines[1:]]
        apart = [item[0] for item in found if item is not None]
        self._spread = math.nan if any(map(math.isnan, apart)) else max(apart, default=0.0)
        if other_seed is not None:
            seeded = difference(self._reference, other_seed)
            self._seed_spread = None if seeded is None else seeded[0]

    @property
    def limit(self) -> float:
        return max(self._tolerance, SPREAD_FACTOR * self._spread)

    def check(
        self,
        trace: Trace,
        *,
        other_random_numbers: bool = False,
        first_call_only: bool = False,
        may_round: bool = False,
    ) -> Equivalence:
        """Compare a run with the baseline.

        Where the run `may_round` in another way, losses that part only in the course of training
        are not checked, for `PARTING`: a rehearsal compares them on equal weights.

        With `other_random_numbers` the run draws from the same distribution, but not the same
        numbers. What is within the limit agrees all the same; what is farther apart than two seeds
        of the unchanged script are is wrong, where that is known; and of what lies between, losses
        prove nothing: a limit that two seeds keep would let a wrong result through.
        """
        against = self._reference
        if against is None:
            return Equivalence("not_checked", "", reason="there is no baseline to compare with")
        if is_broken(against, trace):
            return Equivalence("wrong", "NaN or infinity in the losses", None, self._tolerance)
        found = difference(against, trace, 1 if first_call_only else None)
        if found is None:
            return Equivalence("not_checked", "", reason="no loss and no output could be compared")
        value, metric = found
        reason = ""
        if ERRATIC < self._spread < math.inf:
            reason = f"two runs of the unchanged script differ by {self._spread:.0%} already"
        elif math.isnan(value) or not math.isfinite(self._spread):
            reason = "the unchanged script computes NaN or infinity itself"
        if reason:
            known = value if math.isfinite(value) else None
            return Equivalence("not_checked", metric, known, reason=reason)
        limit = self.limit
        if other_random_numbers and value > limit:
            limit = max(limit, SEEDS_FACTOR * (self._seed_spread or 0.0))
            if value <= limit or not self._has_other_seed:
                reason = "it draws other random numbers, and losses cannot tell whether only that"
                return Equivalence("not_checked", metric, value, reason=reason)
        if value > limit and may_round and self._parts_late(against, trace):
            return Equivalence("not_checked", metric, value, reason=PARTING)
        return Equivalence("equivalent" if value <= limit else "wrong", metric, value, limit)

    def _parts_late(self, reference: Trace, trace: Trace) -> bool:
        """Say whether the loss before the first step agrees, and that after it does not show more
        than rounding makes of it."""
        if min(len(reference.losses), len(trace.losses)) < MIN_LOSSES:
            return False
        shared = reference.losses[: len(trace.losses)]
        first, second, *_ = _each_apart(shared, trace.losses)
        return first <= self._tolerance and second <= max(self._tolerance, MOST_AT_ONCE)
