"""Ablation: take each kept knob out again, and keep only those that are missed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuadvisor.domain.knobs import Contribution, ScriptFacts, Settings, Value
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.bench import Bench
from gpuadvisor.tuners.candidates import without
from gpuadvisor.tuners.statistics import paired_ratio, uncertainty

ROUNDS = 3
"""Most rounds of the best and of the settings that lack one knob, in turn."""
CLEAR = 4.0
"""A contribution of so many times its uncertainty needs no further round."""
MIN_CONTRIBUTION = 0.005
"""A knob that brings less is not worth a line in the user's code."""


@dataclass
class Ablation:
    """The ablation in progress."""

    bench: Bench
    knobs: Mapping[str, Knob]
    facts: ScriptFacts
    fallback: Mapping[str, float] = field(default_factory=dict)
    """Knob name to what it brought when the search kept it, for want of an own measurement."""
    unmeasured: list[str] = field(default_factory=list)
    """Knobs that were kept on the search's word, because the budget ended."""

    def run(self, settings: Settings) -> tuple[dict[str, Value], tuple[Contribution, ...]]:
        """Return the settings that are left, and what each of them contributes."""
        kept = dict(settings)
        while kept:
            logs = self._measure(kept)
            weakest = self._weakest(logs)
            if weakest is None:
                return dict(kept), self._contributions(kept, logs)
            kept = without(kept, weakest, self.knobs, self.facts)
        return {}, ()

    def _measure(self, kept: Settings) -> dict[str, list[tuple[float, float]]]:
        """Return, for each knob, pairs of gains without it and with it.

        A knob whose removal takes others with it is charged with all of them.
        """
        pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in kept}
        self._uncertainty = dict.fromkeys(kept, 0.0)
        for _ in range(ROUNDS):
            unclear = [name for name in kept if not self._is_clear(name, pairs[name])]
            variants = [dict(kept), *(without(kept, n, self.knobs, self.facts) for n in unclear)]
            if not unclear or not all(map(self.bench.affordable, variants)):
                break
            whole, *lacking = self.bench.measure(variants, "ablation")
            gain = _gain(whole)
            if gain is None:
                break
            for name, trial in zip(unclear, lacking, strict=True):
                # A knob without which the script fails or computes otherwise is needed.
                pairs[name].append((gain, _gain(trial) or 0.0))
                self._uncertainty[name] = uncertainty(whole, trial)
        return pairs

    def _is_clear(self, name: str, pairs: list[tuple[float, float]]) -> bool:
        return bool(pairs) and abs(_mean_log(pairs)) >= CLEAR * self._uncertainty[name]

    def _weakest(self, pairs: Mapping[str, list[tuple[float, float]]]) -> str | None:
        """Return the knob that contributes least, if that is too little; else None."""
        measured = {name: _mean_log(values) for name, values in pairs.items() if values}
        self.unmeasured = [name for name in pairs if name not in measured]
        if not measured:
            return None
        weakest = min(measured, key=lambda name: measured[name])
        rounds = len(pairs[weakest])
        needed = max(MIN_CONTRIBUTION, 2 * self._uncertainty[weakest] / math.sqrt(rounds))
        return weakest if measured[weakest] < needed else None

    def _contributions(
        self, kept: Settings, pairs: Mapping[str, list[tuple[float, float]]]
    ) -> tuple[Contribution, ...]:
        found = []
        for name, value in kept.items():
            usable = [(with_, gone) for with_, gone in pairs[name] if gone > 0]
            if len(usable) >= 2:
                ratio = paired_ratio(usable, looks=1)
                found.append(
                    Contribution(name, value, ratio.ratio, ratio.ci99_low, ratio.ci99_high)
                )
            else:
                ratio_only = usable[0][0] / usable[0][1] if usable else self.fallback.get(name, 1.0)
                found.append(Contribution(name, value, ratio_only))
        return tuple(sorted(found, key=lambda contribution: -contribution.ratio))


def _gain(trial: Trial) -> float | None:
    return trial.gain if trial.state is TrialState.COMPLETE else None


def _mean_log(pairs: list[tuple[float, float]]) -> float:
    if any(gone <= 0 for _, gone in pairs):
        return math.inf
    return math.fsum(math.log(with_ / gone) for with_, gone in pairs) / len(pairs)
