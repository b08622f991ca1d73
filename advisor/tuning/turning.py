"""Times both sides of a proof in turns within each of its processes, where its knobs allow that.

Runs of one script may differ by a third from start to start, where blocks of steps of one process
agree to a percent. So a process is measured as it has started, unchanged or with the plan, and
then both sides follow one another in it: that tells which part of its time is its own.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.collectors.script.child.live_blocks import LEAST_STEPS, SETTLING_STEPS
from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Settings
from gpuadvisor.domain.screening import Block, BlockTime
from gpuadvisor.domain.study import InTurns, Objective
from gpuadvisor.tuners.base import Knob

MOST_PAIRS = 4
"""Pairs of blocks of a process: together they are measured for as long as it was before."""
LEAST_PAIRS = 2
"""Pairs below which one interruption decides about a process."""


@dataclass(frozen=True)
class Turning:
    """What is turned in each process of a proof, and for how long."""

    head: Settings
    """What is turned of the side that is compared with the other."""
    live: Mapping[str, str]
    """Their knobs, and where each is found, in the order in which they are turned on."""
    pairs: int
    """Pairs of blocks, one of each side."""
    block_s: float
    """Time that each block is measured at least."""
    expected_s: float
    """Time that all of them will take, about, without what a knob compiles."""
    base: Settings = field(default_factory=dict)
    """What is turned of the other side: nothing, unless two plans are compared."""

    def shortest(self) -> Turning:
        """Return this with as few blocks as may be."""
        expected_s = self.expected_s * LEAST_PAIRS / self.pairs
        return replace(self, pairs=LEAST_PAIRS, expected_s=expected_s)

    def blocks(self, seed: str) -> list[Block]:
        """Return the blocks of a process, each pair in an order by chance.

        In a fixed order, whatever is slower in each second block would pass for a gain.
        """
        generator = random.Random(f"blocks: {seed}")
        found = []
        for _ in range(self.pairs):
            both = [Block(self.base, self.block_s), Block(self.head, self.block_s)]
            generator.shuffle(both)
            found += both
        return found

    def told(self, blocks: Sequence[Block], times: Sequence[BlockTime]) -> InTurns | None:
        """Return what both sides took; None unless all blocks were timed."""
        if len(times) < len(blocks) or any(each.failed for each in times):
            return None
        sides: tuple[list[float], list[float]] = [], []
        for block, each in zip(blocks, times, strict=True):
            sides[block.settings == self.head].append(math.log(each.step_ms))
        base, head = (math.exp(math.fsum(logs) / len(logs)) for logs in sides)
        return InTurns(base, head)


def turning_of(
    head: Settings,
    knobs: Mapping[str, Knob],
    measure_s: float,
    step_s: float,
    run_s: float,
    base: Settings | None = None,
) -> Turning:
    """Return how both sides are turned in processes that measure for `measure_s`.

    A step takes about `step_s`, a run `run_s`: blocks of slow steps take no longer than another
    run, unless they would be too few. What cannot be turned is the same on both sides
    (`unable_to_turn`), and each process has it from its start.
    """
    block_s = measure_s / MOST_PAIRS
    steps = SETTLING_STEPS + max(LEAST_STEPS, math.ceil(block_s / step_s))
    pair_s = 2 * steps * step_s
    pairs = min(MOST_PAIRS, max(LEAST_PAIRS, int(run_s / pair_s)))
    base = base or {}
    turned = {n for n in {**base, **head} if _turns(n, (base, head), knobs)}
    both = {name: value for name, value in {**base, **head}.items() if name in turned}
    live = {name: knobs[name].application(both[name]).applier for name in knobs if name in both}
    one, other = ({n: v for n, v in side.items() if n in turned} for side in (head, base))
    return Turning(one, live, pairs, block_s, pairs * pair_s, other)


def unable_to_turn(
    head: Settings, knobs: Mapping[str, Knob], objective: Objective, base: Settings | None = None
) -> str | None:
    """Return why what sets these settings apart from those of the base, the unchanged script if not
    given, cannot be turned in a running script, as a clause, or None.

    What has a part that is set before a process starts cannot: a process has to be as it is for
    the user whichever side it starts as. Nor is the ratio of the other part of any use beside
    fresh processes for this one, which differ from start to start as those for both parts do.
    """
    if objective is not Objective.THROUGHPUT:
        return f"the objective is {objective}"
    base = base or {}
    for name in {**base, **head}:
        is_same = name in base and name in head and base[name] == head[name]
        if not (is_same or _turns(name, (base, head), knobs)):
            return f"{name} is set before the script starts"
    return None


def _turns(name: str, sides: Sequence[Settings], knobs: Mapping[str, Knob]) -> bool:
    """Say whether a setting can be turned in a running script, with what it is on either side."""
    if name.startswith(ARGUMENT_PREFIX) or not is_live(knobs[name]):
        return False
    return not any(knobs[name].environment(side[name]) for side in sides if name in side)


def is_live(knob: Knob) -> bool:
    """Say whether a knob can be turned in a running script."""
    return type(knob).live is not Knob.live and not knob.progressive
