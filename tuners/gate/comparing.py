"""Pairs of runs of two versions, looked at in groups, until it is clear which is worse."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.domain.gate import Difference, GateRun, GateVerdict, MetricRole
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.gate.decision import LIMIT, LOOKS, TOLERANCE, chance_to_tell
from gpuadvisor.tuners.gate.metric import (
    COUNT_RUNS,
    FAILING,
    Counted,
    Evidence,
    Metric,
    measured,
)
from gpuadvisor.tuners.gate.metrics import are_counts, check_names, chosen
from gpuadvisor.tuners.gate.obstacle import obstacle
from gpuadvisor.tuners.proof import MAX_REPEATED
from gpuadvisor.tuners.turn_order import orders

KNOWN = 2
"""Runs of the base before the pairs, which say how much its runs differ: with them three pairs can
show a gross regression."""
PRIMARY_SHARE = 0.9
"""Part of a gate's error that the step time may use up. All other figures that differ from run to
run and may fail it share the rest equally: none of them is what most regressions show in."""
MAX_FAILURES = 1
"""Pairs with a run that failed that are run again: a second one is no accident."""
OBVIOUS = 2.0
"""Ratio of step times beyond which few runs are enough. Counted beside the neighbours of
`benchmarks/gate_decision.py`, with `OBVIOUS_WINDOWS` 0.9 of it: of 7500 unchanged versions 11
failed early at 1.3, 9 at 1.5, 8 at 2 and none at 3, by which those neighbours slow down at most. In
hard noise a version 2.2 times as slow fails after 7 starts at 2, and after 12 at 3."""
OBVIOUS_PAIRS = 2
"""Pairs, of both orders, after which a version that is slower by so much can fail. Each of its
runs, the first one too, has to take longer than each of the base's by `OBVIOUS`, and nearly so each
window of half a second. Simulated beside second jobs that slow everything down by up to 3 and come
and go every 10 s to 5 min, an unchanged version did so in at most 4 of 3000 gates."""
OBVIOUS_WINDOWS = 1.8
"""Ratio of the head's fastest window to the base's slowest."""
COUNTED = "counted"
"""Place of a run that is made for its counts alone."""
CONFIRMING = FAILING[0] + FAILING[1] - (2 + KNOWN)
"""Such runs after which a count that looks worse has failed: by turns of head and base."""
MOST_COUNTED = 2 * (COUNT_RUNS - 1) - 1
"""Such runs after which counts that are not exact are judged: six of the head then."""
NOT_NEEDED = "a count had failed before: --metric step_time has times compared, too"
IN_TURNS = ", in turns"
"""Part of the place of runs of both versions that live at the same time."""
SHORT = ", short"
"""End of the place of a run that is measured for a short time, as the versions differ so much."""
FUTILE = 0.05
"""Chance to tell below which a gate ends without an answer. Counted in the hard noise of
`benchmarks/gate_decision.py`, 300 gates each of an unchanged version, of one 3 % slower and of one
5 % slower: at 0.05 as many fail and pass as without it, and 12 % of the starts are saved at 3 %; at
0.1 that is 19 %, and one in a hundred that are 5 % slower is not found any more."""
FUTILE_FROM = 10
"""Pairs from which that is looked at: with fewer, nobody knows how much runs differ."""


RunBoth = Callable[[Sequence[str], str], Mapping[str, GateRun]]
"""Called with both sides, that which begins first, and what the runs are for."""


@dataclass
class Compared:
    """What the pairs of a gate showed."""

    differences: tuple[Difference, ...] = ()
    pairs: int = 0
    failed: GateRun | None = None
    """The run of a version that failed twice, which ended the comparison."""
    unmeasured: tuple[tuple[str, str], ...] = ()
    """Names of metrics that could not be measured, and why."""
    unanswered: bool = False
    """Whether a metric that was asked for is among those."""
    hopeless: bool = False
    """Whether it ended early, as more pairs would hardly have told."""
    obstacle: str = ""
    """Where it stayed open: what kept it from being decided, and what would help."""

    @property
    def verdict(self) -> GateVerdict:
        """What holds of all metrics together."""
        counted = [each for each in self.differences if each.role is not MetricRole.REPORTED]
        if any(each.verdict is GateVerdict.FAIL for each in counted):
            return GateVerdict.FAIL
        deciding = {each.verdict for each in counted if each.role is MetricRole.DECIDES}
        passed = deciding == {GateVerdict.PASS} and not self.unanswered
        return GateVerdict.PASS if passed else GateVerdict.INCONCLUSIVE

    @property
    def is_decided(self) -> bool:
        """Say whether more pairs would change nothing."""
        return self.verdict is GateVerdict.FAIL or all(
            each.verdict is GateVerdict.PASS
            for each in self.differences
            if each.role is MetricRole.DECIDES
        )


@dataclass
class Comparing:
    """Runs pairs of both versions in random order until every metric is decided, or one is worse.

    `run` runs a version (`base` or `head`) in a fresh process, on the same device for both. Pairs
    beside which something else used the machine are run again, a few times. `first` are the runs of
    base and head that showed whether they work. The same `seed` gives the same order.
    """

    run: Callable[[str, str], GateRun]
    """Called with the version and what the run is for."""
    first: Sequence[GateRun] = ()
    tolerance: float = TOLERANCE
    limit: float = LIMIT
    seed: str = ""
    on_disturbed: Callable[[str, bool], None] = lambda disturbance, repeated: None
    """Told what disturbed a pair, and whether it is run again."""
    on_obstacle: Callable[[str], None] = lambda obstacle: None
    """Told once, as soon as it is seen, what will keep the pairs from deciding."""
    asked: Collection[str] = ()
    """Names of metrics that the verdict rests on too, besides those that it rests on anyway."""
    only: Collection[str] = ()
    """Names of metrics besides which, and those that are asked for, none is compared; empty for
    the usual ones."""
    error_share: float = 1.0
    """Part of one gate's error that it may make, where several gates make it together."""
    same_steps: bool = False
    """Whether runs are counted in the same steps of the script."""
    in_turns: Callable[[], RunBoth | None] = lambda: None
    """Asked before each pair for what runs both versions at the same time, in turns; None where
    they are to run one after the other."""
    disturbs: Callable[[GateRun], str] = lambda run: run.trial.disturbance
    """Returns what disturbed a run so that its pair has to be run again; empty where nothing."""
    known: list[GateRun] = field(default_factory=list, init=False)
    """Runs of the base that are no part of a pair; where some are given, no others are made."""
    _pairs: list[tuple[GateRun, GateRun, bool]] = field(default_factory=list, init=False)
    """Base, head, and whether the base came first."""
    _counted: list[GateRun] = field(default_factory=list, init=False)
    """Runs of both that were made for their counts alone."""

    def __post_init__(self) -> None:
        check_names((*self.asked, *self.only))
        self._metrics = chosen(self.asked, self.only)
        self._decisive = {*self.asked, *self.only}
        self._has_time = any(metric.primary for metric in self._metrics)

    def go(self) -> Compared:
        if are_counts(self._metrics):
            looked = self._look_at_base()
            return looked if isinstance(looked, Compared) else self._count(MOST_COUNTED)
        found, repeated, failures, told = Compared(), 0, 0, ""
        order = orders(self.seed)
        again: bool | None = None
        hurry = self._has_time and self._is_slower(*self._firsts())
        most: int | None = None
        while len(self._pairs) < LOOKS[-1]:
            if most is None and not hurry:
                looked = self._look_at_base()
                if isinstance(looked, Compared):
                    return looked
                most = looked
                counted = self._count(CONFIRMING)
                if counted.failed is not None or self._is_enough(counted):
                    return counted
            base_first = next(order) if again is None else again
            if hurry and self._pairs:
                base_first = not self._pairs[-1][2]
            again = None
            runs = self._run_both(base_first, SHORT if hurry else "")
            failed = next((run for run in runs.values() if measured(run) is None), None)
            if failed is not None:
                failures += 1
                if failures > MAX_FAILURES:
                    return replace(found, failed=failed)
                again = base_first
                continue
            disturbance = next(filter(None, map(self.disturbs, runs.values())), "")
            if disturbance:
                hurry = False  # what is obvious has to be so on a quiet machine
                may = repeated < (MAX_REPEATED if most is None else most)
                repeated += may
                self.on_disturbed(disturbance, may)
                if may:
                    again = base_first
                    continue
            self._pairs.append((runs["base"], runs["head"], base_first))
            if hurry and len(self._pairs) == OBVIOUS_PAIRS:
                if self._is_obvious():
                    return self._obviously(self._look())
                hurry = False
                continue
            if len(self._pairs) in LOOKS:
                found = self._look()
                if found.is_decided or found.hopeless:
                    break
            if not (told or hurry) and (told := self._obstacle()):
                self.on_obstacle(told)
        if found.verdict is GateVerdict.INCONCLUSIVE and found.differences:
            return replace(found, obstacle=self._obstacle())
        return found

    def _run_both(self, base_first: bool, short: str) -> Mapping[str, GateRun]:
        """Run both versions, in turns where that can be done, else one after the other.

        Pairs in turns are named so: where they are given up, others follow from the first on.
        """
        place = f"pair {len(self._pairs) + 1}"
        sides = ("base", "head") if base_first else ("head", "base")
        in_turns = self.in_turns() if self._has_time else None
        if in_turns is not None:
            return in_turns(sides, f"{place}{IN_TURNS}{short}")
        return {side: self.run(side, f"{place}{short}") for side in sides}

    def _obstacle(self) -> str:
        return obstacle(self._evidence()) if self._has_time else ""

    def _count(self, most: int) -> Compared:
        """Return what counts show, after up to so many runs that are made for them alone.

        Those are made while one looks worse, or, where nothing but counts is compared, is not
        exact. Other metrics are not measured in what is returned.
        """
        failures = 0
        while True:
            found = self._look(counts=True)
            is_open = any(
                each.verdict is GateVerdict.INCONCLUSIVE if each.exact else most == MOST_COUNTED
                for each in found.differences
            )
            if not is_open or len(self._counted) >= most:
                return found
            run = self.run(("head", "base")[len(self._counted) % 2], COUNTED)
            if measured(run) is not None:
                self._counted.append(run)
                continue
            failures += 1
            if failures > MAX_FAILURES:
                return replace(found, failed=run)

    def _is_enough(self, counted: Compared) -> bool:
        """Say whether counts have failed, and nothing that takes pairs was asked for."""
        waits = any(m.name in self._decisive and not isinstance(m, Counted) for m in self._metrics)
        return counted.verdict is GateVerdict.FAIL and not waits

    def _look_at_base(self) -> int | Compared:
        """Run the base alone a few times; return how many disturbed pairs are run again.

        Where most runs are disturbed, to run a pair again would change nothing. Where all fail,
        return that instead.
        """
        runs = self.known or [self.run("base", "known") for _ in range(KNOWN)]
        self.known = [run for run in runs if run.trial.state is TrialState.COMPLETE]
        if not self.known:
            return Compared(failed=runs[-1])
        evidence = self._evidence()
        for metric in self._metrics if evidence.base else ():
            if metric.name in self._decisive and (why := metric.lacks(evidence)):
                option = "--metric" if metric.name in self.asked else "--only"
                raise UsageError(f"{option} {metric.name} cannot be measured: {why}")
        disturbed = sum(bool(run.trial.disturbance) for run in self.known)
        return 0 if 2 * disturbed > len(self.known) else MAX_REPEATED

    def _firsts(self) -> tuple[list[GateRun], list[GateRun]]:
        of = {side: [run for run in self.first if run.side == side] for side in ("base", "head")}
        return of["base"], of["head"]

    def _is_slower(self, base: Sequence[GateRun], head: Sequence[GateRun]) -> bool:
        """Say whether each of the head's runs took much longer than each of the base's."""
        of_base, of_head = (
            [m.mean_step_ms for run in side if (m := measured(run)) is not None]
            for side in (base, head)
        )
        return bool(of_base and of_head) and min(of_head) > OBVIOUS * max(of_base)

    def _is_obvious(self) -> bool:
        """Say whether the head is slower by so much that a second job can hardly pass for it."""
        base, head = self._firsts()
        base, head = base + [each[0] for each in self._pairs], head + [p[1] for p in self._pairs]
        quiet = not any(map(self.disturbs, (*base, *head)))
        return quiet and self._is_slower(base, head) and _are_apart(base, head)

    def _obviously(self, found: Compared) -> Compared:
        """Return what was found, with the step time for a regression."""
        time = found.differences[0]
        worse = replace(
            time,
            verdict=GateVerdict.FAIL,
            low=min(time.head) / max(time.base),
            high=max(time.head) / min(time.base),
            detail=f"each of its runs took more than {OBVIOUS:g} times as long as any of the base",
        )
        return replace(found, differences=(worse, *found.differences[1:]))

    def _look(self, counts: bool = False) -> Compared:
        """Return what all runs so far show of each metric, or only of `counts`."""
        evidence = self._evidence()
        sharing = [m for m in self._metrics if m.statistical and self._role(m) != "reported"]
        others = max(1, sum(not metric.primary for metric in sharing))
        found, unmeasured, unanswered = [], [], False
        hopeless = False
        for metric in self._metrics:
            why = metric.lacks(evidence)
            if counts and not why:
                is_there = isinstance(metric, Counted) and all(metric.sides(evidence))
                why = "" if is_there else NOT_NEEDED
            if why:
                unmeasured.append((metric.name, why))
                unanswered |= metric.name in self._decisive
                continue
            share = PRIMARY_SHARE if metric.primary else (1 - PRIMARY_SHARE) / others
            share = self.error_share * (share if self._has_time else 1 / others)
            difference = replace(metric.compare(evidence, share), role=self._role(metric))
            found.append(difference)
            hopeless |= self._is_hopeless(metric, difference, share)
        pairs = len(self._pairs)
        return Compared(
            tuple(found), pairs, None, tuple(unmeasured), unanswered, hopeless and pairs < LOOKS[-1]
        )

    def _evidence(self) -> Evidence:
        return Evidence(
            self.known,
            self._pairs,
            self.tolerance,
            self.limit,
            self.first,
            self._counted,
            self.same_steps,
        )

    def _role(self, metric: Metric) -> MetricRole:
        return MetricRole.DECIDES if metric.name in self._decisive else metric.role

    def _is_hopeless(self, metric: Metric, found: Difference, share: float) -> bool:
        """Say whether a metric that the verdict rests on will hardly be decided."""
        pairs = len(self._pairs)
        if found.verdict is not GateVerdict.INCONCLUSIVE or pairs < FUTILE_FROM:
            return False
        decides = metric.statistical and found.role is MetricRole.DECIDES
        return decides and chance_to_tell(found, pairs, share) < FUTILE


def _are_apart(base: Sequence[GateRun], head: Sequence[GateRun]) -> bool:
    """Say whether each window of the head's runs took much longer than each of the base's."""
    of_base, of_head = (
        [ms for run in side if (m := measured(run)) is not None for ms in m.window_step_ms]
        for side in (base, head)
    )
    return bool(of_base and of_head) and min(of_head) > OBVIOUS_WINDOWS * max(of_base)
