"""How a screening compares: two points in pairs of blocks, or many values in the same pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuadvisor.domain.knobs import shown_settings
from gpuadvisor.domain.screening import Screened, ScreenedAs
from gpuadvisor.tuners.screening.blocks import Blocks, Key, Steps, keys_of
from gpuadvisor.tuners.screening.factorial import Factorial
from gpuadvisor.tuners.screening.knowledge import LEAST_PAIRS, Comparison, Knowledge
from gpuadvisor.tuners.search import RETRY_GROWTH
from gpuadvisor.tuners.space import Point, Space
from gpuadvisor.tuners.statistics import Pair
from gpuadvisor.tuners.turn_order import orders

MOST_PAIRS = 16
"""Pairs after which what is not decided is left to fresh processes."""
MOST_TOGETHER = 96
"""Pairs after which values that are compared in the same pairs, if not decided, are left to fresh
processes: as many as six values would take one by one, at 16 pairs each."""
FAILURES = 2
"""Blocks of the side without a value that may fail before the value is given up."""
NO_TIME = "no time was left for it"
NOTHING_TO_CHANGE = "it found nothing to change in this script"


class EndedError(Exception):
    """The screening cannot go on. Its text is the reason, as a clause."""


@dataclass
class Comparing:
    """Has blocks run until they decide, and keeps what they say."""

    space: Space
    blocks: Blocks
    known: Knowledge
    seed: str
    told: Callable[[Screened], None]

    def glance(self, key: Key) -> Steps[float | None]:
        """Run a few steps with a value alone; return what it brought in them, None if it could
        not be seen."""
        found = Comparison({}, dict([key]))
        if self.blocks.pair_s > self.blocks.left_s():
            found.why = NO_TIME
            self.note(key, found)
            return None
        time = yield from self.blocks.settle(found.head)
        if time.failed:
            yield from self._fail(found, time.failed)
            self.note(key, found)
            return None
        if self._is_idle(found):
            self.note(key, found)
            return None
        return (self.blocks.base_ms or time.step_ms) / time.step_ms

    def tried(
        self, key: Key, base: Point, head: Point, most: int = MOST_PAIRS, kept_s: float = 0.0
    ) -> Steps[Comparison]:
        """Compare a value with what it is to be added to."""
        before_s = self.blocks.seconds
        found = yield from self.compare(base, head, most, kept_s)
        if self.blocks.seconds > before_s or not self.known.has(key, found):
            self.note(key, found)
        return found

    def note(self, key: Key, found: Comparison) -> None:
        """Keep the latest comparison of a value, and tell of it."""
        if self.known.note(key, found):
            self.told(self.known.screened(key))

    # -- two points ----------------------------------------------------------------------------

    def compare(
        self, base: Point, head: Point, most: int = MOST_PAIRS, kept_s: float = 0.0
    ) -> Steps[Comparison]:
        """Time pairs until they decide, there are `most`, or no more than `kept_s` is left.

        What was compiled for them has its least pairs whatever is left: they take seconds, it took
        a minute.
        """
        sides = (keys_of(base), keys_of(head))
        if sides not in self.known.compared:
            seed = f"{self.seed} {shown_settings(base)} {shown_settings(head)}"
            self.known.compared[sides] = Comparison(base, head, orders(seed))
        found = self.known.compared[sides]
        before_s = self.blocks.seconds
        try:
            yield from self._pair_up(found, most, kept_s)
        finally:
            found.seconds += self.blocks.seconds - before_s
        return found

    def _pair_up(self, found: Comparison, most: int, kept_s: float) -> Steps[None]:
        blocks, lost, is_paid = self.blocks, 0, False
        while not (found.ended or self.known.is_decided(found)) and len(found.pairs) < most:
            pairs = max(1, LEAST_PAIRS - len(found.pairs))
            starting_s = blocks.starting_s(found.base, found.head)
            needed_s = starting_s + pairs * blocks.pair_s + self._last_s(found)
            is_owed = is_paid and len(found.pairs) < LEAST_PAIRS
            if needed_s + kept_s > blocks.left_s() and not is_owed:
                found.why = NO_TIME
                return
            found.why = ""
            if not found.pairs:
                is_paid = starting_s > 0
                reason = yield from blocks.prepare(found.base, found.head)
                if reason:
                    yield from self._fail(found, reason)
                    return
                if self._is_idle(found):
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

    def _is_idle(self, found: Comparison) -> bool:
        """Say whether all that is new in the head has found nothing to change."""
        new = [key for key in found.head.items() if found.base.get(key[0]) != key[1]]
        if not new or not all(self.blocks.is_idle(key, found.head) for key in new):
            return False
        found.ended, found.why = ScreenedAs.NO_EFFECT, NOTHING_TO_CHANGE
        return True

    def _fail(self, found: Comparison, reason: str) -> Steps[None]:
        """Give a comparison up, and the whole screening if the unchanged script fails, too."""
        found.ended, found.why = ScreenedAs.FAILED, reason
        yield from self._check_unchanged()

    def _check_unchanged(self) -> Steps[None]:
        if self.blocks.left_s() > 0:
            time = yield from self.blocks.settle({})
            if time.failed:
                raise EndedError(time.failed)

    def _last_s(self, found: Comparison | None) -> float:
        """Return how long it takes to compare the best with the unchanged script in the end."""
        best = self.known.best
        whole = self.known.between({}, best)
        is_open = bool(best) and not (whole and (whole is found or whole.ratio))
        return LEAST_PAIRS * self.blocks.pair_s if is_open else 0.0

    # -- many values ---------------------------------------------------------------------------

    def together(
        self,
        factors: list[list[Key]],
        kept_s: Callable[[], float],
        is_urgent: Callable[[], bool] = lambda: False,
    ) -> Steps[None]:
        """Compare values in the same pairs on top of the best, and add to it what pays.

        Ends when all are decided, there are too many pairs, no more than `kept_s` is left after
        the first look, something else `is_urgent` after one, a combination fails, or the best has
        grown so much that others may pay now.
        What was not looked at by then is as if it had not been tried.
        """
        known, blocks = self.known, self.blocks
        base, gain, before_s = dict(known.best), known.gain, blocks.seconds
        pairs = Factorial(factors, f"{self.seed} {shown_settings(base)}")
        found = {
            key: Comparison(base, self.space.combined(base, *key))
            for values in factors
            for key in values
        }
        while pairs.factors and len(pairs) < MOST_TOGETHER:
            kept = kept_s() if pairs.missing == 0 else 0.0
            needed_s = max(1, pairs.missing) * blocks.pair_s + self._last_s(None)
            if needed_s + kept > blocks.left_s():
                for each in found.values():
                    each.why = NO_TIME
                break
            turned = pairs.next()
            first, second = yield from blocks.pair(
                *({**known.best, **dict(side)} for side in (turned.first, turned.second))
            )
            if first.failed or second.failed:  # some of them together: each is tried by itself
                yield from self._check_unchanged()
                return
            pairs.add(turned, first.step_ms, second.step_ms)
            for each in found.values():
                each.seconds = (blocks.seconds - before_s) / len(found)
            if pairs.is_to_be_looked_at:
                self._look(pairs, found)
                if known.gain >= RETRY_GROWTH * gain:
                    return
                if is_urgent():
                    break
        for key in pairs.keys:
            self.note(key, found[key])

    def _look(self, pairs: Factorial, found: dict[Key, Comparison]) -> None:
        """Decide what can be decided: what is worthless is left out, what pays is added."""
        known = self.known
        for key, ratio in pairs.ratios().items():
            found[key].ratio = ratio
        for key in pairs.keys:
            if known.is_worthless(found[key]):
                self.note(key, found[key])
                pairs.drop(key)
        for values in list(pairs.factors):
            if not all(known.is_decided(found[key]) for key in values):
                continue
            for key in values:
                self.note(key, found[key])
                pairs.drop(key)
            ratios = {key: each.ratio for key in values if (each := found[key]).ratio}
            best, most = max(((k, r.ratio) for k, r in ratios.items()), key=lambda each: each[1])
            known.best, known.gain = self.space.combined(known.best, *best), known.gain * most
