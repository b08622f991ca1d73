"""What a screening knows: comparisons of pairs of blocks, and what they say of each value."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.knobs import Contribution, Value, shown_settings
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs, ScreeningResult
from gpuadvisor.tuners.screening.blocks import Key, keys_of
from gpuadvisor.tuners.search import MIN_GAIN, RETRY_GROWTH
from gpuadvisor.tuners.space import Point, Space
from gpuadvisor.tuners.statistics import ERROR, Pair, proven_ratio

LEAST_PAIRS = 3
"""Pairs before the first look at an interval."""

TOO_LITTLE = f"worth less than {100 * MIN_GAIN:.0f} % in one running process"
"""What is told of a value that a screening found worthless."""


@dataclass(eq=False)
class Comparison:
    """Pairs of blocks of two points, while they come in."""

    base: Point
    head: Point
    order: Iterator[bool] = field(default_factory=lambda: iter(()))
    """Whether the base comes first, for each pair in turn."""
    known: Sequence[float] = ()
    """Steps of earlier blocks of the base, in milliseconds."""
    pairs: list[Pair] = field(default_factory=list)
    """Pairs of these two points alone; none where other knobs were turned in them, too."""
    ratio: Ratio | None = None
    why: str = ""
    """Why nothing was decided, as a clause."""
    ended: ScreenedAs | None = None
    """What the value turned out to be where it cannot be timed, or need not be."""
    seconds: float = 0.0

    @property
    def size(self) -> str:
        """How many pairs of blocks it has, in words."""
        return f"{self.ratio.pairs if self.ratio else len(self.pairs)} pairs of blocks"

    def add(self, pair: Pair) -> None:
        """Take in one more pair."""
        self.pairs.append(pair)
        if len(self.pairs) >= LEAST_PAIRS:
            found = proven_ratio(self.pairs, self.known, error=ERROR)
            self.ratio = Ratio(found.ratio, found.ci99_low, found.ci99_high, found.pairs)


@dataclass
class Knowledge:
    """All comparisons so far, and the best combination that follows from them."""

    space: Space
    least: float
    """Smallest ratio worth having."""
    best: dict[str, Value] = field(default_factory=dict)
    gain: float = 1.0
    """What the best combination brings, as a product of what each step to it brought."""
    ended: str = ""
    """Why the screening ended early, as a clause; empty where it did not."""
    left: str = ""
    """Why the rest was left for last, as a clause; empty where it was not."""
    of_computing: bool = False
    """Whether all of it is of the computing alone, on a batch that is there already."""
    brought: dict[str, float] = field(default_factory=dict)
    """What each knob brought of what was best in an earlier process, as a ratio."""

    def __post_init__(self) -> None:
        self.compared: dict[tuple[frozenset[Key], frozenset[Key]], Comparison] = {}
        """Comparisons by their two points."""
        self._tried: defaultdict[Key, list[Comparison]] = defaultdict(list)
        """Comparisons of each value, the latest last."""
        self._at: dict[Key, float] = {}
        """Gain of the best when a value was last compared with it."""

    def note(self, key: Key, found: Comparison) -> bool:
        """Remember the latest comparison of a value; one that had no time says nothing new.

        Return whether something new is known.
        """
        tried = self._tried[key]
        is_news = bool(found.pairs or found.ratio or found.ended or not tried)
        if is_news:
            if found in tried:
                tried.remove(found)
            tried.append(found)
            self._at[key] = self.gain
        return is_news

    def has(self, key: Key, found: Comparison) -> bool:
        """Say whether a comparison of a value is among those remembered."""
        return found in self._tried[key]

    def between(self, base: Point, head: Point) -> Comparison | None:
        """Return what is known of these two points, None where they were never compared."""
        return self.compared.get((keys_of(base), keys_of(head)))

    # -- what a comparison says ----------------------------------------------------------------

    def pays(self, found: Comparison) -> bool:
        """Say whether it is shown that something is gained, and not that it is too little."""
        ratio = found.ratio
        return ratio is not None and ratio.low > 1 and ratio.high >= self.least

    def is_worthless(self, found: Comparison) -> bool:
        """Say whether it is shown that less is gained than is worth having."""
        return found.ratio is not None and found.ratio.high < self.least

    def is_decided(self, found: Comparison) -> bool:
        """Say whether more pairs would change nothing."""
        return self.pays(found) or self.is_worthless(found)

    def will_pay(self, found: Comparison, pairs: int) -> bool:
        """Say whether so many pairs would show that something is gained, if all went on as it did:
        an interval becomes narrower with the square root of their number."""
        ratio = found.ratio
        if ratio is None or ratio.low <= 0:
            return False
        half = math.log(ratio.high / ratio.low) / 2 * math.sqrt(ratio.pairs / pairs)
        return math.log(ratio.ratio) > half

    # -- what all of them say of a value -------------------------------------------------------

    def is_settled(self, key: Key) -> bool:
        """Say whether the latest comparison of a value decided something."""
        tried = self._tried[key]
        return bool(tried) and (bool(tried[-1].ended) or self.is_decided(tried[-1]))

    def is_due(self, key: Key) -> bool:
        """Say whether a value is to be compared with the best so far: it never was, it paid, or the
        best has grown since."""
        tried = self._tried[key]
        if self.best.get(key[0]) == key[1] or (tried and tried[-1].ended):
            return False
        return not tried or self.pays(tried[-1]) or self.has_grown_since(key)

    def has_pairs(self, key: Key) -> bool:
        """Say whether a value was compared with anything, or need not be."""
        return any(each.ratio or each.ended for each in self._tried[key])

    def is_timed(self, key: Key) -> bool:
        """Say whether a value was timed, and worked, when it was last compared."""
        tried = self._tried[key]
        return bool(tried) and tried[-1].ratio is not None and not tried[-1].ended

    def is_open(self, key: Key, pairs: int) -> bool:
        """Say whether a value was compared last in fewer pairs than these, which did not decide."""
        ratio = self._tried[key][-1].ratio if self._tried[key] else None
        return ratio is not None and ratio.pairs < pairs and not self.is_settled(key)

    def has_grown_since(self, key: Key) -> bool:
        """Say whether the best grew so much since a value was tried that it may pay now.

        What changed little is expected to save the same time beside others, which is a larger share
        of theirs. What did harm may be of use: channels_last costs a tenth alone and gains a
        quarter beside bf16 elsewhere.
        """
        tried, growth = self._tried[key], self.gain / self._at.get(key, 1.0)
        if growth < RETRY_GROWTH or (tried and tried[-1].ended):
            return False
        ratio = tried[-1].ratio if tried else None
        if ratio is None or ratio.high < 1 / self.least:
            return True
        saved = (1 - 1 / ratio.ratio) * growth
        return saved >= 1 - 1 / self.least

    def worth(self, key: Key) -> float:
        """Return what a value brought when it was last compared; 1 where it was not."""
        ratio = self._tried[key][-1].ratio if self._tried[key] else None
        return ratio.ratio if ratio else self.brought.get(key[0], 1.0)

    @property
    def surely(self) -> float:
        """What the best combination brings at least, as a product of the lower ends of what each of
        its knobs brought when it was last compared; knobs of an earlier process count with that."""
        lows = []
        for key in self.best.items():
            ratio = self._tried[key][-1].ratio if self._tried[key] else None
            lows.append(ratio.low if ratio else self.brought.get(key[0], 1.0))
        return math.prod(lows)

    def is_spared(self, name: str) -> bool:
        """Say whether a cheaper form of a knob was tried and none of its values is in the best."""
        cheaper = self.space[name].refines
        tried = any(key[0] == cheaper for key in self._at)
        return tried and cheaper not in self.best

    def state(self, key: Key) -> tuple[ScreenedAs, str]:
        """Return what became of a value, and why where that is no answer."""
        tried = self._tried[key]
        if not tried:
            return ScreenedAs.UNRESOLVED, self.ended or self.left or "nothing led to it"
        if tried[-1].ended:
            return tried[-1].ended, tried[-1].why
        if self.best.get(key[0]) == key[1]:
            return ScreenedAs.KEPT, ""
        if self.pays(tried[-1]):
            return ScreenedAs.GAINS, ""
        if not self.is_worthless(tried[-1]):
            return ScreenedAs.UNRESOLVED, tried[-1].why or tried[-1].size
        if self.has_grown_since(key):
            return (
                ScreenedAs.UNRESOLVED,
                f"no time was left to try it beside {shown_settings(self.best)}",
            )
        return ScreenedAs.WORTHLESS, ""

    def screened(self, key: Key) -> Screened:
        """Return what is to be told of a value."""
        tried, (state, why) = self._tried[key], self.state(key)
        timed = next((each for each in reversed(tried) if each.ratio), None)
        spent_s = sum(each.seconds for each in tried)
        base = timed.base if timed else {}
        beside = {name: other for name, other in base.items() if name != key[0]}
        ratio = timed.ratio if timed else None
        of_computing = self.of_computing and ratio is not None
        return Screened(*key, state, ratio, beside, spent_s, why, of_computing=of_computing)

    def result(
        self, values: Sequence[Key], step_ms: float | None, seconds: float
    ) -> ScreeningResult:
        """Return all of it, with the unchanged script's step and the time that all blocks took."""
        contributions = []
        for name, value in self.best.items():
            found = self.between(self.space.without(self.best, name), self.best)
            if found is not None and found.ratio is not None:
                known = found.ratio
                contributions.append(Contribution(name, value, known.ratio, known.low, known.high))
        whole = self.between({}, self.best)
        return ScreeningResult(
            tuple(map(self.screened, values)),
            self.best,
            whole.ratio if whole and self.best else None,
            tuple(sorted(contributions, key=lambda each: -each.ratio)),
            step_ms,
            seconds,
            self.ended,
            of_computing=self.of_computing,
        )
