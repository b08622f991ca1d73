"""What fresh processes said of what a screening had found in one running script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.screening import Later, Screened, ScreenedAs
from gpuadvisor.domain.study import StudyResult, Trial, TrialState
from gpuadvisor.tuners.search import MIN_GAIN
from gpuadvisor.tuners.statistics import paired_ratio

PHASES = ("ablation", "proof")
"""Phases in which fresh processes with and without a knob followed one another. One run of the
search differs from the unchanged script's by more than what a screening tells apart."""
LEAST_PAIRS = 3
"""Pairs of fresh processes that say something: the interval of two spans a factor of 60."""


def in_hindsight(result: StudyResult) -> tuple[Screened, ...]:
    """Return what was screened in a study, each with what its proof or ablation said of it."""
    return tuple(replace(each, later=_later(each, result)) for each in result.screened)


def _later(screened: Screened, result: StudyResult) -> Later | None:
    """Return whether a claim held; None where none was made, or nothing was shown of it."""
    promises = screened.state in (ScreenedAs.KEPT, ScreenedAs.GAINS)
    if not promises and screened.state is not ScreenedAs.WORTHLESS:
        return None
    for low, high in _intervals(screened, result):
        if high < 1 + MIN_GAIN:
            if promises and screened.of_computing:
                return None  # nothing was said of a step that may wait for its loader
            return Later.REFUTED if promises else Later.CONFIRMED
        if low > (1.0 if promises else 1 + MIN_GAIN):
            return Later.CONFIRMED if promises else Later.REFUTED
    return None


def _intervals(screened: Screened, result: StudyResult) -> Iterator[tuple[float, float]]:
    """Yield the 99 % intervals of what a value brought, what says most of it first."""
    name, value = screened.knob, screened.value
    for each in result.contributions:
        is_it = (each.knob, each.value) == (name, value)
        if is_it and each.origin.is_shown and each.low and each.high:  # blocks confirm no blocks
            yield each.low, each.high
    for phase in PHASES:
        trials = [t for t in result.trials if t.phase == phase and t.state is TrialState.COMPLETE]
        for head in _points(trials):
            base = {other: setting for other, setting in head.items() if other != name}
            pairs = _pairs(trials, head, base) if head.get(name) == value else []
            if len(pairs) >= LEAST_PAIRS:
                found = paired_ratio(pairs)
                yield found.ci99_low, found.ci99_high
    whole = result.speedup
    is_part = screened.state is ScreenedAs.KEPT and result.settings.get(name) == value
    if whole is not None and is_part and whole.ci99_high < 1 + MIN_GAIN:
        yield whole.ci99_low, whole.ci99_high  # it looked good beside others, which brought nothing


def _points(trials: Sequence[Trial]) -> list[Settings]:
    return list({frozenset(t.settings.items()): t.settings for t in trials}.values())


def _pairs(trials: Sequence[Trial], head: Settings, base: Settings) -> list[tuple[float, float]]:
    """Return gains with and without a knob, of runs near one another; none counts twice."""
    sides = ([t for t in trials if t.settings == point and t.gain] for point in (head, base))
    with_, without = sides
    pairs = []
    for trial in with_ if without else ():
        nearest = min(without, key=lambda other: abs(other.number - trial.number), default=None)
        if nearest is not None:
            without.remove(nearest)
            pairs.append((trial.gain or 1.0, nearest.gain or 1.0))
    return pairs
