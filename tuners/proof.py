"""The proof: fresh processes of two sides in turn, until the ratio of their costs is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from gpuadvisor.domain.study import Objective, Speedup, Trial, TrialState
from gpuadvisor.tuners.space import Evaluator, Point
from gpuadvisor.tuners.statistics import LOOKS, paired_ratio

NARROW = 0.02
"""Half width of the interval, relative to the ratio, at which a gain is known well enough."""
NARROW_SHARE = 0.1
"""Half width of the interval, relative to the gain, that is narrow enough too: a 2.9x speed-up
needs no interval of 2 %."""
NEGLIGIBLE = 1.005
"""Ratio below which even the interval's upper end shows that more pairs would prove nothing."""
MAX_FAILURES = 2
"""Pairs with a run that failed, after which a proof ends without an answer."""

SideT = TypeVar("SideT")


@dataclass
class Proof:
    """What the comparison of two sides found."""

    speedup: Speedup | None = None
    """Base's cost over head's; None when a side failed."""
    failed: Trial | None = None
    """The run that ended the proof without an answer."""
    base: list[Trial] = field(default_factory=list)
    """Runs of the side that is compared with, in order."""
    head: list[Trial] = field(default_factory=list)
    """Runs of the side that is to be better, in order."""


def prove(
    run: Callable[[SideT], Trial],
    base: SideT,
    head: SideT,
    objective: Objective,
    affordable: Callable[[Sequence[SideT]], bool] = lambda pair: True,
) -> Proof:
    """Compare two sides in ABBA order until the interval is narrow or the budget ends.

    A side is whatever `run` can run: a point of a space, a command, a plan, an interpreter. Each
    call of `run` is to be a fresh process, on the same device for both. The first look's pairs
    are run whatever `affordable` says of one more pair: the budget kept room for them.
    """
    proof = Proof()
    costs: list[tuple[float, float]] = []
    failures = 0
    while len(costs) < LOOKS[-1]:
        if len(costs) >= LOOKS[0] and not affordable([base, head]):
            break
        base_first = len(proof.base) % 2 == 0
        pair = [run(side) for side in ((base, head) if base_first else (head, base))]
        plain, tuned = pair if base_first else reversed(pair)
        proof.base.append(plain)
        proof.head.append(tuned)
        failed = next((trial for trial in pair if _cost(trial, objective) is None), None)
        if failed is None:
            costs.append((_cost(plain, objective) or 0.0, _cost(tuned, objective) or 0.0))
            if len(costs) in LOOKS and is_settled(paired_ratio(costs)):
                break
            continue
        failures += 1
        if failed.state is TrialState.WRONG or failures >= MAX_FAILURES:
            proof.failed = failed
            return proof
    proof.speedup = paired_ratio(costs)
    return proof


def prove_point(evaluator: Evaluator, point: Point, objective: Objective) -> Proof:
    """Compare a point of a space with the empty one."""

    def run(side: Point) -> Trial:
        return evaluator.measure([side], "proof")[0]

    return prove(run, {}, point, objective, evaluator.affordable)


def is_settled(speedup: Speedup) -> bool:
    """Say whether more pairs would change nothing that a user cares about."""
    half = (speedup.ci99_high - speedup.ci99_low) / 2
    narrow = half <= max(NARROW * speedup.ratio, NARROW_SHARE * (speedup.ratio - 1))
    return (is_faster(speedup) and narrow) or speedup.ci99_high < NEGLIGIBLE


def is_faster(speedup: Speedup | None) -> bool:
    """Say whether a gain may be claimed: the whole interval lies above one."""
    return speedup is not None and speedup.ci99_low > 1.0


def _cost(trial: Trial, objective: Objective) -> float | None:
    """Return what a run cost, None where it failed. Not its `gain`, whose reference may move."""
    if trial.state is not TrialState.COMPLETE or trial.measurement is None:
        return None
    return objective.cost(trial.measurement) or None  # a cost of zero has no ratio
