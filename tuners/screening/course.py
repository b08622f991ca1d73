"""What a screening decides: which points are compared, in which order, and for how long.

Each value is compared with the unchanged script first, then with the best combination so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuadvisor.domain.screening import Screened, Screening, ScreeningResult
from gpuadvisor.tuners.proof import orders
from gpuadvisor.tuners.screening.blocks import LONGEST_S, Blocks, Key, Steps, keys_of, whole_s
from gpuadvisor.tuners.screening.knowledge import LEAST_PAIRS, Comparison, Knowledge, text_of
from gpuadvisor.tuners.search import MIN_GAIN
from gpuadvisor.tuners.space import Point, Space
from gpuadvisor.tuners.statistics import FEW_KNOWN, Pair

FIRST_PAIRS = 6
"""Pairs that each value has before any has more: on a quiet machine they show 1 %."""
MOST_PAIRS = 16
"""Pairs after which what is not decided is left to fresh processes."""
FAILURES = 2
"""Blocks of the side without a value that may fail before the value is given up."""


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
    costly = costly or {}
    blocks = Blocks(left_s, costly, seed)
    return _Course(space, costly, seed, told, blocks, Knowledge(space, 1 + least_gain)).run()


def least_s(values: int, step_ms: float) -> float:
    """Return how long it takes at least to compare so many values with the unchanged script."""
    block_s = whole_s(step_ms)
    begin_s = (1 + FEW_KNOWN) * max(LONGEST_S, block_s)
    return begin_s + values * (2 * LEAST_PAIRS + 1) * block_s


class _EndedError(Exception):
    """The screening cannot go on. Its text is the reason, as a clause."""


@dataclass
class _Course:
    """A screening in progress."""

    space: Space
    costly: Mapping[str, float]
    seed: str
    told: Callable[[Screened], None]
    blocks: Blocks
    known: Knowledge

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
            yield from self._add([key for key in cheap if self.known.may_pay(key)], few)
            yield from self._add(costly)
            yield from self._thin()
            thinned = dict(self.known.best)
            yield from self._add([key for key in cheap if self.known.has_grown_since(key)])
            if self.known.best != thinned:
                yield from self._thin()
            if self.known.best:
                yield from self._compare({}, self.known.best)
        except _EndedError as end:
            why = str(end)
        return self.known.result(values, self.blocks.base_ms, self.blocks.seconds, why)

    def _begin(self) -> Steps[None]:
        failed = yield from self.blocks.begin()
        if failed:
            raise _EndedError(failed)

    def _alone(self, cheap: Sequence[Key], costly: Sequence[Key]) -> Steps[None]:
        """Compare each value with the unchanged script, then more often what is not decided."""
        for most in (FIRST_PAIRS, MOST_PAIRS):
            for name, value in cheap:
                if self.space.allows({name: value}):
                    kept_s = self._later_s(cheap, costly) if most == MOST_PAIRS else 0.0
                    yield from self._try((name, value), {}, {name: value}, most, kept_s)

    def _later_s(self, cheap: Sequence[Key], costly: Sequence[Key]) -> float:
        """Return how long what comes after the single values will take at least."""
        comparisons = sum(map(self.known.may_pay, cheap)) + 2 * len(costly)
        starts_s = max((self.costly[name] for name, _ in costly), default=0.0)
        return comparisons * LEAST_PAIRS * self.blocks.pair_s + starts_s

    def _add(self, values: Sequence[Key], most: int = MOST_PAIRS) -> Steps[None]:
        """Add each value to the best so far, what brought most first, and keep what pays there."""
        known = self.known
        for name, value in sorted(values, key=known.worth, reverse=True):
            point = self.space.combined(known.best, name, value)
            if point == known.best or not self.space.allows(point) or known.is_spared(name):
                continue
            found = yield from self._try((name, value), known.best, point, most)
            if found.ratio is not None and known.pays(found):
                known.best, known.gain = point, known.gain * found.ratio.ratio

    def _thin(self) -> Steps[None]:
        """Take out each knob that does not pay beside the others, what brought least first."""
        known = self.known
        waiting = sorted(known.best, key=lambda name: known.worth((name, known.best[name])))
        while waiting and len(known.best) > 1:
            name = waiting.pop(0)
            rest = self.space.without(known.best, name)
            found = yield from self._compare(rest, known.best)
            if found.ratio is None or found.ratio.ratio >= known.least or known.pays(found):
                continue
            dropped = (name, known.best[name])
            known.best, known.gain = rest, known.gain / found.ratio.ratio
            self._note(dropped, found)
            waiting = sorted(rest, key=lambda name: known.worth((name, rest[name])))

    # -- one comparison ------------------------------------------------------------------------

    def _try(
        self, key: Key, base: Point, head: Point, most: int = MOST_PAIRS, kept_s: float = 0.0
    ) -> Steps[Comparison]:
        """Compare a value with what it is to be added to."""
        before_s = self.blocks.seconds
        found = yield from self._compare(base, head, most, kept_s)
        if self.blocks.seconds > before_s or not self.known.has(key, found):
            self._note(key, found)
        return found

    def _note(self, key: Key, found: Comparison) -> None:
        if self.known.note(key, found):
            self.told(self.known.screened(key))

    def _compare(
        self, base: Point, head: Point, most: int = MOST_PAIRS, kept_s: float = 0.0
    ) -> Steps[Comparison]:
        """Time pairs until they decide, there are `most`, or no more than `kept_s` is left."""
        sides = (keys_of(base), keys_of(head))
        if sides not in self.known.compared:
            seed = f"{self.seed} {text_of(base)} {text_of(head)}"
            self.known.compared[sides] = Comparison(base, head, orders(seed))
        found = self.known.compared[sides]
        before_s = self.blocks.seconds
        try:
            yield from self._pair_up(found, most, kept_s)
        finally:
            found.seconds += self.blocks.seconds - before_s
        return found

    def _pair_up(self, found: Comparison, most: int, kept_s: float) -> Steps[None]:
        blocks, lost = self.blocks, 0
        while not (found.failed or self.known.is_decided(found)) and len(found.pairs) < most:
            pairs = max(1, LEAST_PAIRS - len(found.pairs))
            starting_s = blocks.starting_s(found.base, found.head)
            needed_s = starting_s + pairs * blocks.pair_s + self._last_s(found)
            if needed_s + kept_s > blocks.left_s():
                found.why = "no time was left for it"
                return
            found.why = ""
            if not found.pairs:
                reason = yield from blocks.prepare(found.base, found.head)
                if reason:
                    yield from self._fail(found, reason)
                    return
                found.known = blocks.known(found.base)
            base_first = next(found.order)
            points = (found.base, found.head) if base_first else (found.head, found.base)
            times = yield from blocks.pair(*points)
            base, head = times if base_first else times[::-1]
            if head.failed or base.failed:
                lost += 1
                if head.failed or lost >= FAILURES:
                    yield from self._fail(found, head.failed or base.failed)
            else:
                found.add(Pair(base.step_ms, head.step_ms, base_first))

    def _fail(self, found: Comparison, reason: str) -> Steps[None]:
        """Give a comparison up, and the whole screening if the unchanged script fails, too."""
        found.failed, found.why = True, reason
        if self.blocks.left_s() > 0:
            time = yield from self.blocks.settle({})
            if time.failed:
                raise _EndedError(time.failed)

    def _last_s(self, found: Comparison) -> float:
        """Return how long it takes to compare the best with the unchanged script in the end."""
        best = self.known.best
        whole = self.known.between({}, best)
        is_open = bool(best) and found is not whole and not (whole and whole.ratio)
        return LEAST_PAIRS * self.blocks.pair_s if is_open else 0.0
