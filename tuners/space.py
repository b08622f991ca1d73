"""The seam between a search and what it searches: parameters, their values, and what a point costs.

The ordered search, the neighbourhood and the ablation know a `Space` and an `Evaluator`, and
nothing of knobs, scripts or processes. Knobs are one client (`gpuadvisor.tuners.knob_space`);
whatever has parameters and can measure a point can be another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Trial, TrialState

Point = Mapping[str, Value]
"""Parameter name to value. A parameter that is absent has its default: the empty point changes
nothing, and is what every gain is relative to."""


@dataclass(frozen=True)
class Parameter:
    """One thing that can be set, and how a search should go about it."""

    name: str
    values: tuple[Value, ...]
    """Values worth trying, the most promising first; the default is not among them."""
    default: Value | None = None
    """Value of a point that does not name it, for restrictions; None if nobody needs to know."""
    excludes: frozenset[str] = frozenset()
    """Parameters that cannot be set together with this one."""
    progressive: bool = False
    """Whether values are tried in order, each on top of the last, until one stops paying."""
    patience: int = 2
    """Values tried in vain before the others are left alone."""
    refines: str | None = None
    """Cheaper parameter of which it is a costly form: where that one did harm or could not run,
    this one is spared."""
    unlikely: bool = False
    """Whether little is to be expected of it, so that it comes after the others."""
    missing: Callable[[Point], str | None] = lambda point: None
    """Returns which other setting of a point it needs and does not have, or None."""
    pointless: Callable[[Measurement], str | None] = lambda best: None
    """Returns why it cannot improve a point with this measurement, or None if it might."""
    relieves: Callable[[Measurement], Value | None] = lambda run: None
    """Returns the value beside which the settings of a run may show what they bring, as they wanted
    more of the machine than there is without it, or None."""
    limited: Callable[[Measurement], str | None] = lambda best: None
    """Returns why it can bring little on top of a point with this measurement, so that it comes
    after all else, or None."""


@dataclass(frozen=True)
class Space:
    """Parameters in the order in which they are tried, and which points make sense."""

    parameters: tuple[Parameter, ...] = ()
    restrictions: tuple[Callable[[Point], str | None], ...] = ()
    """Each returns why a complete point (defaults filled in) cannot be evaluated, or None."""

    @cached_property
    def by_name(self) -> Mapping[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __getitem__(self, name: str) -> Parameter:
        return self.by_name[name]

    def combined(self, point: Point, name: str, value: Value) -> dict[str, Value]:
        """Return the point with a parameter set, as its last, and without those it excludes."""
        excludes = self[name].excludes
        kept = {
            other: old
            for other, old in point.items()
            if other != name and other not in excludes and name not in self[other].excludes
        }
        return {**kept, name: value}

    def relieved(self, trial: Trial) -> dict[str, Value] | None:
        """Return a trial's point with the setting, as its last, beside which it may show what it
        brings; None where it wanted no more of the machine than there is."""
        run = trial.measurement
        if run is None or trial.state not in (TrialState.COMPLETE, TrialState.PRUNED):
            return None
        for each in self.parameters:
            value = None if each.name in trial.settings else each.relieves(run)
            if value in each.values and each.excludes.isdisjoint(trial.settings):
                return self.combined(trial.settings, each.name, value)
        return None

    def without(self, point: Point, dropped: str) -> dict[str, Value]:
        """Return the point without a parameter, and without those that need it."""
        kept = {name: value for name, value in point.items() if name != dropped}
        while True:
            lost = [name for name in kept if self[name].missing(kept) is not None]
            if not lost:
                return kept
            for name in lost:
                del kept[name]

    def missing(self, point: Point) -> str | None:
        """Return what a parameter of the point needs and does not have, or None."""
        return next(filter(None, (self[name].missing(point) for name in point)), None)

    def violation(self, point: Point) -> str | None:
        """Return which restriction keeps the point from being evaluated, or None."""
        if not self.restrictions:
            return None
        defaults = {p.name: p.default for p in self.parameters if p.default is not None}
        complete = {**defaults, **point}
        return next(filter(None, (check(complete) for check in self.restrictions)), None)

    def allows(self, point: Point) -> bool:
        """Say whether the point can be evaluated: nothing excluded, missing or restricted."""
        excluded = any(self[name].excludes & point.keys() for name in point)
        return not excluded and self.missing(point) is None and self.violation(point) is None


class Evaluator(Protocol):
    """Measures points and compares each with the empty point."""

    @property
    def trials(self) -> Sequence[Trial]:
        """All that was measured so far, in order; the empty point's first run comes first."""
        ...

    @property
    def parallel(self) -> int:
        """Points that can be measured side by side, one a GPU."""
        ...

    def measure(
        self,
        points: Sequence[Point],
        phase: str,
        slower_than: float | None = None,
        turned: tuple[Point, Point] | None = None,
    ) -> list[Trial]:
        """Make one trial of each point, side by side where there are GPUs for it.

        A trial whose gain falls clearly below `slower_than` may be ended early as pruned. Where
        that can be done and is worth it, both sides of a proof, `turned`, are also timed in turns
        within each trial, after the trial itself.
        """
        ...

    def affordable(self, batch: Sequence[Point]) -> bool:
        """Say whether the budget has room for one more trial of each of these points."""
        ...


class QueuedEvaluator(Protocol):
    """Measures points of which some are prepared while others are measured."""

    @property
    def capacity(self) -> int:
        """Points that can be on their way at once."""
        ...

    def affordable(self, points: int) -> bool:
        """Say whether the budget has room for so many points beyond those that are finished."""
        ...

    def start(self, point: Point) -> None:
        """Take a point; it returns at once."""
        ...

    def finished(self) -> Trial | None:
        """Wait for a point that was started, whichever is first; None once the user has stopped."""
        ...
