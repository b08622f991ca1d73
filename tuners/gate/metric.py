"""A metric of a gate: what is read from runs of two versions, and what they say of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar

from gpuadvisor.domain.gate import Difference, GateRun, GateVerdict, MetricRole
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.gate.decision import LIMIT, TOLERANCE, Bounds, Run, RunPair, compare

COUNT_TOLERANCE = 0.05
"""Relative difference of counts that is none where runs of one version do not count the same:
autotuning of cuDNN and Triton picks other kernels in each process."""
COUNT_PAIRS = 6
"""Pairs from which counts that differ from run to run can fail: that by chance all of the head's
are above all of the base's, two earlier runs among them, has a chance of 1 in 3003."""
AGREEING = 3
"""Runs of the base that have to count the same for a count to be exact."""
SHOWN = 3
"""Things that are named where something is new."""

Read = Callable[[Measurement], float | None]


@dataclass(frozen=True)
class Evidence:
    """Runs of both versions that were measured, and how closely they are compared."""

    known: Sequence[GateRun]
    """Earlier runs of the base."""
    pairs: Sequence[tuple[GateRun, GateRun, bool]]
    """Base, head, and whether the base came first."""
    tolerance: float = TOLERANCE
    limit: float = LIMIT

    @property
    def base(self) -> list[Measurement]:
        return _measured((*self.known, *(base for base, _, _ in self.pairs)))

    @property
    def head(self) -> list[Measurement]:
        return _measured(head for _, head, _ in self.pairs)

    @property
    def all(self) -> list[Measurement]:
        return [*self.base, *self.head]


class Metric(ABC):
    """One figure that a gate compares; more is worse."""

    name: ClassVar[str]
    title: ClassVar[str]
    unit: ClassVar[str] = ""
    """Of its figures: `ms`, `s`, `bytes`, `J`; empty for a number."""
    role: ClassVar[MetricRole] = MetricRole.GUARDS
    """What it means where the user says nothing; asked for, it decides."""
    statistical: ClassVar[bool] = False
    """Whether it shares the error that a gate may make."""
    primary: ClassVar[bool] = False
    """Whether it has most of that."""
    on_request: ClassVar[bool] = False
    """Whether it is measured only where it is asked for, because that costs time."""

    @abstractmethod
    def lacks(self, runs: Sequence[Measurement]) -> str:
        """Return why it cannot be measured of these runs, as a clause; empty where it can."""

    @abstractmethod
    def compare(self, evidence: Evidence, share: float) -> Difference:
        """Say what runs show of it that have it; `share` is its part of the gate's error."""


class Statistical(Metric):
    """A figure that differs from run to run, compared by pairs."""

    statistical = True
    floor: ClassVar[float] = 0.0
    """Difference, in its unit, that is no regression however small the base's figure is."""
    tolerances: ClassVar[float] = 1.0
    """The gate's tolerance and limit, times this, are its own."""
    follows_clock: ClassVar[bool] = False
    """Whether it is looked at as at one SM clock, too."""
    why_not: ClassVar[str] = "it is not known of every run"

    @abstractmethod
    def reader(self, runs: Sequence[Measurement]) -> Read:
        """Return what reads it, positive, from any of these runs; None where a run has it not."""

    def lacks(self, runs: Sequence[Measurement]) -> str:
        read = self.reader(runs)
        return "" if all(read(run) for run in runs) else self.why_not

    def compare(self, evidence: Evidence, share: float) -> Difference:
        read = self.reader(evidence.all)

        def cost_of(run: GateRun) -> Run:
            value = run.trial.measurement and read(run.trial.measurement)
            assert value  # the runs were looked at
            return Run(value, run.sm_clock_mhz if self.follows_clock else None)

        pairs = [
            RunPair(cost_of(base), cost_of(head), first) for base, head, first in evidence.pairs
        ]
        bounds = self.bounds(evidence, median(pair.base.cost for pair in pairs), share)
        found = compare(self.name, pairs, [cost_of(run) for run in evidence.known], bounds)
        return replace(
            found,
            title=self.title,
            unit=self.unit,
            base=tuple(pair.base.cost for pair in pairs),
            head=tuple(pair.head.cost for pair in pairs),
            role=self.role,
        )

    def bounds(self, evidence: Evidence, base: float, share: float) -> Bounds:
        """Return what is no regression, and what has to be ruled out, for such a base."""
        allowed = max(evidence.tolerance * self.tolerances, self.floor / base)
        return Bounds(allowed, allowed * evidence.limit / evidence.tolerance, share)


class Counted(Metric):
    """A number that is exact where all runs of the base agree on it."""

    @abstractmethod
    def counts(self, run: Measurement) -> Mapping[str, float] | None:
        """Return what is counted, by name; None where nobody counted."""

    def compare(self, evidence: Evidence, share: float) -> Difference:
        of_base, of_head = (
            [self.counts(run) or {} for run in side] for side in (evidence.base, evidence.head)
        )
        base, head = ([math.fsum(each.values()) for each in side] for side in (of_base, of_head))
        exact = len(set(base)) == 1 and len(base) >= AGREEING
        ratio = ratio_of(median(head), median(base))
        return Difference(
            self.name,
            _judged(base, head, exact, len(evidence.pairs)),
            ratio,
            ratio_of(min(head), max(base)),
            ratio_of(max(head), min(base)),
            ratio,
            0.0 if exact else COUNT_TOLERANCE,
            0.0 if exact else COUNT_TOLERANCE,
            title=self.title,
            unit=self.unit,
            base=tuple(base[len(evidence.known) :]),
            head=tuple(head),
            role=self.role,
            exact=exact,
            detail=_new(of_base, of_head),
        )


def _judged(base: Sequence[float], head: Sequence[float], exact: bool, pairs: int) -> GateVerdict:
    if exact and len(set(head)) == 1:
        return GateVerdict.FAIL if head[0] > base[0] else GateVerdict.PASS
    allowed = max(base) * (1 + COUNT_TOLERANCE)
    if min(head) > allowed and pairs >= COUNT_PAIRS:
        return GateVerdict.FAIL
    return GateVerdict.PASS if median(head) <= allowed else GateVerdict.INCONCLUSIVE


def _new(base: Sequence[Mapping[str, float]], head: Sequence[Mapping[str, float]]) -> str:
    """Return what every run of the head counts more of than any run of the base, as a clause."""
    most: dict[str, float] = {}
    for each in base:
        for name, count in each.items():
            most[name] = max(count, most.get(name, 0.0))
    more = {
        name: min(each.get(name, 0.0) for each in head) - most.get(name, 0.0)
        for name in dict.fromkeys(name for each in head for name in each)
    }
    found = sorted((name for name in more if more[name] > 0), key=lambda name: -more[name])
    rest = [f"{len(found) - SHOWN} others"] if len(found) > SHOWN else []
    return "; ".join([*found[:SHOWN], *rest])


def ratio_of(head: float, base: float) -> float:
    """Return the one over the other; infinite from 0, and 1 where both are 0."""
    return head / base if base else (math.inf if head else 1.0)


def _measured(runs: Iterable[GateRun]) -> list[Measurement]:
    return [m for run in runs if (m := measured(run)) is not None]


def measured(run: GateRun) -> Measurement | None:
    """Return what was measured of a run; None where it failed."""
    return run.trial.measurement if run.trial.state is TrialState.COMPLETE else None
