"""What all knobs of the loaders can bring at most: a step with the batch that is there already.

No knob does better than no waiting at all. Where that is worth too little, none is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs, Screening, ScreeningResult
from gpuadvisor.tuners.knobs._script import WORKERS
from gpuadvisor.tuners.proof import orders
from gpuadvisor.tuners.screening.blocks import LONGEST_S, Blocks, Steps
from gpuadvisor.tuners.screening.knowledge import LEAST_PAIRS, Comparison
from gpuadvisor.tuners.search import MIN_GAIN
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuners.statistics import Pair

CACHED = "cached_batch"
"""Name by which the waiting for batches is turned off. It is no knob: nothing is tried with it."""
CURES = (WORKERS, "prefetch_factor")
"""Knobs that can bring nothing but less waiting for the next batch of a pass."""
MOST_PAIRS = 8
"""Pairs after which what is not decided stays so; the interval says how much it may be."""
PAIRS_S = 4 * LEAST_PAIRS * LONGEST_S
"""Time that the least pairs take, in seconds, with as long for settling as for the blocks."""
LEAST_WAITING = MIN_GAIN / 2
"""Share of the time spent waiting for batches below which the ceiling is no matter, also where the
rest of a step becomes twice as fast."""


def with_ceiling(
    course: Screening[ScreeningResult], left_s: Callable[[], float], seed: str = ""
) -> Screening[ScreeningResult]:
    """Return a screening that times the loaders' ceiling after a course of others.

    It stands on what the course found best: the faster the rest of a step, the more its waiting
    weighs. `left_s` returns the seconds that are left for it.
    """
    result = yield from course
    if result.why or result.step_ms is None:
        return result
    blocks = Blocks(left_s, {}, seed)
    ceiling = yield from _timed(blocks, result.settings, seed)
    return replace(result, seconds=result.seconds + blocks.seconds, loaders=ceiling)


def _timed(blocks: Blocks, base: Settings, seed: str) -> Steps[Ratio | None]:
    found = Comparison(base, {**base, CACHED: True}, orders(f"{seed} {CACHED}"))
    if blocks.left_s() < 0 or (yield from blocks.prepare(found.base, found.head)):
        return None
    found.known = blocks.known(base)
    while len(found.pairs) < MOST_PAIRS and not (found.ratio and _is_decided(found.ratio)):
        if len(found.pairs) >= LEAST_PAIRS and blocks.left_s() < blocks.pair_s:
            break
        base_first = next(found.order)
        points = (found.base, found.head) if base_first else (found.head, found.base)
        times = yield from blocks.pair(*points)
        one, other = times if base_first else times[::-1]
        if one.failed or other.failed:
            return None
        found.add(Pair(one.step_ms, other.step_ms, base_first))
    return found.ratio and _at_most(found.ratio)


def _at_most(ratio: Ratio) -> Ratio:
    """Return a ceiling whose upper end holds: no step gets slower by not waiting.

    By how much it looks slower, so much something else differs between the two, as cores do that
    wake later where no worker keeps them awake (2 ms in a step that sleeps, on a shared host).
    """
    return replace(ratio, high=max(ratio.high, 2 - ratio.ratio))


def _is_decided(ratio: Ratio) -> bool:
    return is_too_little(_at_most(ratio)) or ratio.low > 1 + MIN_GAIN


def is_worth_timing(baseline: Measurement, space: Space) -> bool:
    """Say whether the ceiling of a script's loaders could spare trials, and can be timed.

    Where batches differ in shape, one of them says nothing of the others.
    """
    waits = baseline.data_wait_share >= LEAST_WAITING
    return waits and not baseline.facts.varying_shapes and any(name in space for name in CURES)


def worthless(ceiling: Ratio, space: Space, beside: Settings) -> list[Screened]:
    """Return the values of the knobs that a ceiling rules out; none where it may be worth having.

    `beside` are the settings that the script had when that was timed.
    """
    if not is_too_little(ceiling):
        return []
    return [
        Screened(each.name, value, ScreenedAs.WORTHLESS, ceiling, beside)
        for each in space.parameters
        for value in each.values
        if each.name in CURES and beside.get(each.name) != value
    ]


def is_too_little(ceiling: Ratio) -> bool:
    """Say whether it is shown that no knob of the loaders can bring what is worth having."""
    return ceiling.high < 1 + MIN_GAIN
