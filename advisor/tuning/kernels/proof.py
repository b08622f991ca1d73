"""The proof of a kernel's study: the best points again in turns, the fastest of them against the
default in a fresh process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import Objective, Speedup, TrialState, Verdict
from gpuadvisor.tuners.space import Point
from gpuadvisor.tuners.statistics import paired_ratio
from gpuadvisor.tuning.kernels.fleet import Lane

FINALISTS = 5
"""Points that are timed again in turns: the best of single measurements is 0.4 to 0.7 % too good
on noisy published spaces, and in 5 % of draws up to 6.7 % slower than another."""
FINAL_ROUNDS = 60
"""Rounds of the finalists, of which the fastest is then proven."""
BLOCKS, BLOCK_ROUNDS = 12, 20
"""Blocks of the proof, whose mean times are its pairs, and rounds in each."""
ENERGY_BLOCKS = 8
"""Pairs of a proof of energy, each two seconds of launches of either."""
WORTH = 0.01
"""Gain below which no point is called better: it costs a change of the code."""


@dataclass(frozen=True)
class Proof:
    """The best point measured again beside the default; without one, what was said instead."""

    point: Mapping[str, Value] | None = None
    speedup: Speedup | None = None
    """Default over best, in time, or in energy of a launch where that is the objective."""
    default_ms: float | None = None
    best_ms: float | None = None
    remarks: tuple[str, ...] = ()
    wrong: tuple[tuple[Point, str], ...] = ()
    """Points that had passed their check before and now did not, and how they differ."""

    @property
    def verdict(self) -> Verdict:
        if self.speedup is None:
            return Verdict.NOT_TRIED
        if self.speedup.ci99_low > 1 + WORTH:
            return Verdict.FASTER
        return Verdict.NO_GAIN if self.speedup.ci99_high < 1 + WORTH else Verdict.INCONCLUSIVE


def finalists(evaluations: Sequence[Evaluation], default: Point) -> Sequence[Point]:
    """Return the points that are to be measured again, the best first, without the default."""
    ranked = [e for e in evaluations if e.state is TrialState.COMPLETE and e.gain]
    ranked.sort(key=lambda each: -(each.gain or 0.0))
    return [dict(e.point) for e in ranked if dict(e.point) != dict(default)][:FINALISTS]


def prove(lane: Lane, points: Sequence[Point], objective: Objective) -> Proof:
    """Measure finalists in turns, and the best of them in a fresh process, which alone gives the
    interval: whoever picks the fastest picks luck, too.
    """
    process = lane.process
    first = process.prove(points, FINAL_ROUNDS)
    wrong = [
        (point, reason)
        for point, reason in zip(points, first.wrong, strict=True)
        if reason is not None
    ]
    remarks: list[str] = []
    costs = {
        place: median(times)
        for place, (times, reason) in enumerate(zip(first.rounds_ms[1:], first.wrong, strict=True))
        if reason is None
    }
    if objective is Objective.ENERGY:
        costs = {place: lane.energy_mj(points[place]) or float("inf") for place in costs}
    if not costs:
        return Proof(wrong=tuple(wrong))
    best = points[min(costs, key=lambda place: costs[place])]
    process.close()
    second = process.prove([best], BLOCKS * BLOCK_ROUNDS)
    if second.wrong[0] is not None:
        return Proof(wrong=(*wrong, (best, second.wrong[0])))
    if not second.repeats[0]:
        remarks.append("the best point does not give the same bits twice")
    base, head = second.rounds_ms
    pairs = list(zip(_blocks(base), _blocks(head), strict=True))
    if objective is Objective.ENERGY:
        pairs = _energies(lane, best)
        if pairs:
            default_mj, best_mj = (fmean(each) for each in zip(*pairs, strict=True))
            remarks.append(
                "the gain is of energy, launched back to back with warm caches: "
                f"{default_mj:.3g} mJ a launch of the default, {best_mj:.3g} mJ of the best"
            )
        else:
            remarks.append("the driver did not say how much energy was used")
            return Proof(remarks=tuple(remarks), wrong=tuple(wrong))
    return Proof(
        best, paired_ratio(pairs), median(base), median(head), tuple(remarks), tuple(wrong)
    )


def _energies(lane: Lane, best: Point) -> list[tuple[float, float]]:
    """Return energies a launch of the default and of the best, in turns."""
    pairs = []
    for number in range(ENERGY_BLOCKS):
        order = (None, best) if number % 2 else (best, None)
        found = {point is None: lane.energy_mj(point) for point in order}
        base, head = found[True], found[False]
        if base and head:
            pairs.append((base, head))
    return pairs


def _blocks(times: Sequence[float]) -> list[float]:
    """Return the mean time of each block of rounds."""
    size = len(times) // BLOCKS
    return [sum(times[n * size : (n + 1) * size]) / size for n in range(BLOCKS)]
