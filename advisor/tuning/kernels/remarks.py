"""What is said of how a kernel's space was searched and measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuadvisor.domain.clock_reasons import SLOWING
from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.space import Point
from gpuadvisor.tuning.kernels.options import KernelOptions

UNSTEADY = 0.03
"""Spread of clocks from which it is said: times follow the clock, and gains of single evaluations
are ratios within a few milliseconds."""


def remarks(
    options: KernelOptions,
    evaluations: Sequence[Evaluation],
    unlaunchable: int,
    began_with: Sequence[tuple[Point, str]],
    ended: str,
) -> Iterator[str]:
    """Yield sentences: what was left out, what the search began with (points, and what each was
    best for) and how that did, why it ended, and the state of caches and clocks.
    """
    if unlaunchable:
        points = "1 point was" if unlaunchable == 1 else f"{unlaunchable:,} points were"
        yield f"{points} left out: no GPU launches such a block"
    if began_with:
        several = len(began_with) > 1
        began = f"{len(began_with)} points that were" if several else "1 point that was"
        yield f"it began with {began} best for another size or GPU"
        yield from _carried(evaluations, began_with)
    if ended:
        yield f"the search ended before its budget: {ended}"
    if len(options.gpus) > 1:
        yield f"{len(options.gpus)} GPUs measured side by side, each with the default on the same"
    if options.l2 == "cold":
        yield "each launch was timed with a cold L2 cache (--l2 warm leaves it as it is)"
    else:
        yield "launches were timed with the L2 cache as the one before left it"
    yield from _clocks(evaluations)


def _carried(
    evaluations: Sequence[Evaluation], best_for: Sequence[tuple[Point, str]]
) -> Iterator[str]:
    """Yield how the best point of each other size or GPU does here beside the best that was found:
    what a program loses where it takes that for want of a study of this size.
    """
    gains = {
        tuple(sorted(each.point.items())): each.gain
        for each in evaluations
        if each.state is TrialState.COMPLETE and each.gain
    }
    best = max(gains.values(), default=None)
    told: set[str] = set()
    for point, origin in best_for:
        gain = gains.get(tuple(sorted(point.items())))
        if best and gain and origin not in told:
            told.add(origin)
            yield f"what was best for {origin} takes {best / gain:.2f} times the best one's time"


def _clocks(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    clocks = [each.clock_mhz for each in evaluations if each.clock_mhz]
    if not clocks:
        yield "clocks were not read: nothing is known of throttling"
        return
    low, high = min(clocks), max(clocks)
    steady = high - low <= UNSTEADY * high
    said = f"{high:,} MHz" if low == high else f"{low:,} to {high:,} MHz"
    yield f"SM clock {said} in {len(clocks):,} readings{'' if steady else ': it was not steady'}"
    held = Counter(name for each in evaluations for name in each.slowed_by)
    for name, count in held.most_common():
        cause = SLOWING[name].cause if name in SLOWING else name
        yield f"the clock was held down by {cause} in {count:,} of {len(clocks):,} readings"
