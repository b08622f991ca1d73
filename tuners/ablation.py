"""Ablation: take each kept parameter out again, and keep only those that are missed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from gpuadvisor.domain.knobs import Contribution, Origin, Value
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.space import Evaluator, Point, Space
from gpuadvisor.tuners.statistics import paired_ratio, uncertainty

ROUNDS = 3
"""Most rounds of the best point and of those that lack one parameter, in turn."""
CLEAR = 4.0
"""Uncertainties that a contribution must reach to need no further round."""
MIN_CONTRIBUTION = 0.005
"""Logarithm of the gain below which a parameter is not worth a line in the user's code."""
SURPRISING = 3.0
"""Times what a parameter brought in the search, above which its contribution needs all rounds: one
run that something disturbed would do. Together, knobs were seen to be worth up to twice as much."""
HARMFUL = 1.2
"""Factor by which the point may be faster without a parameter that the search kept, above which all
rounds are needed too."""
INTERVAL_ROUNDS = 3
"""Rounds that a contribution needs for an interval: from two it would span a factor of 60."""


@dataclass
class _Evidence:
    """What the rounds say of one parameter."""

    brought: float = 1.0
    """Factor by which it improved the best when the search kept it."""
    pairs: list[tuple[float, float]] = field(default_factory=list)
    """Gain with the parameter and gain without it, of the same round."""
    failures: int = 0
    """Rounds in which the trial without it failed, or computed something else."""
    uncertainty: float = 0.0
    """Relative standard error of one pair."""

    @property
    def rounds(self) -> int:
        return len(self.pairs) + self.failures

    @property
    def contribution(self) -> float:
        """Logarithm of what the parameter brings; infinity where nothing works without it.

        The median of the rounds: a single run that something disturbed decides nothing.
        """
        if not self.pairs:
            return math.inf
        return median(math.log(with_ / gone) for with_, gone in self.pairs)

    @property
    def is_clear(self) -> bool:
        if self.pairs:
            return self._is_plausible and abs(self.contribution) >= CLEAR * self.uncertainty
        return self.failures >= 2  # one failure may be an accident

    @property
    def _is_plausible(self) -> bool:
        expected = math.log(self.brought)
        return -math.log(HARMFUL) <= self.contribution <= expected + math.log(SURPRISING)

    @property
    def needed(self) -> float:
        """What the contribution must reach for the parameter to be kept."""
        error = self.uncertainty / math.sqrt(len(self.pairs)) if self.pairs else 0.0
        return max(MIN_CONTRIBUTION, 2 * error)


@dataclass
class Ablation:
    """An ablation in progress."""

    evaluator: Evaluator
    space: Space
    fallback: Mapping[str, float] = field(default_factory=dict)
    """Parameter to what it brought when the search kept it, for want of an own measurement: where
    the budget ends, or a restriction forbids the point without it."""
    known: Mapping[str, Contribution] = field(default_factory=dict)
    """What parameters bring beside all others of `beside`, where that is known and is a gain: they
    are not taken out of it."""
    beside: Point = field(default_factory=dict)
    """Point of which `known` is true. What else is in a point is taken out first."""

    def run(self, settings: Point) -> tuple[dict[str, Value], tuple[Contribution, ...]]:
        """Return the point that is left, and what each of its parameters contributes.

        A single one is left to the proof, which compares it with nothing at all.
        """
        kept = dict(settings)
        while len(kept) > 1:
            evidence = {name: _Evidence(self.fallback.get(name, 1.0)) for name in kept}
            self._measure(kept, [name for name in kept if name not in self.known], evidence)
            known = self.known if kept == dict(self.beside) else {}
            if _weakest(evidence) is None and not known:
                self._measure(kept, [name for name in kept if name in self.known], evidence)
            weakest = _weakest(evidence)
            if weakest is None:
                return kept, self._contributions(kept, evidence, known)
            kept = self.space.without(kept, weakest)
        return kept, ()

    def _measure(self, kept: Point, names: list[str], evidence: dict[str, _Evidence]) -> None:
        """Take these parameters out, one at a time, and add to the evidence.

        One whose removal takes others with it is charged with all of them.
        """
        # What the search saw least of comes first, should the budget end.
        names = sorted(names, key=lambda name: self.fallback.get(name, 1.0))
        names = [n for n in names if self.space.violation(self.space.without(kept, n)) is None]
        for place in range(ROUNDS):
            chosen = self._affordable(kept, [n for n in names if not evidence[n].is_clear])
            if not chosen:
                break
            self._round(kept, chosen, evidence, backwards=place % 2 == 1)

    def _affordable(self, kept: Point, names: list[str]) -> list[str]:
        """Return as many of the parameters as the budget allows to be taken out."""
        # The whole runs first, on as many GPUs as take part, and what lacks one parameter after it.
        first = [kept] * self.evaluator.parallel
        while names and not self.evaluator.affordable([*first, *self._lacking(kept, names)]):
            names = names[:-1]
        return names

    def _lacking(self, kept: Point, names: Sequence[str]) -> list[dict[str, Value]]:
        return [self.space.without(kept, name) for name in names]

    def _round(
        self, kept: Point, names: list[str], evidence: dict[str, _Evidence], backwards: bool
    ) -> None:
        """Run the whole and what lacks one parameter, every other time backwards: drift cancels.

        The whole runs once on each GPU that takes part. References of two GPUs may differ by more
        than a parameter brings, so what lacks one is compared with the whole on its own GPU.
        """
        wholes = [dict(kept)] * min(self.evaluator.parallel, len(names))
        lacking = self._lacking(kept, names)
        if backwards:
            gone = self.evaluator.measure(lacking[::-1], "ablation")[::-1]
            there = self.evaluator.measure(wholes, "ablation")
        else:
            there = self.evaluator.measure(wholes, "ablation")
            gone = self.evaluator.measure(lacking, "ablation")
        known = {whole.gpu: (whole, gain) for whole in there if (gain := _gain(whole)) is not None}
        for name, trial in zip(names, gone, strict=True):
            if trial.gpu not in known or trial.state is TrialState.PRUNED:
                continue
            whole, gain = known[trial.gpu]
            lesser = _gain(trial)
            if lesser is None:
                evidence[name].failures += 1
            else:
                evidence[name].pairs.append((gain, lesser))
                evidence[name].uncertainty = uncertainty(whole, trial)

    def _contributions(
        self,
        kept: Point,
        evidence: Mapping[str, _Evidence],
        known: Mapping[str, Contribution],
    ) -> tuple[Contribution, ...]:
        found = []
        for name, value in kept.items():
            pairs, low, high = evidence[name].pairs, None, None
            if name in known:
                found.append(known[name])
                continue
            ratio, origin = self.fallback.get(name, math.nan), Origin.SEARCH
            if pairs:  # the ratio is of costs: without the parameter over with it
                ratio, origin = math.exp(evidence[name].contribution), Origin.FRESH
            if len(pairs) >= INTERVAL_ROUNDS:
                whole = paired_ratio(pairs)
                low, high = whole.ci99_low, whole.ci99_high
            found.append(Contribution(name, value, ratio, low, high, origin))
        # What is not known comes last.
        return tuple(sorted(found, key=lambda each: (math.isnan(each.ratio), -each.ratio)))


def _weakest(evidence: Mapping[str, _Evidence]) -> str | None:
    """Return what brings least of all that was taken out; None where each brings enough."""
    measured = [name for name, each in evidence.items() if each.rounds]
    weakest = min(measured, key=lambda name: evidence[name].contribution, default=None)
    if weakest is None or evidence[weakest].contribution >= evidence[weakest].needed:
        return None
    return weakest


def _gain(trial: Trial) -> float | None:
    return trial.gain if trial.state is TrialState.COMPLETE else None
