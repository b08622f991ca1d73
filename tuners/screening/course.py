"""What a screening decides: what is compared on top of what, in which order, and for how long.

What a few steps show plainly is compared first, and what pays is added to the best combination; the
rest is compared on top of that in the same pairs of blocks, what compiles comes after it. Where
some values are unlikely to bring anything, as the host decides how long a step takes, what compiles
comes first and these come last. No value is compared a second time, as the first did not decide,
before each had its first; where what compiles would not have its first then, only what promises to
pay is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.screening import Ratio, Screened, Screening, ScreeningResult
from gpuadvisor.tuners.loader.ceiling import MUCH, first_ceiling, last_ceiling
from gpuadvisor.tuners.screening.blocks import (
    LIKE_OTHERS,
    LONGEST_S,
    Blocks,
    Key,
    Steps,
    whole_s,
)
from gpuadvisor.tuners.screening.comparing import MOST_PAIRS, Comparing, EndedError
from gpuadvisor.tuners.screening.factorial import LOOK_EVERY, factors_of, least_pairs
from gpuadvisor.tuners.screening.knowledge import LEAST_PAIRS, Comparison, Knowledge
from gpuadvisor.tuners.search import MIN_GAIN, RETRY_GROWTH
from gpuadvisor.tuners.space import Point, Space
from gpuadvisor.tuners.statistics import FEW_KNOWN

FIRST_PAIRS = 6
"""Pairs that each value has before any has more: on a quiet machine they show 1 %."""
PLAIN = 1.2
"""Ratio of a few steps with and without a value from which pairs of its own decide it at once.
Beside such a value others bring something else, so they are compared after it."""
CLEAR = 1.5
"""What a knob brought from which nothing is compiled without it: the largest swing that was seen is
that of channels_last in a convolutional net, 1.14 alone and 0.83 under compile."""
LATER = 2
"""Comparisons of the first value that compiles: with the best so far, and of what is best then with
the unchanged script."""
LEAST_TOGETHER = 3
"""Knobs from which they are compared in the same pairs: two are decided as soon one by one."""


def screen(
    space: Space,
    left_s: Callable[[], float],
    costly: Mapping[str, float] | None = None,
    least_gain: float = MIN_GAIN,
    seed: str = "",
    told: Callable[[Screened], None] = lambda screened: None,
    more_s: float = 0.0,
    cached: bool = False,
    waits: bool = True,
    harmless: Collection[str] = (),
    compiled: Callable[[Settings, float], None] = lambda settings, seconds: None,
    early_s: Callable[[float, Settings], float] = lambda gain, settings: 0.0,
    stands_on: Settings | None = None,
    brought: Mapping[str, float] | None = None,
    limited: Callable[[float], bool] = lambda computing_ms: False,
) -> Screening[ScreeningResult]:
    """Return a screening of all values in a space of knobs that can be turned in a running script.

    `left_s` returns the seconds that are left for it. `costly` names the knobs whose first block
    takes long, as a compilation does, and for how many seconds; they come after the others.
    `least_gain` is the smallest gain worth having, as a share. `told` hears of each comparison.
    `more_s` are further seconds, for costly knobs and what of the best pays beside them. `cached`
    has all of it timed on the batch that the script has already: what a value is worth is its worth
    for the computing alone. What waiting costs is timed first, and if it is little, in the end
    beside the best, unless the script `waits` for nothing. Where a batch cannot be given again, it
    ends there, and says why. Beside `harmless` knobs, what is costly compiles nothing anew;
    `compiled` hears of costly settings that had their first block, and of how long it took.
    `early_s` returns for how many seconds a proof of settings that bring so much may still be put
    off, 0 where it need not come early. Where it is to, and nothing waits for loaders, the costly
    values are put off, or those after the first one that pays, and all that is not decided by then:
    what is best is not thinned. Another screening takes them up then, which `stands_on` what was
    best, of which each knob `brought` this ratio.
    `limited` says of computing that takes so many milliseconds at most whether to leave the rest
    for last, as the loader's supply is the limit of such a step; nothing else is compared then.
    """
    costly = costly or {}
    blocks = Blocks(left_s, costly, seed, harmless, compiled)
    known = Knowledge(space, 1 + least_gain)
    comparing = Comparing(space, blocks, known, seed, told)
    course = _Course(space, costly, more_s, blocks, known, comparing, cached, waits, seed)
    course.early_s, course.limited, known.best = early_s, limited, dict(stands_on or {})
    known.brought = dict(brought or {})
    return course.run()


def least_s(values: int, step_ms: float) -> float:
    """Return how long it takes at least to compare so many values with the unchanged script."""
    block_s = whole_s(step_ms)
    begin_s = (1 + FEW_KNOWN) * max(LONGEST_S, block_s)
    return begin_s + values * (2 * LEAST_PAIRS + 1) * block_s


@dataclass
class _Course:
    """A screening in progress."""

    space: Space
    costly: Mapping[str, float]
    more_s: float
    blocks: Blocks
    known: Knowledge
    comparing: Comparing
    cached: bool
    waits: bool
    seed: str
    loaders: Ratio | None = None
    """What no waiting is worth at most; None where it was not timed."""
    early_s: Callable[[float, Settings], float] = lambda gain, settings: 0.0
    """Returns for how long a proof of settings that bring so much may be put off; 0 for none."""
    limited: Callable[[float], bool] = lambda computing_ms: False
    """Says whether the loader is the limit of steps whose computing takes so long."""

    def __post_init__(self) -> None:
        self._values = [(p.name, value) for p in self.space.parameters for value in p.values]
        costly = [key for key in self._values if key[0] in self.costly]
        self._costly = sorted(costly, key=lambda key: self.costly[key[0]])
        self._to_grant_s = self.more_s
        """Seconds that are still to be granted to what is costly."""

    def run(self) -> Screening[ScreeningResult]:
        """Screen, and return what follows."""
        values = self._values
        late = {each.name for each in self.space.parameters if each.unlikely}
        cheap = [key for key in values if key[0] not in self.costly]
        costly = list(self._costly)
        put_off = False
        try:
            yield from self._begin()
            likely = [key for key in cheap if key[0] not in late]
            if not late:
                put_off = yield from self._cheap_first(likely, costly)
            if not put_off and not self._is_limited():
                put_off = yield from self._all(likely, cheap, costly, late)
            if self.known.best:
                yield from self.comparing.compare({}, self.known.best)
        except EndedError as end:
            self.known.ended = str(end)
        base_ms = self.blocks.base_ms
        if self.loaders and self.loaders.ratio < MUCH:
            timed = self.waits and not self.known.ended
            last = last_ceiling(self.blocks, self.known.best, self.seed)
            self.loaders = (yield from last) if timed else None
        is_limited = self._is_limited()
        self.known.left = "the loader is the limit" if is_limited else ""
        result = self.known.result(values, base_ms, self.blocks.seconds)
        put_off = put_off and not is_limited
        return replace(result, loaders=self.loaders, put_off=put_off, is_limited=is_limited)

    def _is_limited(self) -> bool:
        """Say whether to leave all else for last, as the loader is the limit of a step with the
        best so far."""
        base_ms = self.blocks.base_ms
        if not self.known.of_computing or base_ms is None:
            return False
        return self.limited(base_ms / self.known.surely)

    def _compiles(self, key: Key) -> bool:
        """Say whether the best so far would have to be compiled anew with a value."""
        return self.blocks.starting_s(self.space.combined(self.known.best, *key)) > 0

    def _begin(self) -> Steps[None]:
        failed = yield from self.blocks.begin()
        if not failed and self.cached:
            self.loaders, failed = yield from first_ceiling(self.blocks)
            self.known.of_computing = not failed
        if failed:
            raise EndedError(failed)

    def _cheap_first(self, values: Sequence[Key], costly: Sequence[Key]) -> Steps[bool]:
        """Compare what takes no longer than its blocks, on top of what is best already.

        Return whether to put off the rest, before or after what a few steps do not decide is
        compared one by one.
        """
        hurries = self._hurries(costly)
        if self.known.best:  # what compiles was put off already, and is worth more
            if self._has_costly():  # which is compiled anew
                self.blocks.granted_s, self._to_grant_s = self.more_s, 0.0
            if not hurries:
                yield from self._open(values, {}, FIRST_PAIRS)
            return False
        glances = yield from self._plain(
            values, lambda: bool(costly) and (hurries or self._is_urgent())
        )
        if costly and self._spare_s() > 0:
            return True
        if hurries:
            return False
        yield from self._open(values, glances)
        return bool(costly) and self._spare_s() > 0

    def _spare_s(self) -> float:
        """Return for how long the costly values need not be put off yet; 0 where they never do."""
        waits = self.loaders is not None and self.loaders.ratio >= MUCH
        return 0.0 if waits else self.early_s(self.known.gain, self.known.best)

    def _is_due(self) -> bool:
        """Say whether something costly pays that is to be proven before the rest."""
        return self._has_costly() and self._spare_s() > 0

    def _has_costly(self) -> bool:
        return bool(self.known.best.keys() & self.costly.keys())

    def _hurries(self, costly: Sequence[Key]) -> bool:
        """Say whether the first costly value is to be proven before the rest if it brings much.

        Half of the time in which it starts is known to be saved later: the runs of its proof find
        on disk what was compiled here."""
        point = self.space.combined(self.known.best, *costly[0]) if costly else {}
        return bool(point) and self.early_s(math.inf, point) > self.costly[costly[0][0]] / 2

    def _is_urgent(self) -> bool:
        """Say whether to put them off now, as it will be too late for an early proof after some
        more pairs."""
        more_s = (LOOK_EVERY + LEAST_PAIRS) * self.blocks.pair_s
        return 0 < self._spare_s() < more_s

    def _all(
        self, likely: Sequence[Key], cheap: list[Key], costly: list[Key], late: Collection[str]
    ) -> Steps[bool]:
        """Compare what is costly, take out what does not pay beside the rest, and try again what
        may pay beside that; `late` is what is unlikely to bring anything.

        Return whether the rest is put off, once something costly pays.
        """
        self.blocks.granted_s, self._to_grant_s = self.more_s if costly else 0.0, 0.0
        if late:  # the host decides, so what compiles brings most
            while costly and not self.known.best:
                yield from self._add([costly.pop(0)])
            if self.known.best:  # its proof needs what is left: its processes start slowly
                self.blocks.granted_s = 0.0
            if self._is_due():
                return True
            yield from self._open(likely, (yield from self._plain(likely)))
        yield from self._add(costly[:1])
        if self._is_due():
            return True
        yield from self._instead(costly[:1])
        yield from self._add(costly[1:])
        yield from self._thin()
        thinned = dict(self.known.best)
        due = [key for key in cheap if self.known.is_due(key)]
        yield from self._add([k for k in due if k[0] not in late or not self._compiles(k)])
        if self.known.best != thinned:
            yield from self._thin()
        granted_s = self.blocks.granted_s
        if not self.known.brought:  # else they gave way to what compiles, for which this time was
            self.blocks.granted_s = 0.0
        yield from self._add([key for key in cheap if self.known.is_open(key, MOST_PAIRS)])
        self.blocks.granted_s = granted_s
        return False

    def _plain(
        self, values: Sequence[Key], is_urgent: Callable[[], bool] = lambda: False
    ) -> Steps[dict[Key, float]]:
        """Compare what a few steps show plainly, then the rest in the same pairs until something
        else `is_urgent`, and add to the best what pays; return what each brought in a few steps."""
        known, glances = self.known, dict[Key, float]()
        for key in values:
            if self.space.allows(dict([key])) and not self._is_limited():
                ratio = yield from self.comparing.glance(key)
                if ratio is not None:
                    glances[key] = ratio
        fast = [key for key, ratio in glances.items() if ratio >= PLAIN]
        yield from self._add(sorted(fast, key=glances.__getitem__, reverse=True), FIRST_PAIRS)
        close = [key for key, ratio in glances.items() if ratio > 1 / PLAIN]
        yield from self._together([key for key in close if not known.is_settled(key)], is_urgent)
        return glances

    def _open(
        self, values: Sequence[Key], glances: Mapping[Key, float], most: int = MOST_PAIRS
    ) -> Steps[None]:
        """Compare what is not decided yet one by one, and add to the best what pays."""
        known = self.known
        few = [key for key in values if known.is_due(key)]
        few.sort(key=lambda key: glances.get(key, 1.0), reverse=True)
        yield from self._add(few, FIRST_PAIRS, self._later_s())
        few = [key for key in few if known.is_due(key) or not known.is_settled(key)]
        if most > FIRST_PAIRS and all(known.has_pairs(key) for key in few):
            yield from self._add(few, most, self._later_s())

    def _together(self, values: Sequence[Key], is_urgent: Callable[[], bool]) -> Steps[None]:
        """Compare values in the same pairs, and anew where the best has grown by much."""
        known, gain = self.known, 0.0

        def is_enough() -> bool:
            return self._is_limited() or is_urgent()

        while known.gain >= RETRY_GROWTH * gain and not (gain and is_enough()):
            gain, factors = known.gain, self._factors(values)
            if len(factors) < LEAST_TOGETHER:
                return
            yield from self.comparing.together(factors, self._later_s, is_enough)
            values = [key for key in values if known.is_due(key)]

    def _factors(self, values: Sequence[Key]) -> list[list[Key]]:
        """Return the values that can stand beside all of the best, in groups of which a block has
        one; the first ones only, where there is no time for more."""
        best = self.known.best
        points = {key: self.space.combined(best, *key) for key in values}
        fit = [k for k, p in points.items() if best.items() < p.items() and self.space.allows(p)]
        while fit and least_pairs(fit) * self.blocks.pair_s > self.blocks.left_s():
            fit.pop()
        return factors_of(self.space, fit)

    def _later_s(self) -> float:
        """Return how long the first of what comes after the cheap values will take at least.

        Nothing where there is no time for that, whatever the cheap ones leave.
        """
        costly = [s for name, s in self.costly.items() if name not in self.known.best]
        starts_s = self.blocks.first_start_s(min(costly, default=0.0))
        comparisons = LATER if costly else len(self.known.best)
        needed_s = comparisons * LEAST_PAIRS * self.blocks.pair_s + starts_s - self.more_s
        return max(0.0, needed_s) if needed_s < self.blocks.left_s() else 0.0

    def _add(
        self, values: Sequence[Key], most: int = MOST_PAIRS, kept_s: float = 0.0
    ) -> Steps[None]:
        """Add each value to the best so far, what brought most first, and keep what pays there.

        Where the time is wanted, what its first pairs do not promise to show has no more.
        """
        known = self.known
        for name, value in sorted(values, key=known.worth, reverse=True):
            if self._is_limited():
                return
            point = self.space.combined(known.best, name, value)
            if point == known.best or not self.space.allows(point) or known.is_spared(name):
                continue
            found = yield from self._tried((name, value), point, most, kept_s)
            if found.ratio is not None and known.pays(found):
                known.best, known.gain = point, known.gain * found.ratio.ratio

    def _tried(self, key: Key, point: Point, most: int, kept_s: float) -> Steps[Comparison]:
        """Compare a value with the best so far; where the time is wanted, in its first pairs only
        if it would not be shown to pay if all went on as in these."""
        tried, best = self.comparing.tried, self.known.best
        if most > FIRST_PAIRS and self._is_wanted():
            found = yield from tried(key, best, point, FIRST_PAIRS, kept_s)
            if not self.known.will_pay(found, most):
                return found
        return (yield from tried(key, best, point, most, kept_s))

    def _is_wanted(self) -> bool:
        """Say whether the time for more pairs of one value is wanted: it was granted for what
        compiles, or has room for the first comparison of something costly, and would not then."""
        known, blocks = self.known, self.blocks
        if blocks.left_s() <= blocks.granted_s:
            return True
        if self._has_costly():
            return False
        room_s = blocks.left_s() + self._to_grant_s
        least_s = LEAST_PAIRS * blocks.pair_s
        points = (self.space.combined(known.best, *key) for key in self._untried())
        needed_s = [blocks.starting_s(point) + least_s for point in points]
        # The best is compared with the unchanged script besides.
        wanted_s = sum(each for each in needed_s if each + least_s <= room_s) + least_s
        more_s = (MOST_PAIRS - FIRST_PAIRS) * blocks.pair_s
        return wanted_s > least_s and room_s - more_s < wanted_s

    def _untried(self) -> list[Key]:
        """Return the first values of costly knobs of which none was compared, and that can stand
        beside the best."""
        known, space = self.known, self.space
        tried = {key[0] for key in self._costly if known.has_pairs(key)}
        firsts = {name: (name, value) for name, value in reversed(self._costly)}
        return [
            key
            for name, key in firsts.items()
            if not (name in tried or known.is_spared(name))
            and space.allows(space.combined(known.best, *key))
        ]

    def _instead(self, values: Sequence[Key]) -> Steps[None]:
        """Compare the best with what is costly instead of what brought least of what has something
        else compiled, whether it pays beside that or not.

        A layout that pays by itself may cost all that compiling brings. Not where that took longer
        than it usually does: a rehearsal may need the time.
        """
        known = self.known
        for key in values:
            if not known.is_timed(key) or known.worth(key) >= CLEAR or self._is_limited():
                continue
            rest = {name: value for name, value in known.best.items() if name != key[0]}
            for name in sorted(rest, key=lambda name: known.worth((name, rest[name]))):
                point = self.space.combined(self.space.without(known.best, name), *key)
                starting_s = self.blocks.starting_s(point) if self.space.allows(point) else 0.0
                if not starting_s:
                    continue
                is_quick = starting_s <= LIKE_OTHERS * self.costly[key[0]]
                if is_quick and known.worth((name, rest[name])) < CLEAR:
                    found = yield from self.comparing.tried(key, known.best, point, FIRST_PAIRS)
                    if found.ratio is not None and known.pays(found):
                        known.best, known.gain = point, known.gain * found.ratio.ratio
                break

    def _thin(self) -> Steps[None]:
        """Take out each knob that does not pay beside the others, what brought least first."""
        known = self.known
        waiting = sorted(known.best, key=lambda name: known.worth((name, known.best[name])))
        while waiting and len(known.best) > 1:
            name = waiting.pop(0)
            rest = self.space.without(known.best, name)
            is_clear = known.worth((name, known.best[name])) >= CLEAR
            if is_clear and self.blocks.starting_s(rest):
                continue
            found = yield from self.comparing.compare(rest, known.best)
            if found.ratio is None or found.ratio.ratio >= known.least or known.pays(found):
                continue
            dropped = (name, known.best[name])
            known.best, known.gain = rest, known.gain / found.ratio.ratio
            self.comparing.note(dropped, found)
            waiting = sorted(rest, key=lambda name: known.worth((name, rest[name])))
