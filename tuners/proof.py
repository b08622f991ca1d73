"""The proof: fresh processes of two sides in turn, until the ratio of their costs is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Generic, TypeVar

from gpuadvisor.domain.study import InTurns, Objective, Speedup, Trial, TrialState
from gpuadvisor.tuners.space import Evaluator, Point
from gpuadvisor.tuners.statistics import (
    ERROR,
    LOOK_ERRORS,
    LOOKS,
    Pair,
    error_of_last_look,
    error_of_look,
    least_shown,
    pairs_needed,
    proven_ratio,
    ratio_in_turns,
    relative,
    spread_of,
)
from gpuadvisor.tuners.turn_order import orders

NARROW = 0.02
"""Half width of the interval, relative to the ratio, at which a gain is known well enough."""
NARROW_SHARE = 0.1
"""Half width of the interval, relative to the gain, that is narrow enough too: a 2.9x speed-up
needs no interval of 2 %."""
SMALLEST_GAIN = 1.03
"""Smallest gain worth having. Runs of the same settings differ by 0.2 to 0.8 % on a quiet GPU and
by 1 to 2 % on one whose clocks move: below 3 % a plan is worth less than the next driver changes,
and to show more than that takes hours."""
MAX_FAILURES = 2
"""Pairs with a run that failed, after which a proof ends without an answer."""
MAX_REPEATED = 4
"""Pairs with a disturbed run that are run again. Where there are more, others use this machine all
the time, and that is what there is to measure."""

SideT = TypeVar("SideT")


@dataclass(frozen=True)
class Known:
    """Earlier runs of the two sides on the same device, which say how much such runs differ.

    They must not have been chosen for what they cost, as the best trial of a search was.
    """

    base: Sequence[Trial] = ()
    head: Sequence[Trial] = ()
    always_disturbed: bool = False
    """Most runs so far were: to run a pair again would change nothing."""
    at_another_time: bool = False
    """They are of an earlier study: this machine may be faster or slower by now."""


@dataclass(frozen=True)
class Needed:
    """What an undecided proof would probably still take until it is decided."""

    pairs: int
    seconds: float


@dataclass(frozen=True)
class Prospect:
    """How a proof stands that has shown no gain so far."""

    found: Speedup
    spread: float
    """Relative standard deviation of runs of one side."""
    pair_s: float
    """What a pair takes."""

    def may_show_within(self, seconds: float) -> bool:
        """Say whether a gain like this is shown at least half of the time by the pairs that so
        many seconds have room for; also where they have room for none."""
        more = int(seconds / self.pair_s) if self.pair_s else 0
        pairs = self.found.pairs + more
        return not more or self.found.ratio >= least_shown(pairs, self.spread)


@dataclass
class Proof:
    """What the comparison of two sides found."""

    speedup: Speedup | None = None
    """Base's cost over head's; None when a side failed."""
    surer: Speedup | None = None
    """That with the wider interval of a further proof, for what is compared with it later; None
    where no gain was shown."""
    failed: Trial | None = None
    """The run that ended the proof without an answer."""
    base: list[Trial] = field(default_factory=list)
    """Runs of the side that is compared with, in order."""
    head: list[Trial] = field(default_factory=list)
    """Runs of the side that is to be better, in order."""
    disturbed: list[Trial] = field(default_factory=list)
    """Runs of pairs that count for nothing, as something else used the machine, as others took
    turns and they did not, or as it mattered that they were forked; not among those above."""
    ratios: list[float] = field(default_factory=list)
    """Base's cost over head's in each pair whose processes took turns; empty where they ran one
    after the other."""
    needed: Needed | None = None
    """What it would still take; None where it is decided, or nobody could wait for it."""


def prove(
    run: Callable[[SideT], Trial],
    base: SideT,
    head: SideT,
    objective: Objective,
    affordable: Callable[[Sequence[SideT]], bool] = lambda pair: True,
    seed: str = "",
    known: Known | None = None,
    earlier: int = 0,
    settled: Callable[[Speedup], bool] | None = None,
    shown: Callable[[Speedup], bool] = lambda found: True,
    least: float = 1.0,
    both: Callable[[Sequence[SideT]], Sequence[Trial] | None] = lambda pair: None,
    worthwhile: Callable[[Prospect], bool] = lambda prospect: True,
    counts: Callable[[Sequence[Trial]], bool] = lambda pair: True,
) -> Proof:
    """Compare two sides in pairs of random order until that is decided or the budget ends.

    A side is whatever `run` can run: a point of a space, a command, a plan, an interpreter. Each
    call of `run` is to be a fresh process, on the same device for both. The first look's pairs
    are run whatever `affordable` says of one more pair: whoever begins a proof has kept room for
    them. The same `seed` gives the same order. `earlier` is the number of proofs of other heads in
    the same study that showed nothing: with each, an interval has to be wider to be right as often.
    It ends when `settled` is true of an interval, that is `is_settled` if not given. `shown` is
    called once, with the first interval that shows more than `least`, a ratio, but does not end it,
    and ends it by returning False. `both` runs a pair at the same time, in turns, and is asked
    before each; None where its runs are to follow one another. The two do not compare: where one
    follows upon the other, earlier pairs count for nothing, and what their looks could use up is
    gone. `worthwhile` is asked at each look that has not shown a gain, and ends it by returning
    False. `counts` is asked of each pair that was run: one
    that does not count is run again in the same order, as is one of which only one run was forked.
    """
    known, settled = known or Known(), settled or (lambda found: is_settled(found, least))
    proving = _Proving(
        run,
        base,
        head,
        objective,
        affordable,
        known,
        earlier,
        settled,
        shown,
        least,
        both,
        worthwhile,
        counts,
    )
    return proving.go(orders(seed))


def prove_point(
    evaluator: Evaluator,
    point: Point,
    objective: Objective,
    seed: str = "",
    earlier: int = 0,
    shown: Callable[[Speedup], bool] = lambda found: True,
    least: float = 1.0,
    both: Callable[[Sequence[Point]], Sequence[Trial] | None] = lambda pair: None,
    settled: Callable[[Speedup], bool] | None = None,
    base: Point | None = None,
    worthwhile: Callable[[Prospect], bool] = lambda prospect: True,
) -> Proof:
    """Compare a point of a space with a base, the empty one if not given; other arguments are those
    of `prove`."""
    base = base or {}

    def run(side: Point) -> Trial:
        return evaluator.measure([side], "proof", turned=(base, point))[0]

    order = f"{seed} {sorted(point.items())}"
    known = known_runs(evaluator, point, base)
    return prove(
        run,
        base,
        point,
        objective,
        evaluator.affordable,
        order,
        known,
        earlier,
        settled,
        shown,
        least,
        both,
        worthwhile,
    )


def known_runs(evaluator: Evaluator, point: Point, base: Point | None = None) -> Known:
    """Return an evaluator's undisturbed runs of a base, the empty point if not given, and of
    another one.

    Where points are measured side by side, only those from before the first of them: what runs
    beside a run makes it slower. Of a base that was proven itself, the runs of that proof: a search
    may have chosen its other ones.
    """
    trials = [trial for trial in evaluator.trials if trial.state is TrialState.COMPLETE]
    if evaluator.parallel > 1:
        side_by_side = next((n for n, t in enumerate(trials) if t.settings), len(trials))
        trials = trials[:side_by_side]
    fair, always = fair_runs(trials)
    return Known(
        [t for t in fair if t.settings == (base or {}) and (not base or t.phase == "proof")],
        [trial for trial in fair if trial.settings == dict(point) and trial.phase == "ablation"],
        always,
    )


def fair_runs(trials: Sequence[Trial]) -> tuple[list[Trial], bool]:
    """Return complete, undisturbed runs on the first one's GPU, and whether most were disturbed.

    Then the disturbed ones count, too: others use this machine all the time.
    """
    whole = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    always = 2 * sum(bool(trial.disturbance) for trial in whole) > len(whole)
    fair = [t for t in whole if t.gpu == whole[0].gpu and (always or not t.disturbance)]
    return fair, always


@dataclass
class _Proving(Generic[SideT]):
    """A proof in progress."""

    run: Callable[[SideT], Trial]
    base: SideT
    head: SideT
    objective: Objective
    affordable: Callable[[Sequence[SideT]], bool]
    known: Known
    earlier: int
    settled: Callable[[Speedup], bool]
    shown: Callable[[Speedup], bool]
    least: float
    both: Callable[[Sequence[SideT]], Sequence[Trial] | None]
    worthwhile: Callable[[Prospect], bool]
    counts: Callable[[Sequence[Trial]], bool]

    def __post_init__(self) -> None:
        self._proof = Proof()
        self._pairs: list[Pair] = []
        self._in_turns: list[tuple[InTurns, InTurns]] = []
        """What both sides took in turns, for each pair in whose processes they did."""
        self._looks: list[Speedup] = []
        """What earlier looks at these pairs have found."""
        self._share = 1.0
        """Part of the error of each look that pairs forgotten since have not used up."""
        self._known_base = list(filter(None, (self._cost(t) for t in self.known.base)))
        self._known_head = list(filter(None, (self._cost(t) for t in self.known.head)))

    def go(self, order: Iterator[bool]) -> Proof:
        proof, failures, repeated, is_shown, is_last = self._proof, 0, 0, False, False
        most = 0 if self.known.always_disturbed else MAX_REPEATED
        while len(self._pairs) < LOOKS[-1]:
            if len(self._pairs) >= LOOKS[0] and not self.affordable([self.base, self.head]):
                is_last = True
                break
            base_first = next(order)
            sides = (self.base, self.head) if base_first else (self.head, self.base)
            together = self.both(sides)
            if self._pairs and bool(self._proof.ratios) != (together is not None):
                self._begin_anew()
            pair = [self.run(side) for side in sides] if together is None else list(together)
            plain, tuned = pair if base_first else reversed(pair)
            failed = next((trial for trial in pair if self._cost(trial) is None), None)
            disturbed = together is None and not failed and any(t.disturbance for t in pair)
            quieter = disturbed and repeated < most and self._may_repeat()
            is_mixed = len({trial.is_forked for trial in pair}) > 1
            if quieter or is_mixed or not self.counts(pair):
                repeated += quieter
                proof.disturbed += pair
                order = _and_then(base_first, order)
                continue
            proof.base.append(plain)
            proof.head.append(tuned)
            if failed is None:
                costs = self._cost(plain) or 0.0, self._cost(tuned) or 0.0
                if together is not None:
                    proof.ratios.append(self._ratio_of_blocks(plain, tuned))
                    costs = proof.ratios[-1], 1.0
                self._pairs.append(Pair(*costs, base_first))
                if together is None and plain.in_turns is not None and tuned.in_turns is not None:
                    self._in_turns.append((plain.in_turns, tuned.in_turns))
                if len(self._pairs) not in LOOKS:
                    continue
                found = self._known_by_now()
                self._looks.append(found)
                if self.settled(found):
                    break
                if found.ci99_low > self.least and not is_shown:
                    is_shown = True
                    if not self.shown(found):
                        break
                if not is_shown and not self.worthwhile(self._prospect(found)):
                    break
                continue
            failures += 1
            if failed.state is TrialState.WRONG or failures >= MAX_FAILURES:
                proof.failed = failed
                return proof
        proof.speedup = self._known_by_now(is_last)
        proof.needed = self._needed(proof.speedup)
        if is_faster(proof.speedup):
            proof.surer = self._speedup(self.earlier + 1)
        return proof

    def _begin_anew(self) -> None:
        """Let no pair count that was run so far."""
        proof = self._proof
        looked = sum(error for look, error in LOOK_ERRORS.items() if look <= len(self._pairs))
        self._share *= 1 - looked / ERROR
        proof.disturbed += [*proof.base, *proof.head]
        for counted in (proof.base, proof.head, proof.ratios, self._pairs, self._in_turns):
            counted.clear()
        self._looks.clear()

    def _ratio_of_blocks(self, plain: Trial, tuned: Trial) -> float:
        """Return base's cost over head's, by samples where they are known, of a pair in turns."""
        base, head = plain.in_turns, tuned.measurement
        assert base is not None and head is not None and plain.measurement is not None
        samples = (head.samples_per_step or 1.0) / (plain.measurement.samples_per_step or 1.0)
        return base.base_ms / base.head_ms * samples

    def _may_repeat(self) -> bool:
        """Say whether a pair can be run again and the first look's pairs be run to their end.

        Without time for that, a disturbed pair counts: it widens the interval.
        """
        left = LOOKS[0] - len(self._pairs)
        return left <= 0 or self.affordable([self.base, self.head] * left)

    def _known_by_now(self, is_last: bool = False) -> Speedup:
        """Return what the pairs show, with an interval no wider than those of earlier looks.

        All looks hold together, so what one has shown stays so: a pair with a larger gain than the
        others widens the interval of all, and would take back what they have shown. Where the ratio
        lies outside of what earlier looks found, something has changed, and they count for nothing.
        The last one, after which there is no time for another pair, may use up more of the error.
        """
        found = self._speedup(is_last=is_last)
        low = max(each.ci99_low for each in (found, *self._looks))
        high = min(each.ci99_high for each in (found, *self._looks))
        return replace(found, ci99_low=low, ci99_high=high) if low <= found.ratio <= high else found

    def _speedup(self, earlier: int | None = None, *, is_last: bool = False) -> Speedup:
        """Return what the pairs show; where all were timed in turns, too, whatever shows more.

        Two ways of asking share what a look may use up. `earlier` replaces the number of proofs.
        """
        earlier = self.earlier if earlier is None else earlier
        error_after = error_of_last_look if is_last else error_of_look
        error = self._share * error_after(len(self._pairs))
        if self._proof.ratios:  # beside such pairs nothing can slow down one side alone
            return proven_ratio(self._pairs, earlier=earlier, error=error, is_clear=True)
        can_turn = len(self._in_turns) == len(self._pairs)
        error /= 1 + can_turn
        known = self._known_base, self._known_head
        later = self.known.at_another_time
        apart = proven_ratio(self._pairs, *known, earlier, error, at_another_time=later)
        if not can_turn:
            return apart
        turned = ratio_in_turns(self._pairs, self._in_turns, earlier, error)
        # Where the two exclude each other, something holds for one of them only.
        agree = turned.ci99_low <= apart.ci99_high and apart.ci99_low <= turned.ci99_high
        return turned if agree and _width(turned) < _width(apart) else apart

    def _needed(self, speedup: Speedup) -> Needed | None:
        """Return how much longer it would take to prove the gain, or that there is none."""
        if is_faster(speedup) or is_no_gain(speedup):
            return None
        ratio = math.log(speedup.ratio)
        distance = max(ratio, math.log(SMALLEST_GAIN) - ratio)
        return still_needed(self._proof, speedup, distance, self._spread(speedup))

    def _prospect(self, found: Speedup) -> Prospect:
        return Prospect(found, self._spread(found), pair_s(self._proof))

    def _spread(self, speedup: Speedup) -> float:
        """Return how far runs of one side differ, as a relative standard deviation, as far as that
        matters for what a speed-up was told by."""
        base, head, pairs = self._known_base, self._known_head, self._pairs
        if self._proof.ratios:
            base, head = [], []
        elif speedup.in_turns:
            base, head, pairs = [], [], relative(self._pairs, self._in_turns)
        return spread_of(
            [*base, *(pair.base for pair in pairs)], [*head, *(pair.head for pair in pairs)]
        )

    def _cost(self, trial: Trial) -> float | None:
        """Return what a run cost, None where it failed. Not its `gain`: its reference may move."""
        if trial.state is not TrialState.COMPLETE or trial.measurement is None:
            return None
        return self.objective.cost(trial.measurement) or None  # a cost of zero has no ratio


def still_needed(proof: Proof, speedup: Speedup, distance: float, spread: float) -> Needed | None:
    """Return what it takes until a proof knows its ratio to within `distance`.

    That is a difference of logarithms; `spread` is the relative standard deviation of runs of one
    side. None where nobody could wait for it.
    """
    pairs = pairs_needed(distance, spread, speedup.pairs + 1)
    if pairs is None:
        return None
    more = pairs - speedup.pairs
    return Needed(more, more * pair_s(proof))


def pair_s(proof: Proof) -> float:
    """Return how long a pair of a proof takes, in seconds: both of its runs live at the same time
    where they take turns."""
    both_s = [median(trial.wall_s for trial in side) for side in (proof.base, proof.head)]
    return max(both_s) if proof.ratios else sum(both_s)


def is_settled(speedup: Speedup, least: float = 1.0) -> bool:
    """Say whether more pairs would change nothing that a user cares about.

    `least` is the ratio that it has to exceed.
    """
    half = (speedup.ci99_high - speedup.ci99_low) / 2
    narrow = half <= max(NARROW * speedup.ratio, NARROW_SHARE * (speedup.ratio - 1))
    is_more = speedup.ci99_low > least
    return narrow if is_more else speedup.ci99_high < SMALLEST_GAIN * least


def is_faster(speedup: Speedup | None) -> bool:
    """Say whether a gain may be claimed: the whole interval lies above one."""
    return speedup is not None and speedup.ci99_low > 1.0


def is_no_gain(speedup: Speedup | None) -> bool:
    """Say whether it is shown that there is no gain worth having: the whole interval lies below
    `SMALLEST_GAIN`, and not above one. What is neither this nor faster is inconclusive.
    """
    return speedup is not None and speedup.ci99_high < SMALLEST_GAIN and not is_faster(speedup)


def _width(speedup: Speedup) -> float:
    return math.log(speedup.ci99_high / speedup.ci99_low)


def _and_then(first: bool, rest: Iterator[bool]) -> Iterator[bool]:
    yield first
    yield from rest
