"""Live screening: which knobs, and which of them together, are worth starting processes for.

Knobs are turned between the steps of one running script, so a comparison costs seconds and its
noise is that of neighbouring blocks of steps: a tenth of that of fresh processes. Each value is
compared with the unchanged script first, then with the best combination so far. Nothing here is a
gain to be told: what looks best is proven in fresh processes.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from gpuadvisor.domain.knobs import Contribution, Value
from gpuadvisor.domain.screening import (
    Block,
    BlockTime,
    Ratio,
    Screened,
    ScreenedAs,
    Screening,
    ScreeningResult,
)
from gpuadvisor.tuners.proof import orders
from gpuadvisor.tuners.search import MIN_GAIN, RETRY_GROWTH
from gpuadvisor.tuners.space import Point, Space
from gpuadvisor.tuners.statistics import ERROR, FEW_KNOWN, Pair, proven_ratio

SHORTEST_S, LONGEST_S = 0.5, 1.0
"""Least and most time of a block, in seconds: long enough for some steps, short enough that clocks
and other jobs are the same in the two blocks of a pair."""
BLOCK_STEPS = 5
"""Steps for which a block lasts, within these bounds."""
JITTER = 0.25
"""Share by which the length of a block varies by chance, so that no job that comes and goes stays
in step with the pairs."""
LEAST_STEPS = 4
"""Steps that each block has at least."""
UNTIMED_STEPS = 4
"""Steps of each block that are usually not timed, in which what was turned settles."""
SETTLING_S = 0.1
"""Time of a block that is not looked at: the least steps that a block has."""
LEAST_PAIRS = 3
"""Pairs before the first look at an interval."""
FIRST_PAIRS = 6
"""Pairs that each value has before any has more: on a quiet machine they show 1 %."""
MOST_PAIRS = 16
"""Pairs after which what is not decided is left to fresh processes."""
REMEMBERED = 8
"""Latest blocks of the same settings in other pairs that tell how much such blocks differ."""
FAILURES = 2
"""Blocks of the side without a value that may fail before the value is given up."""

TOO_LITTLE = f"worth less than {100 * MIN_GAIN:.0f} % in one running process"
"""What is told of a value that a screening found worthless."""

Key = tuple[str, Value]
"""A knob and its value."""
Returned = TypeVar("Returned")
Steps: TypeAlias = Generator[Sequence[Block], Sequence[BlockTime], Returned]


def screen(
    space: Space,
    left_s: Callable[[], float],
    costly: Mapping[str, float] | None = None,
    least_gain: float = MIN_GAIN,
    seed: str = "",
    told: Callable[[Screened], None] = lambda screened: None,
) -> Screening[ScreeningResult]:
    """Return a screening of all values in a space of knobs that can be turned in a running script.

    `left_s` returns the seconds that are left for it. `costly` names the knobs whose first block
    takes long, as a compilation does, and for how many seconds; they come after the others.
    `least_gain` is the smallest gain worth having, as a share. `told` hears of each comparison.
    """
    return _Screen(space, left_s, costly or {}, 1 + least_gain, seed, told).run()


def least_s(values: int, step_ms: float) -> float:
    """Return how long it takes at least to compare so many values with the unchanged script."""
    step_s = step_ms / 1e3
    block_s = max(_block_s(step_ms), LEAST_STEPS * step_s) + UNTIMED_STEPS * step_s
    begin_s = (1 + FEW_KNOWN) * max(LONGEST_S, block_s)
    return begin_s + values * (2 * LEAST_PAIRS + 1) * block_s


class _EndedError(Exception):
    """The screening cannot go on. Its text is the reason, as a clause."""


@dataclass(eq=False)
class _Comparison:
    """Pairs of blocks of two points, while they come in."""

    base: Point
    head: Point
    order: Iterator[bool]
    known: Sequence[float] = ()
    """Steps of earlier blocks of the base, in milliseconds."""
    pairs: list[Pair] = field(default_factory=list)
    ratio: Ratio | None = None
    why: str = ""
    """Why nothing was decided, as a clause."""
    failed: bool = False
    seconds: float = 0.0

    def add(self, pair: Pair) -> None:
        """Take in one more pair."""
        self.pairs.append(pair)
        if len(self.pairs) >= LEAST_PAIRS:
            found = proven_ratio(self.pairs, self.known, error=ERROR)
            self.ratio = Ratio(found.ratio, found.ci99_low, found.ci99_high, found.pairs)


@dataclass
class _Screen:
    """A screening in progress."""

    space: Space
    left_s: Callable[[], float]
    costly: Mapping[str, float]
    least: float
    """Smallest ratio worth having."""
    seed: str
    told: Callable[[Screened], None]

    def __post_init__(self) -> None:
        self.best: dict[str, Value] = {}
        self.gain = 1.0
        """What the best combination brings, as a product of what each step to it brought."""
        self.base_ms: float | None = None
        self.seconds = 0.0
        self._random = random.Random(f"lengths of blocks: {self.seed}")
        self._block_s = LONGEST_S
        self._pair_s = 4 * LONGEST_S
        """Time that the latest pair took, with turning and settling."""
        self._starts_s: dict[frozenset[Key], float] = {}
        """Time that a first block took with these costly settings."""
        self._started: set[frozenset[Key]] = {frozenset()}
        """Points that had their first block."""
        self._times: defaultdict[frozenset[Key], list[float]] = defaultdict(list)
        """Steps of all blocks of a point, in milliseconds."""
        self._compared: dict[tuple[frozenset[Key], frozenset[Key]], _Comparison] = {}
        self._tried: defaultdict[Key, list[_Comparison]] = defaultdict(list)
        """Comparisons of each value, the latest last."""
        self._at: dict[Key, float] = {}
        """Gain of the best when a value was last compared with it."""

    # -- the course of it ----------------------------------------------------------------------

    def run(self) -> Screening[ScreeningResult]:
        """Screen, and return what follows."""
        values = [(each.name, value) for each in self.space.parameters for value in each.values]
        cheap = [key for key in values if key[0] not in self.costly]
        costly = [key for key in values if key[0] in self.costly]
        costly.sort(key=lambda key: self.costly[key[0]])
        why = ""
        try:
            yield from self._begin()
            yield from self._alone(cheap, costly)
            few = FIRST_PAIRS if costly else MOST_PAIRS  # what compiles is mostly worth more
            yield from self._add([key for key in cheap if self._may_pay(key)], few)
            yield from self._add(costly)
            yield from self._thin()
            thinned = dict(self.best)
            yield from self._add([key for key in cheap if self._has_grown_since(key)])
            if self.best != thinned:
                yield from self._thin()
            if self.best:
                yield from self._compare({}, self.best)
        except _EndedError as end:
            why = str(end)
        return self._result(values, why)

    def _begin(self) -> Steps[None]:
        """Time the unchanged script, which sets the length of all other blocks."""
        yield from self._ask(Block({}, SETTLING_S))
        times = yield from self._ask(*[Block({}, LONGEST_S)] * FEW_KNOWN)
        failed = next((each.failed for each in times if each.failed), "")
        if failed:
            raise _EndedError(failed)
        self.base_ms = sum(each.step_ms for each in times) / len(times)
        self._block_s = _block_s(self.base_ms)
        self._pair_s = 2 * max(each.cost_s + self._block_s for each in times)

    def _alone(self, cheap: Sequence[Key], costly: Sequence[Key]) -> Steps[None]:
        """Compare each value with the unchanged script, then more often what is not decided."""
        for most in (FIRST_PAIRS, MOST_PAIRS):
            for name, value in cheap:
                if self.space.allows({name: value}):
                    kept_s = self._later_s(cheap, costly) if most == MOST_PAIRS else 0.0
                    yield from self._try((name, value), {}, {name: value}, most, kept_s)

    def _later_s(self, cheap: Sequence[Key], costly: Sequence[Key]) -> float:
        """Return how long what comes after the single values will take at least."""
        comparisons = sum(map(self._may_pay, cheap)) + 2 * len(costly)
        starts_s = max((self.costly[name] for name, _ in costly), default=0.0)
        return comparisons * LEAST_PAIRS * self._pair_s + starts_s

    def _add(self, values: Sequence[Key], most: int = MOST_PAIRS) -> Steps[None]:
        """Add each value to the best so far, what brought most first, and keep what pays there."""
        for name, value in sorted(values, key=self._worth, reverse=True):
            point = self.space.combined(self.best, name, value)
            if point == self.best or not self.space.allows(point) or self._is_spared(name):
                continue
            found = yield from self._try((name, value), self.best, point, most)
            if found.ratio is not None and self._pays(found):
                self.best, self.gain = point, self.gain * found.ratio.ratio

    def _thin(self) -> Steps[None]:
        """Take out each knob that does not pay beside the others, what brought least first."""
        waiting = sorted(self.best, key=lambda name: self._worth((name, self.best[name])))
        while waiting and len(self.best) > 1:
            name = waiting.pop(0)
            rest = self.space.without(self.best, name)
            found = yield from self._compare(rest, self.best)
            if found.ratio is None or found.ratio.ratio >= self.least or self._pays(found):
                continue
            dropped = (name, self.best[name])
            self.best, self.gain = rest, self.gain / found.ratio.ratio
            self._note(dropped, found)
            waiting = sorted(rest, key=lambda name: self._worth((name, rest[name])))

    # -- what is known -------------------------------------------------------------------------

    def _pays(self, found: _Comparison) -> bool:
        """Say whether it is shown that something is gained, and not that it is too little."""
        ratio = found.ratio
        return ratio is not None and ratio.low > 1 and ratio.high >= self.least

    def _is_worthless(self, found: _Comparison) -> bool:
        return found.ratio is not None and found.ratio.high < self.least

    def _may_pay(self, key: Key) -> bool:
        """Say whether a value pays alone, or could not be tried alone."""
        tried = self._tried[key]
        return self._pays(tried[-1]) if tried else not self.space.allows(dict([key]))

    def _has_grown_since(self, key: Key) -> bool:
        """Say whether the best grew so much since a value was tried that it may pay now."""
        tried = self._tried[key]
        failed = bool(tried) and tried[-1].failed
        return not failed and self.gain >= RETRY_GROWTH * self._at.get(key, 1.0)

    def _worth(self, key: Key) -> float:
        ratio = self._tried[key][-1].ratio if self._tried[key] else None
        return ratio.ratio if ratio else 1.0

    def _is_spared(self, name: str) -> bool:
        """Say whether a cheaper form of a knob was tried and none of its values is in the best."""
        cheaper = self.space[name].refines
        tried = any(key[0] == cheaper for key in self._at)
        return tried and cheaper not in self.best

    def _state(self, key: Key) -> tuple[ScreenedAs, str]:
        """Return what became of a value, and why where that is no answer."""
        tried = self._tried[key]
        if not tried:
            return ScreenedAs.UNRESOLVED, "nothing led to it"
        if tried[-1].failed:
            return ScreenedAs.FAILED, tried[-1].why
        if self.best.get(key[0]) == key[1]:
            return ScreenedAs.KEPT, ""
        if self._pays(tried[-1]):
            return ScreenedAs.GAINS, ""
        if not self._is_worthless(tried[-1]):
            return ScreenedAs.UNRESOLVED, tried[-1].why or f"{len(tried[-1].pairs)} pairs of blocks"
        if self._has_grown_since(key):
            return ScreenedAs.UNRESOLVED, f"no time was left to try it beside {_text(self.best)}"
        return ScreenedAs.WORTHLESS, ""

    def _screened(self, key: Key) -> Screened:
        tried, (state, why) = self._tried[key], self._state(key)
        timed = next((each for each in reversed(tried) if each.ratio), None)
        spent_s = sum(each.seconds for each in tried)
        base = timed.base if timed else {}
        beside = {name: other for name, other in base.items() if name != key[0]}
        return Screened(*key, state, timed.ratio if timed else None, beside, spent_s, why)

    def _result(self, values: Sequence[Key], why: str) -> ScreeningResult:
        best, contributions = _set(self.best), []
        for name, value in self.best.items():
            found = self._compared.get((_set(self.space.without(self.best, name)), best))
            if found is not None and found.ratio is not None:
                known = found.ratio
                contributions.append(Contribution(name, value, known.ratio, known.low, known.high))
        whole = self._compared.get((frozenset(), best))
        return ScreeningResult(
            tuple(map(self._screened, values)),
            self.best,
            whole.ratio if whole and self.best else None,
            tuple(sorted(contributions, key=lambda each: -each.ratio)),
            self.base_ms,
            self.seconds,
            why,
        )

    # -- comparisons ---------------------------------------------------------------------------

    def _try(
        self, key: Key, base: Point, head: Point, most: int = MOST_PAIRS, kept_s: float = 0.0
    ) -> Steps[_Comparison]:
        """Compare a value with what it is to be added to."""
        before_s = self.seconds
        found = yield from self._compare(base, head, most, kept_s)
        if self.seconds > before_s or found not in self._tried[key]:
            self._note(key, found)
        return found

    def _note(self, key: Key, found: _Comparison) -> None:
        """Remember the latest comparison of a value; one that had no time says nothing new."""
        tried = self._tried[key]
        if found.pairs or found.failed or not tried:
            if found in tried:
                tried.remove(found)
            tried.append(found)
            self._at[key] = self.gain
            self.told(self._screened(key))

    def _compare(
        self, base: Point, head: Point, most: int = MOST_PAIRS, kept_s: float = 0.0
    ) -> Steps[_Comparison]:
        """Time pairs until they decide, there are `most`, or no more than `kept_s` is left."""
        sides = (_set(base), _set(head))
        if sides not in self._compared:
            seed = f"{self.seed} {_text(base)} {_text(head)}"
            self._compared[sides] = _Comparison(base, head, orders(seed))
        found = self._compared[sides]
        before_s = self.seconds
        try:
            yield from self._pair_up(found, most, kept_s)
        finally:
            found.seconds += self.seconds - before_s
        return found

    def _pair_up(self, found: _Comparison, most: int, kept_s: float) -> Steps[None]:
        lost = 0
        while not (found.failed or self._is_decided(found)) and len(found.pairs) < most:
            pairs = max(1, LEAST_PAIRS - len(found.pairs))
            needed_s = self._starting_s(found) + pairs * self._pair_s + self._last_s(found)
            if needed_s + kept_s > self.left_s():
                found.why = "no time was left for it"
                return
            found.why = ""
            reason = "" if found.pairs else (yield from self._prepare(found))
            if reason:
                yield from self._fail(found, reason)
                return
            base_first = next(found.order)
            points = (found.base, found.head) if base_first else (found.head, found.base)
            times = yield from self._ask(*(Block(point, self._length_s()) for point in points))
            base, head = times if base_first else times[::-1]
            if head.failed or base.failed:
                lost += 1
                if head.failed or lost >= FAILURES:
                    yield from self._fail(found, head.failed or base.failed)
            else:
                found.add(Pair(base.step_ms, head.step_ms, base_first))

    def _fail(self, found: _Comparison, reason: str) -> Steps[None]:
        """Give a comparison up, and the whole screening if the unchanged script fails, too."""
        found.failed, found.why = True, reason
        if self.left_s() > 0:
            (time,) = yield from self._ask(Block({}, SETTLING_S))
            if time.failed:
                raise _EndedError(time.failed)

    def _prepare(self, found: _Comparison) -> Steps[str]:
        """Have both sides compile what they want to, and know how much blocks of the base differ.

        Return why one of them failed, if it did.
        """
        for point in (found.base, found.head):
            if _set(point) not in self._started:
                (time,) = yield from self._ask(Block(point, SETTLING_S))
                if time.failed:
                    return time.failed
                self._started.add(_set(point))
                self._starts_s[self._costly_part(point)] = time.cost_s
        times = self._times[_set(found.base)]
        while len(times) < FEW_KNOWN:
            (time,) = yield from self._ask(Block(found.base, self._length_s()))
            if time.failed:
                return time.failed
        found.known = times[-REMEMBERED:]
        return ""

    def _is_decided(self, found: _Comparison) -> bool:
        return self._pays(found) or self._is_worthless(found)

    def _starting_s(self, found: _Comparison) -> float:
        """Return how long the sides of a comparison will take until they can be timed."""
        new = [
            self._costly_part(p) for p in (found.base, found.head) if _set(p) not in self._started
        ]
        return sum(
            self._starts_s.get(part, max((self.costly[name] for name, _ in part), default=0.0))
            for part in new
        )

    def _last_s(self, found: _Comparison) -> float:
        """Return how long it takes to compare the best with the unchanged script in the end."""
        known = self._compared.get((frozenset(), _set(self.best)))
        is_open = bool(self.best) and found is not known and not (known and known.ratio)
        return LEAST_PAIRS * self._pair_s if is_open else 0.0

    def _costly_part(self, point: Point) -> frozenset[Key]:
        return frozenset((name, value) for name, value in point.items() if name in self.costly)

    def _length_s(self) -> float:
        return self._block_s * self._random.uniform(1 - JITTER, 1 + JITTER)

    def _ask(self, *blocks: Block) -> Steps[Sequence[BlockTime]]:
        """Have blocks run, and remember what they took."""
        times = yield blocks
        spent_s = 0.0
        for block, time in zip(blocks, times, strict=True):
            spent_s += time.cost_s
            if not time.failed:
                spent_s += time.steps * time.step_ms / 1e3
            if not time.failed and block.seconds > SETTLING_S:
                self._times[_set(block.settings)].append(time.step_ms)
        if len(blocks) == 2:
            self._pair_s = spent_s
        self.seconds += spent_s
        return times


def _block_s(step_ms: float) -> float:
    return min(LONGEST_S, max(SHORTEST_S, BLOCK_STEPS * step_ms / 1e3))


def _set(point: Point) -> frozenset[Key]:
    return frozenset(point.items())


def _text(point: Point) -> str:
    return ", ".join(f"{name}={value}" for name, value in point.items())
