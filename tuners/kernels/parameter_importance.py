"""Which parameters of a kernel matter, from the points that were evaluated.

Two figures. *Share*: each value of each parameter is given a factor by which it multiplies the
time, whatever the others are (least squares on the logarithm, all parameters at once, so that a
search that tried good values together misleads less). A parameter's share is the variance of its
factors' logarithms, all of its values counting alike, of that of all parameters and of what these
factors leave unexplained: what parameters do only together, and noise. It is the first-order term
of a functional analysis of variance. *Cost* assumes nothing: the fastest time found with a value
over the fastest of all, so what that value costs at most once all else is chosen for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuadvisor.domain.kernel_records import Evaluation
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import TrialState

POINTS_PER_FACTOR = 1.5
"""Timed points below which, for each factor, no share is told: factors explain any few. [own]"""
RIDGE = 0.05
"""Points' worth by which a factor is drawn to 1: it decides what no point tells apart. [own]"""


@dataclass(frozen=True)
class ValueCost:
    """A parameter's value."""

    value: Value
    points: int
    """Points with it that were timed."""
    cost: float
    """The fastest time with it over the fastest of all, from 1 on."""


@dataclass(frozen=True)
class Importance:
    """How much a parameter matters."""

    parameter: str
    share: float | None
    """Share of the variance of log(time), 0 to 1; None of too few points."""
    values: tuple[ValueCost, ...]
    """The values that were timed, in the parameter's order."""

    @property
    def cost(self) -> float:
        """What its worst value costs at most: the largest of `values`."""
        return max((each.cost for each in self.values), default=1.0)


Timed = Sequence[tuple[Mapping[str, Value], float]]
"""Points with their times, relative to the default in the same rounds: clocks drift over a search.
"""


def importances(
    parameters: Mapping[str, Sequence[Value]], evaluations: Sequence[Evaluation]
) -> tuple[Importance, ...]:
    """Return each parameter with several timed values, that with the largest share first."""
    timed = [
        (each.point, 1 / each.gain)
        for each in evaluations
        if each.state in (TrialState.COMPLETE, TrialState.PRUNED) and each.gain
    ]
    costs = {name: _costs(name, values, timed) for name, values in parameters.items()}
    costs = {name: values for name, values in costs.items() if len(values) > 1}
    shares = _shares({n: [v.value for v in values] for n, values in costs.items()}, timed)
    found = [Importance(name, shares.get(name), values) for name, values in costs.items()]
    return tuple(sorted(found, key=lambda each: (-(each.share or 0.0), -each.cost)))


def unexplained(found: Sequence[Importance]) -> float | None:
    """Return what no parameter explains by itself, 0 to 1; None where no share is told."""
    shares = [each.share for each in found if each.share is not None]
    return max(0.0, 1 - sum(shares)) if shares else None


def _costs(name: str, values: Sequence[Value], timed: Timed) -> tuple[ValueCost, ...]:
    fastest = min((time for _, time in timed), default=0.0)
    counts = Counter(point[name] for point, _ in timed)
    return tuple(
        ValueCost(
            value, counts[value], min(t for point, t in timed if point[name] == value) / fastest
        )
        for value in values
        if value in counts
    )


def _shares(values: Mapping[str, Sequence[Value]], timed: Timed) -> dict[str, float]:
    """Return the share of each parameter; nothing of too few points."""
    import numpy as np

    places = [(name, value) for name, several in values.items() for value in several]
    factors = 1 + len(places) - len(values)
    if not values or len(timed) < POINTS_PER_FACTOR * factors:
        return {}
    design = np.array(
        [[point[name] == value for name, value in places] for point, _ in timed], float
    )
    logs = np.log([time for _, time in timed])
    logs -= logs.mean()
    inner = design - design.mean(axis=0)
    effects = np.linalg.solve(inner.T @ inner + RIDGE * np.eye(len(places)), inner.T @ logs)
    left = float(((logs - inner @ effects) ** 2).sum()) / (len(timed) - factors)
    variances = {
        name: float(np.var([effects[n] for n, place in enumerate(places) if place[0] == name]))
        for name in values
    }
    total = sum(variances.values()) + left
    return {name: each / total if total > 0 else 0.0 for name, each in variances.items()}
