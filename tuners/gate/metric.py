"""A metric of a gate: what is read from runs of two versions, and what they say of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar

from gpuadvisor.domain.gate import Difference, GateRun, GateVerdict, MetricRole
from gpuadvisor.domain.measurement import Counts, Measurement
from gpuadvisor.domain.study import InTurns, TrialState
from gpuadvisor.tuners.gate.decision import LIMIT, TOLERANCE, Bounds, Run, RunPair, compare

COUNT_TOLERANCE = 0.05
"""Relative difference of counts that is none where runs of one version do not count the same:
autotuning of cuDNN and Triton picks other kernels in each process."""
COUNT_RUNS = 6
"""Runs of the head from which counts that differ from run to run can fail: that by chance all of
them are above all of the base's, two earlier runs among them, has a chance of 1 in 3003."""
AGREEING = 3
"""Runs of the base that have to count the same for a count to be exact."""
FAILING = (4, 3)
"""Runs of base and head that have to count for an exact count to fail. A script that counts one
number in some of its processes and more in the others, by an autotuner's choice, looks exact and
then worse with a chance of p**4 * (1 - p)**3, 0.84 % at most; with a single run of the head it
would be 10.5 %."""
SHOWN = 3
"""Things that are named where something is new."""

PROFILER = "profile"
"""Name by which the profiler that counts steps says why it could not."""
SIDES = ("base", "head")
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
    first: Sequence[GateRun] = ()
    """The first runs of both versions, which find caches empty."""
    counted: Sequence[GateRun] = ()
    """Runs of both versions that were made for their counts alone."""
    same_steps: bool = False
    """Whether all runs were counted in the same steps of the script, as far as it lets them."""

    def every(self, side: str) -> list[Measurement]:
        """Return all runs of a side, `base` or `head`, those that are no part of a pair first."""
        return _measured(run for run in self.all_runs if run.side == side)

    @property
    def all_runs(self) -> list[GateRun]:
        paired = [run for two in self.pairs for run in two[:2]]
        return [*self.first, *self.known, *self.counted, *paired]

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
    """What the metric's figures are given in: `ms`, `s`, `bytes`, `J`; empty for plain numbers."""
    role: ClassVar[MetricRole] = MetricRole.GUARDS
    """What the metric means for a gate's verdict unless the user asks for it, when it decides."""
    statistical: ClassVar[bool] = False
    """Whether it shares the error that a gate may make."""
    primary: ClassVar[bool] = False
    """Whether it has most of that."""
    on_request: ClassVar[bool] = False
    """Whether it is measured only where it is asked for, because that costs time."""

    @abstractmethod
    def lacks(self, evidence: Evidence) -> str:
        """Return why it cannot be measured of runs, as a clause; empty where it can."""

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

    def lacks(self, evidence: Evidence) -> str:
        read = self.reader(evidence.all)
        return "" if all(read(run) for run in evidence.all) else self.why_not

    def compare(self, evidence: Evidence, share: float) -> Difference:
        read = self.reader(evidence.all)

        def cost_of(run: GateRun) -> Run:
            value = run.trial.measurement and read(run.trial.measurement)
            assert value  # the runs were looked at
            return Run(value, run.sm_clock_mhz if self.follows_clock else None)

        pairs = [
            RunPair(
                cost_of(base), cost_of(head), first, self.ratio(base, head), self.within(base, head)
            )
            for base, head, first in evidence.pairs
        ]
        bounds = self.bounds(evidence, median(pair.base.cost for pair in pairs), share)
        known = [cost_of(run) for run in evidence.known]
        first = [cost_of(run) for run in evidence.first if self.primary and run.side == "head"]
        found = compare(self.name, pairs, known, bounds, next(iter(first), None))
        return replace(
            found,
            title=self.title,
            unit=self.unit,
            base=tuple(pair.base.cost for pair in pairs),
            head=tuple(pair.head.cost for pair in pairs),
            role=self.role,
        )

    def ratio(self, base: GateRun, head: GateRun) -> float | None:
        """Return the head's figure over the base's from blocks of runs that took turns.

        None where they took none, and for what is no figure of a block.
        """
        return None

    def within(self, base: GateRun, head: GateRun) -> tuple[InTurns, InTurns] | None:
        """Return what both sides took within each of two processes, in turns.

        None where each process had one side only, and for what is no figure of a block.
        """
        return None

    def bounds(self, evidence: Evidence, base: float, share: float) -> Bounds:
        """Return what is no regression, and what has to be ruled out, for such a base."""
        allowed = max(evidence.tolerance * self.tolerances, self.floor / base)
        return Bounds(allowed, allowed * evidence.limit / evidence.tolerance, share)


class Counted(Metric):
    """A number that is exact where every run of the base shows the same one.

    It may be counted in several steps of a run, and be another in some of them, such as those that
    print the loss: then it is exact where all runs of the base have one in common, and it got worse
    where each step of the head has more, and none a number that the base has, too. Where the same
    steps were counted, and all runs of the base are alike in each, it is their sum that counts.
    """

    kind: ClassVar[str]
    """What is counted, a key of `Measurement.counts`."""
    allowed: ClassVar[float] = 0.0
    """Relative difference that is no regression even where the number is exact."""

    def runs(self, evidence: Evidence) -> tuple[list[Measurement], list[Measurement]]:
        """Return the runs of base and head that are compared: while there are no pairs, all."""
        if evidence.pairs:
            return evidence.base, evidence.head
        return evidence.every("base"), evidence.every("head")

    def sides(self, evidence: Evidence) -> tuple[list[Counts], list[Counts]]:
        """Return what runs of base and head counted, by name."""
        base, head = (
            [run.counts.get(self.kind, {}) for run in runs] for runs in self.runs(evidence)
        )
        return base, head

    def compare(self, evidence: Evidence, share: float) -> Difference:
        of_base, of_head = self.sides(evidence)
        base, head = ([_totals(run) for run in side] for side in (of_base, of_head))
        steps = 1
        if evidence.same_steps and _are_alike(base, head):
            steps = len(base[0])
            of_base, of_head = (list(map(_summed, side)) for side in (of_base, of_head))
            base, head = ([[sum(run)] for run in side] for side in (base, head))
        common = set[int].intersection(*map(set, base)) if len(base) >= AGREEING else set()
        tolerance = self.allowed if common else COUNT_TOLERANCE
        usual, new = ([_usual(run) / steps for run in side] for side in (base, head))
        ratio = ratio_of(median(new), median(usual))
        return Difference(
            self.name,
            _judged(base, head, common, self.allowed),
            ratio,
            ratio_of(min(new), max(usual)),
            ratio_of(max(new), min(usual)),
            ratio,
            tolerance,
            tolerance,
            title=self.title,
            unit=self.unit,
            base=tuple(usual),
            head=tuple(new),
            role=self.role,
            exact=bool(common),
            detail="" if self.unit else _new(of_base, of_head, steps),
        )


class OfCompiler(Counted):
    """What Dynamo did, compared where both versions compile: to begin to is no regression."""

    def lacks(self, evidence: Evidence) -> str:
        base, head = self.runs(evidence)
        compile_all = all(run.compiles for run in (*base, *head))
        return "" if compile_all else "a version compiles nothing"


class Traced(Counted):
    """A number that is counted in some steps after those that are measured.

    Counted are the runs before the pairs; those of pairs too only where the base's do not agree.
    """

    needs_gpu: ClassVar[bool] = False
    """Whether there is none without a GPU."""
    why_not: ClassVar[str] = "there are none"

    def lacks(self, evidence: Evidence) -> str:
        for run in (*evidence.first, *evidence.known, *evidence.counted):
            measurement = measured(run)
            for knob in measurement.applied if measurement else ():
                if knob.knob == PROFILER and knob.state == "refused":
                    return knob.detail
        return "" if all(self.sides(evidence)) else self.why_not

    def compare(self, evidence: Evidence, share: float) -> Difference:
        steps = [run.counted_steps for run in evidence.all_runs if run.counted_steps]
        among = (
            (min(first for first, _ in steps), max(last for _, last in steps)) if steps else None
        )
        return replace(super().compare(evidence, share), in_steps=among)

    def runs(self, evidence: Evidence) -> tuple[list[Measurement], list[Measurement]]:
        base, head = (
            [run for run in evidence.every(side) if self.kind in run.counts] for side in SIDES
        )
        return base, head

    def agrees(self, runs: Iterable[GateRun]) -> bool:
        """Say whether those runs of the base that were counted have a number in common."""
        base = [run for run in runs if run.side == "base"]
        counted = [m.counts[self.kind] for m in _measured(base) if self.kind in m.counts]
        totals = [set(_totals(each)) for each in counted]
        return not totals or bool(set[int].intersection(*totals))


def _totals(counts: Counts) -> list[int]:
    """Return the sum over all names, of each step; 0 where nothing was counted."""
    return [sum(each) for each in zip(*counts.values(), strict=True)] or [0]


def _are_alike(base: Sequence[Sequence[int]], head: Sequence[Sequence[int]]) -> bool:
    """Say whether runs of the base are alike in each step, and those of the head as long."""
    agree = len(base) >= AGREEING and all(run == base[0] for run in base)
    return agree and all(len(run) == len(base[0]) for run in head)


def _summed(counts: Counts) -> Counts:
    return {name: (sum(each),) for name, each in counts.items()}


def _usual(totals: Sequence[int]) -> float:
    """Return the number of most steps, the least of several."""
    return float(min(totals, key=lambda each: (-totals.count(each), each)))


def _judged(
    base: Sequence[Sequence[int]], head: Sequence[Sequence[int]], common: Set[int], allowed: float
) -> GateVerdict:
    seen = {total for run in base for total in run}
    found = {total for run in head for total in run}
    if common:
        if min(found) <= min(common) * (1 + allowed) or found & seen:
            return GateVerdict.PASS
        enough = len(base) >= FAILING[0] and len(head) >= FAILING[1]
        return GateVerdict.FAIL if enough else GateVerdict.INCONCLUSIVE
    most = max(map(_usual, base)) * (1 + COUNT_TOLERANCE)
    if min(map(_usual, head)) > most and len(head) >= COUNT_RUNS:
        return GateVerdict.FAIL
    is_close = median(map(_usual, head)) <= most
    return GateVerdict.PASS if is_close else GateVerdict.INCONCLUSIVE


def _new(base: Sequence[Counts], head: Sequence[Counts], steps: int) -> str:
    """Return what every run of the head counts more of than any run of the base, as a clause.

    The counts are sums over so many steps.
    """
    most: dict[str, int] = {}
    for each in base:
        for name, counts in each.items():
            most[name] = max(*counts, most.get(name, 0))
    more = {
        name: min(min(each.get(name, (0,))) for each in head) - most.get(name, 0)
        for name in dict.fromkeys(name for each in head for name in each)
    }
    found = sorted((name for name in more if more[name] > 0), key=lambda name: -more[name])
    rest = [f"{len(found) - SHOWN} others"] if len(found) > SHOWN else []
    return "; ".join([*(f"+{more[name] / steps:g} {name}" for name in found[:SHOWN]), *rest])


def ratio_of(head: float, base: float) -> float:
    """Return the one over the other; infinite from 0, and 1 where both are 0."""
    return head / base if base else (math.inf if head else 1.0)


def _measured(runs: Iterable[GateRun]) -> list[Measurement]:
    return [m for run in runs if (m := measured(run)) is not None]


def measured(run: GateRun) -> Measurement | None:
    """Return what was measured of a run; None where it failed."""
    return run.trial.measurement if run.trial.state is TrialState.COMPLETE else None
