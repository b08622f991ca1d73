"""How far a script's batches are worth growing: to where throughput stops to grow, or memory ends.

A running script is handed the batch that it has, several times over in one, so a size costs seconds
and no start. What a loader could supply is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.domain.knobs import Settings, Value
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs, Screening, ScreeningResult
from gpuadvisor.tuners.loader.ceiling import CACHED, MOST_PAIRS
from gpuadvisor.tuners.screening.blocks import Blocks, Steps, whole_s
from gpuadvisor.tuners.screening.knowledge import LEAST_PAIRS, Comparison
from gpuadvisor.tuners.search import PROGRESSIVE_GAIN
from gpuadvisor.tuners.statistics import Pair
from gpuadvisor.tuners.turn_order import orders

NAME = "batch_size"
"""The knob whose values are factors on the script's own batch size."""


def with_growth(
    course: Screening[ScreeningResult],
    factors: Sequence[int],
    left_s: Callable[[], float],
    seed: str = "",
    told: Callable[[Screened], None] = lambda screened: None,
) -> Screening[ScreeningResult]:
    """Return a screening that grows the batch after a course of others, on what they found best.

    `factors` are tried in their order, each against the one before, until one brings less than
    `PROGRESSIVE_GAIN`, fails, or has no time. `left_s` returns the seconds that are left for it,
    `told` hears of each factor.
    """
    result = yield from course
    if result.why or result.step_ms is None:
        return result
    growth = _Growth(Blocks(left_s, {}, seed), result.settings, result.step_ms, told, seed)
    yield from growth.run(factors)
    found = growth.screened()
    kept = next((s.ratio for s in found if s.state is ScreenedAs.KEPT and s.ratio), None)
    seconds = result.seconds + growth.blocks.seconds
    result = replace(result, values=(*result.values, *found), seconds=seconds)
    if kept is None:
        return result
    ratio = _product(result.ratio, kept) if result.ratio else kept
    return replace(result, settings={**result.settings, NAME: growth.best}, ratio=ratio)


@dataclass
class _Growth:
    """Sizes of the batch that are compared, from the smallest on."""

    blocks: Blocks
    base: Settings
    step_ms: float
    """Step of the script with the base's settings or slower, in milliseconds."""
    told: Callable[[Screened], None]
    seed: str
    best: int = 1
    """The factor beyond which nothing is gained that is worth having, as far as was tried."""
    _tried: list[Screened] = field(default_factory=list)

    def run(self, factors: Sequence[int]) -> Steps[None]:
        """Compare each factor with the best so far, until one is not worth it."""
        for factor in factors:
            found = yield from self._compared(factor)
            if found is None:
                return
            self._tried.append(found)
            self.told(found)
            if found.state is not ScreenedAs.GAINS:
                return
            self.best = factor

    def _compared(self, factor: int) -> Steps[Screened | None]:
        """Return what a factor brings over the best so far; None where there is no time for it."""
        before_s = self.blocks.seconds
        most_s = LEAST_PAIRS * sum(whole_s(self.step_ms * each) for each in (self.best, factor))
        if most_s > self.blocks.left_s():
            return None
        base, head = self._point(self.best), self._point(factor)
        beside = {**self.base, NAME: self.best} if self.best > 1 else self.base
        failed = yield from self.blocks.prepare(base, head)
        found = Comparison(base, head, orders(f"{self.seed} {factor} batches"))
        found.known = [step_ms / self.best for step_ms in self.blocks.known(base)]
        while not failed and not _is_decided(found) and self._has_time(found):
            base_first = next(found.order)
            times = yield from self.blocks.pair(*((base, head) if base_first else (head, base)))
            one, other = times if base_first else times[::-1]
            failed = one.failed or other.failed
            if not failed:
                # Per batch of the script's own size, of which the larger ones hold several.
                found.add(Pair(one.step_ms / self.best, other.step_ms / factor, base_first))
        spent_s = self.blocks.seconds - before_s
        if failed or found.ratio is None:
            state = ScreenedAs.FAILED
            return Screened(NAME, factor, state, None, beside, spent_s, failed, of_computing=True)
        state = ScreenedAs.GAINS if _pays(found.ratio) else ScreenedAs.WORTHLESS
        if not _is_decided(found):
            state = ScreenedAs.UNRESOLVED
        why = found.size if state is ScreenedAs.UNRESOLVED else ""
        ratio = found.ratio
        return Screened(NAME, factor, state, ratio, beside, spent_s, why, of_computing=True)

    def _has_time(self, found: Comparison) -> bool:
        few = len(found.pairs) < LEAST_PAIRS  # for which there was time
        return few or (len(found.pairs) < MOST_PAIRS and self.blocks.left_s() > self.blocks.pair_s)

    def _point(self, factor: int) -> dict[str, Value]:
        return {**self.base, CACHED: factor}

    def screened(self) -> list[Screened]:
        """Return what each factor brings over the script's own batch, and which one is kept."""
        found, gained = [], Ratio(1.0, 1.0, 1.0, 0)
        for each in self._tried:
            if each.ratio is None or int(each.value) > self.best:
                found.append(each)
                continue
            gained = _product(gained, each.ratio)
            state = ScreenedAs.KEPT if each.value == self.best else ScreenedAs.GAINS
            found.append(replace(each, state=state, ratio=gained, beside=self.base))
        return found


def _pays(ratio: Ratio) -> bool:
    return ratio.ratio >= 1 + PROGRESSIVE_GAIN and ratio.low > 1


def _is_decided(found: Comparison) -> bool:
    ratio = found.ratio
    return ratio is not None and (_pays(ratio) or ratio.high < 1 + PROGRESSIVE_GAIN)


def _product(one: Ratio, other: Ratio) -> Ratio:
    return Ratio(
        one.ratio * other.ratio,
        one.low * other.low,
        one.high * other.high,
        one.pairs + other.pairs,
    )
