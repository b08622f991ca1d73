"""Pairs of runs of the benchmarks of two versions, looked at in groups, until each is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuadvisor.domain.gate import Difference, GateVerdict
from gpuadvisor.errors import RefusedError
from gpuadvisor.tuners.gate.comparing import FUTILE, FUTILE_FROM, KNOWN, MAX_FAILURES
from gpuadvisor.tuners.gate.decision import (
    LOOKS,
    Bounds,
    Run,
    RunPair,
    chance_to_tell,
    compare,
)
from gpuadvisor.tuners.gate.obstacle import scattered
from gpuadvisor.tuners.proof import MAX_REPEATED
from gpuadvisor.tuners.turn_order import orders
from gpuadvisor.tuning.gate.runs import OF_GPU


@dataclass(frozen=True)
class SideRun:
    """One fresh process of pytest of one version."""

    times_s: Mapping[str, float]
    """Median time of a call, by node id; a test that failed is not among them."""
    why: str = ""
    """Why tests are missing, as far as it is known."""
    disturbance: str = ""
    """What else used the machine, as a clause."""
    wall_s: float = 0.0
    clocks_mhz: Mapping[str, float | None] = field(default_factory=dict)
    """Mean SM clock while a benchmark was timed, by node id, where it could be read."""

    def run_of(self, test: str) -> Run | None:
        """Return the run of a benchmark; None where it gave no time."""
        time_s = self.times_s.get(test)
        return None if time_s is None else Run(time_s, self.clocks_mhz.get(test))


@dataclass
class Compared:
    """What was shown of each benchmark."""

    base: str
    """What was compared with: a commit, with the user's name for it, or a file of recordings."""
    differences: dict[str, tuple[Difference, int]] = field(default_factory=dict)
    """What each benchmark's times show, by node id, and how many pairs or recorded days show it."""
    notes: dict[str, str] = field(default_factory=dict)
    """Why a benchmark was not compared, by node id."""
    undecided: dict[str, str] = field(default_factory=dict)
    """Why a benchmark is inconclusive, by node id."""
    stored: bool = False
    """Whether it is recordings of other days that were compared with."""

    def regression(self, test: str) -> str | None:
        """Return a sentence for a benchmark that got slower; None for any other."""
        if test not in self.differences:
            return None
        found, count = self.differences[test]
        if found.verdict is not GateVerdict.FAIL:
            return None
        change, low, high = (100 * (each - 1) for each in (found.ratio, found.low, found.high))
        kind = "beside {} recorded days" if self.stored else "in {} pairs of fresh processes"
        basis = kind.format(count) + (", as at one clock" if found.clock_share else "")
        return (
            f"this benchmark takes {change:.1f} % longer than in {self.base} ({low:+.1f} to "
            f"{high:+.1f} % {basis}), more than the {100 * found.tolerance:g} % that is tolerated"
        )

    def document(self, test: str) -> dict[str, Any]:
        """Return what JSON says of a benchmark; times of each pair in seconds."""
        if test not in self.differences:
            verdict = str(GateVerdict.INCONCLUSIVE) if test in self.undecided else None
            reason = self.undecided.get(test) or self.notes.get(test)
            return {"base": self.base, "verdict": verdict, "reason": reason}
        found, _ = self.differences[test]
        both = found.base, found.head
        figures = (
            {"recorded": both[0], "runs": both[1]}
            if self.stored
            else {"pairs": [*zip(*both, strict=True)]}
        )
        return {
            "base": self.base,
            "verdict": str(found.verdict),
            "ratio": found.ratio,
            "low": found.low,
            "high": found.high,
            "unadjusted": found.unadjusted,
            "tolerance": found.tolerance,
            "limit": found.limit,
            **figures,
        }


def tell_disturbed(disturbance: str, again: bool, what: str, tell: Callable[[str], object]) -> None:
    """Say that a run is made again; RefusedError where it is not, and the GPU was disturbed."""
    if again:
        tell(f"{what} is run again: {disturbance}")
    elif OF_GPU in disturbance:
        raise RefusedError(
            f"{disturbance}, also when runs were repeated: nothing can be compared so; wait until "
            "the GPU is free and cool, or choose another one"
        )


@dataclass
class Comparing:
    """Runs both versions in pairs of random order; what is decided is not run again.

    All benchmarks together claim a regression that is none as often as one gate does: each has an
    equal share of its error. The same `seed` gives the same order.
    """

    run: Callable[[str, Sequence[str]], SideRun]
    """Runs some benchmarks of a version (`base` or `head`) in a fresh process."""
    tests: Sequence[str]
    found: Compared
    seed: str = ""
    tell: Callable[[str], object] = lambda sentence: None
    """Told what happens, in a sentence."""
    _known: list[SideRun] = field(default_factory=list, init=False)
    _open: list[str] = field(default_factory=list, init=False)
    _pairs: dict[str, list[RunPair]] = field(default_factory=dict, init=False)

    def go(self) -> Compared:
        """Run until every benchmark is decided, hardly will be, or the last look has come."""
        first = {side: self.run(side, self.tests) for side in ("base", "head")}
        both = [test for test in self.tests if all(test in run.times_s for run in first.values())]
        for test in self.tests:
            if test not in both:
                self._note_missing(test, first)
        if both:
            self._known = [self.run("base", both) for _ in range(KNOWN)]
            self._tell_cost(both)
            self._compare(both)
        return self.found

    def _note_missing(self, test: str, first: Mapping[str, SideRun]) -> None:
        lacking = [side for side in ("base", "head") if test not in first[side].times_s]
        where = {"base": self.found.base, "head": "the work tree"}
        names = " and ".join(where[side] for side in lacking)
        why = "; ".join(filter(None, (first[side].why for side in lacking)))
        self.found.notes[test] = f"it gave no time in {names}" + (f" ({why})" if why else "")

    def _tell_cost(self, both: Sequence[str]) -> None:
        pair_s = 2 * max(run.wall_s for run in self._known)
        self.tell(
            f"comparing {len(both)} of {len(self.tests)} benchmarks with {self.found.base}: a pair "
            f"of pytest processes takes about {pair_s:.0f} s, and it takes {LOOKS[0]} to "
            f"{LOOKS[-1]} pairs ({LOOKS[0] * pair_s / 60:.1f} to {LOOKS[-1] * pair_s / 60:.1f} min)"
        )

    def _compare(self, both: Sequence[str]) -> None:
        self._open = list(both)
        bounds = Bounds(error_share=1 / len(both))
        pairs = self._pairs = {test: [] for test in both}
        missing = dict.fromkeys(both, 0)
        order = orders(self.seed)
        always = 2 * sum(bool(run.disturbance) for run in self._known) > len(self._known)
        repeated = MAX_REPEATED if always else 0
        again: bool | None = None
        while self._open:
            base_first = next(order) if again is None else again
            again = None
            sides = ("base", "head") if base_first else ("head", "base")
            runs = {side: self.run(side, self._open) for side in sides}
            disturbed = next((run.disturbance for run in runs.values() if run.disturbance), "")
            if disturbed:
                may = repeated < MAX_REPEATED
                repeated += may
                tell_disturbed(disturbed, may, "this pair", self.tell)
                if may:
                    again = base_first
                    continue
            for test in list(self._open):
                base, head = (runs[side].run_of(test) for side in ("base", "head"))
                if base is None or head is None:
                    missing[test] += 1
                    if missing[test] > MAX_FAILURES:
                        self._give_up(test, runs)
                    continue
                pairs[test].append(RunPair(base, head, base_first))
                if len(pairs[test]) in LOOKS:
                    self._look(test, bounds)
            most = max(map(len, pairs.values()))
            if most in LOOKS:
                self.tell(f"{most} pairs: {len(self._open)} of {len(both)} benchmarks undecided")

    def _look(self, test: str, bounds: Bounds) -> None:
        pairs = self._pairs[test]
        known = [run for each in self._known if (run := each.run_of(test)) is not None]
        difference = replace(
            compare("step_time", pairs, known, bounds),
            base=tuple(pair.base.cost for pair in pairs),
            head=tuple(pair.head.cost for pair in pairs),
        )
        self.found.differences[test] = difference, len(pairs)
        is_open = difference.verdict is GateVerdict.INCONCLUSIVE and len(pairs) < LOOKS[-1]
        if is_open and len(pairs) >= FUTILE_FROM:
            is_open = chance_to_tell(difference, len(pairs), bounds.error_share) >= FUTILE
        if not is_open:
            self._open.remove(test)
            if difference.verdict is GateVerdict.INCONCLUSIVE:
                self._note_scattered(test, [run.cost for run in known], difference)

    def _note_scattered(self, test: str, known: Sequence[float], left: Difference) -> None:
        found = scattered([*known, *left.base], left.head, left.tolerance, left.limit)
        if found is not None:
            help_ = "a quieter machine, or a longer --gpu-benchmark-max-time"
            self.found.undecided[test] = f"{test}: {found.sentence}; {help_} may help"

    def _give_up(self, test: str, runs: Mapping[str, SideRun]) -> None:
        self._open.remove(test)
        self.found.differences.pop(test, None)
        why = "; ".join(filter(None, (run.why for run in runs.values())))
        self.found.notes[test] = "it fails now and then" + (f" ({why})" if why else "")
