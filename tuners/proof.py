"""The proof: fresh processes of the best and of the baseline in turn, until the ratio is known."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Speedup, Trial, TrialState
from gpuadvisor.tuners.bench import Bench
from gpuadvisor.tuners.statistics import LOOKS, paired_ratio

NARROW = 0.02
"""Half width of the interval, relative to the ratio, at which a gain is known well enough."""
NARROW_SHARE = 0.1
"""Or relative to the gain: a 2.9x speed-up needs no interval of 2 %."""
NEGLIGIBLE = 1.005
"""When even the upper end is below this, more pairs would prove nothing that matters."""
MAX_FAILURES = 3


def prove(bench: Bench, best: Settings) -> tuple[Speedup | None, list[Trial]]:
    """Compare best and baseline in ABBA order until the interval is narrow or the budget ends.

    Returns no ratio when the best failed, or when fewer pairs than the first look were possible.
    """
    gains: list[tuple[float, float]] = []
    trials: list[Trial] = []
    failures = 0
    speedup: Speedup | None = None
    while len(gains) < LOOKS[-1] and failures < MAX_FAILURES:
        needed = len(gains) < LOOKS[0]
        if not needed and not (bench.affordable(best) and bench.affordable({})):
            break
        pair, ran = _pair(bench, best, baseline_first=len(trials) % 4 == 0)
        trials.extend(ran)
        if pair is None:
            failures += 1
            continue
        gains.append(pair)
        if len(gains) in LOOKS:
            speedup = paired_ratio(gains)
            if is_settled(speedup):
                break
    if len(gains) >= LOOKS[0]:
        speedup = paired_ratio(gains)
    return speedup, trials


def is_settled(speedup: Speedup) -> bool:
    """Say whether more pairs would change nothing that a user cares about."""
    half = (speedup.ci99_high - speedup.ci99_low) / 2
    narrow = half <= max(NARROW * speedup.ratio, NARROW_SHARE * (speedup.ratio - 1))
    proven = speedup.ci99_low > 1.0
    return (proven and narrow) or speedup.ci99_high < NEGLIGIBLE


def is_faster(speedup: Speedup | None) -> bool:
    """Say whether a gain may be claimed: the whole interval lies above one."""
    return speedup is not None and speedup.ci99_low > 1.0


def _pair(
    bench: Bench, best: Settings, baseline_first: bool
) -> tuple[tuple[float, float] | None, list[Trial]]:
    order: Sequence[Settings] = ({}, best) if baseline_first else (best, {})
    ran = [bench.measure([settings], "proof")[0] for settings in order]
    if any(t.state is not TrialState.COMPLETE or t.gain is None for t in ran):
        return None, ran
    baseline, candidate = ran if baseline_first else reversed(ran)
    return (candidate.gain or 1.0, baseline.gain or 1.0), ran
