"""The proof: fresh processes of the best and of the baseline in turn, until the ratio is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Objective, Speedup, Trial, TrialState
from gpuadvisor.tuners.space import Evaluator
from gpuadvisor.tuners.statistics import LOOKS, paired_ratio

NARROW = 0.02
"""Half width of the interval, relative to the ratio, at which a gain is known well enough."""
NARROW_SHARE = 0.1
"""Or relative to the gain: a 2.9x speed-up needs no interval of 2 %."""
NEGLIGIBLE = 1.005
"""When even the upper end is below this, more pairs would prove nothing that matters."""
MAX_FAILURES = 2
"""Runs of either side that may fail; what fails more often is not to be recommended."""


@dataclass
class Proof:
    """What the comparison found."""

    speedup: Speedup | None = None
    """None when a side failed, or when fewer pairs than the first look were possible."""
    failed: Trial | None = None
    """The run that ended the proof without an answer."""
    trials: list[Trial] = field(default_factory=list)


def prove(evaluator: Evaluator, best: Settings, objective: Objective) -> Proof:
    """Compare best and baseline in ABBA order until the interval is narrow or the budget ends.

    The first look's pairs are run whatever the budget says: the search kept it for them.
    """
    proof = Proof()
    costs: list[tuple[float, float]] = []
    failures = 0
    while len(costs) < LOOKS[-1]:
        if len(costs) >= LOOKS[0] and not evaluator.affordable([{}, best]):
            break
        baseline_first = len(proof.trials) // 2 % 2 == 0
        order: Sequence[Settings] = ({}, best) if baseline_first else (best, {})
        pair = [evaluator.measure([settings], "proof")[0] for settings in order]
        proof.trials.extend(pair)
        failed = next((trial for trial in pair if _cost(trial, objective) is None), None)
        if failed is None:
            plain, tuned = pair if baseline_first else reversed(pair)
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


def is_settled(speedup: Speedup) -> bool:
    """Say whether more pairs would change nothing that a user cares about."""
    half = (speedup.ci99_high - speedup.ci99_low) / 2
    narrow = half <= max(NARROW * speedup.ratio, NARROW_SHARE * (speedup.ratio - 1))
    return (is_faster(speedup) and narrow) or speedup.ci99_high < NEGLIGIBLE


def is_faster(speedup: Speedup | None) -> bool:
    """Say whether a gain may be claimed: the whole interval lies above one."""
    return speedup is not None and speedup.ci99_low > 1.0


def _cost(trial: Trial, objective: Objective) -> float | None:
    """Return what a run cost itself. Its `gain` would not do: the reference in it may move."""
    if trial.state is not TrialState.COMPLETE or trial.measurement is None:
        return None
    return objective.cost(trial.measurement) or None  # a cost of zero has no ratio
