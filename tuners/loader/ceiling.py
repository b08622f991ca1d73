"""What all knobs of the loaders can bring at most: a step with the batch that is there already.

No knob does better than no waiting at all. Where that is worth too little, none is tried. And where
a script waits for its batches, what shortens its computing is timed on the batch that is there: the
time of a block is that of the computing then, and no worker that comes late is part of it.
"""

from __future__ import annotations

from dataclasses import replace

from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import Ratio, Screened, ScreenedAs
from gpuadvisor.tuners.knobs._script import WORKERS
from gpuadvisor.tuners.screening.blocks import LONGEST_S, Blocks, Steps, whole_s
from gpuadvisor.tuners.screening.knowledge import LEAST_PAIRS, Comparison
from gpuadvisor.tuners.search import MIN_GAIN
from gpuadvisor.tuners.space import Space
from gpuadvisor.tuners.statistics import Pair, paired_ratio
from gpuadvisor.tuners.turn_order import orders

CACHED = "cached_batch"
"""Name by which the waiting for batches is turned off. It is no knob: nothing is tried with it."""
CURES = (WORKERS, "prefetch_factor")
"""Knobs that can bring nothing but less waiting for the next batch of a pass."""
MOST_PAIRS = 8
"""Pairs after which what is not decided stays so; the interval says how much it may be."""
LEAST_WAITING = MIN_GAIN / 2
"""Share of the time spent waiting for batches below which the ceiling is no matter, also where the
rest of a step becomes twice as fast."""
TOO_WIDE = 2.0
"""Upper end of a ceiling over the ceiling from which it says nothing. Six blocks of a quiet script
end at 1.1 to 1.7 times; where an evaluation or other work fell into some of them, at hundreds."""
MUCH = 1.05
"""Worth of no waiting in a few blocks from which it is timed no more: beside computing that is
faster, it is worth more still, so no knob of the loaders will be ruled out."""


def first_ceiling(blocks: Blocks) -> Steps[tuple[Ratio | None, str]]:
    """Return what no waiting is worth to the unchanged script, or why it still waits.

    The blocks with the batch that is there follow those without it, as each change would take as
    long as the workers need to fill their queue, and the script to empty it. All further blocks
    have that batch, where there is no reason why not.
    """
    head: Settings = {CACHED: True}
    failed = yield from blocks.repeat({}, LEAST_PAIRS)
    failed = failed or (yield from blocks.settle(head)).failed
    failed = failed or (yield from blocks.repeat(head, LEAST_PAIRS))
    if failed:
        return None, failed
    found = paired_ratio(list(zip(blocks.known({}), blocks.known(head), strict=False)))
    blocks.stand_on(head)
    return _at_most(Ratio(found.ratio, found.ci99_low, found.ci99_high, found.pairs)), ""


def first_ceiling_s(step_ms: float) -> float:
    """Return how long that takes about, beside what a screening begins with."""
    return (LEAST_PAIRS + 3) * max(LONGEST_S, whole_s(step_ms))


def last_ceiling(blocks: Blocks, best: Settings, seed: str) -> Steps[Ratio | None]:
    """Return what no waiting is worth beside the best settings; None where it cannot be timed.

    The faster the rest of a step, the more its waiting weighs.
    """
    blocks.stand_on({})
    found = Comparison(best, {**best, CACHED: True}, orders(f"{seed} {CACHED}"))
    needed_s = 2 * LEAST_PAIRS * blocks.pair_s  # with as long for settling as for the blocks
    if blocks.left_s() < needed_s or (yield from blocks.prepare(found.base, found.head)):
        return None
    found.known = blocks.known(best)
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


def may_wait(baseline: Measurement) -> bool:
    """Say whether a script waits for its loaders, or would where its computing is faster.

    Workers that supply a GPU in time may do so no more where that computes twice as fast. Where
    batches differ in shape, one of them says nothing of the others.
    """
    facts = baseline.facts
    if facts.varying_shapes or not facts.loaders:
        return False
    hidden = facts.device == "cuda" and any(each.num_workers for each in facts.loaders)
    return hidden or waits(baseline)


def waits(baseline: Measurement) -> bool:
    """Say whether a script waits for its loaders by more than a trifle."""
    return baseline.starved_share >= LEAST_WAITING


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


def in_words(ceiling: Ratio) -> str:
    """Return a sentence that tells a ceiling; empty where its blocks differed too much to say."""
    if ceiling.high > TOO_WIDE * ceiling.ratio:
        return ""
    return (
        f"the script's loaders are worth about {ceiling.ratio:.2f}x here, at most "
        f"{ceiling.high:.2f}x: so much faster it is with the batch that it has"
    )


def is_too_little(ceiling: Ratio) -> bool:
    """Say whether it is shown that no knob of the loaders can bring what is worth having."""
    return ceiling.high < 1 + MIN_GAIN
