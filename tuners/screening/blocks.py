"""What a screening asks of a running script: blocks of steps, and how long they will take."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from gpuadvisor.domain.knobs import Settings, Value
from gpuadvisor.domain.screening import Block, BlockTime
from gpuadvisor.tuners.space import Point
from gpuadvisor.tuners.statistics import FEW_KNOWN

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
PATIENCE, COSTLY_PATIENCE = 10.0, 3.0
"""Times as long as usual that a block may take, and as what a costly knob usually adds to it: no
knob that pays makes steps ten times slower, and one that makes them hang must not take all that is
left."""
FIRST_STARTS = 2.0
"""Times as long as usual that the first start with a costly knob may take: models were compiled in
40 s as a rule, one convolutional net in 74 s. What that has no time for is not begun, as it would
take the time and tell nothing."""
LEAST_PATIENCE_S = 20.0
"""Time that each block may take: a kernel that is looked for or built at the first step, the end of
an epoch."""
LEAST_START, USUAL_START_MS = 0.25, 30.0
"""Part of what a costly start usually takes that it takes whatever is compiled, and the step, in
milliseconds, for each of which it may take as long as usual besides. A step has no more operations
than the host can launch in it, and what compiles takes so long for each of them: 34 s for a step of
400 layers that took 26 ms, 6 s for one of 3 ms (both on H200s)."""
LIKE_OTHERS = 1.25
"""Times what the first start took with another costly knob that usually takes as long, that this
one may take: Inductor compiles the same model for both."""
REMEMBERED = 8
"""Latest blocks of the same settings in other pairs that tell how much such blocks differ."""

Key = tuple[str, Value]
"""A knob and its value."""
Returned = TypeVar("Returned")
Steps: TypeAlias = Generator[Sequence[Block], Sequence[BlockTime], Returned]


def usual_s(step_ms: float) -> float:
    """Return how long a block lasts in a script of these steps."""
    return min(LONGEST_S, max(SHORTEST_S, BLOCK_STEPS * step_ms / 1e3))


def whole_s(step_ms: float) -> float:
    """Return how long a block takes with the steps in which it settles."""
    step_s = step_ms / 1e3
    return max(usual_s(step_ms), LEAST_STEPS * step_s) + UNTIMED_STEPS * step_s


def keys_of(point: Point) -> frozenset[Key]:
    """Return a point as something that can be looked up."""
    return frozenset(point.items())


class Blocks:
    """Has blocks of a running script's steps timed, and remembers what they took."""

    def __init__(
        self,
        left_s: Callable[[], float],
        costly: Mapping[str, float],
        seed: str,
        harmless: Collection[str] = (),
        compiled: Callable[[Settings, float], None] = lambda settings, seconds: None,
    ) -> None:
        """`left_s` returns the seconds that are left, `costly` names the knobs whose first block
        takes long, and for how many seconds; `seed` decides the lengths of blocks. Beside
        `harmless` knobs, what is costly compiles nothing anew; `compiled` hears of what had its
        first block, and for how long."""
        self.granted_s = 0.0
        """Seconds beyond those that are left."""
        self.seconds = 0.0
        """Time that all blocks took."""
        self.base_ms: float | None = None
        """Mean step of the unchanged script, in milliseconds; None until it was timed."""
        self.pair_s = 4 * LONGEST_S
        """Time that the latest pair took, with turning and settling."""
        self._always: Settings = {}
        """What each block has besides what is asked for."""
        self._left_s = left_s
        self._costly, self._told = costly, compiled
        self._harmless = set(harmless) - costly.keys()
        self._random = random.Random(f"lengths of blocks: {seed}")
        self._block_s = LONGEST_S
        self._starts_s: dict[frozenset[Key], float] = {}
        """Time that a first block took with these costly settings."""
        self._compiled: set[frozenset[Key]] = set()
        """Points with costly settings that had their first block, without what is harmless."""
        self._started: set[frozenset[Key]] = {frozenset()}
        """Points that had their first block."""
        self._idle: dict[frozenset[Key], tuple[str, ...]] = {}
        """Knobs that had found nothing to change in the latest short block of a point."""
        self._times: defaultdict[frozenset[Key], list[float]] = defaultdict(list)
        """Steps of all blocks of a point, in milliseconds."""

    def left_s(self) -> float:
        """Return the seconds that are left, with those that were granted."""
        return self._left_s() + self.granted_s

    def begin(self) -> Steps[str]:
        """Time the unchanged script, which sets the length of all other blocks.

        Return why it failed, if it did.
        """
        yield from self.settle({})
        times = yield from self._ask(*[Block({}, LONGEST_S)] * FEW_KNOWN)
        failed = next((each.failed for each in times if each.failed), "")
        if not failed:
            self._measure_base([each.step_ms for each in times])
            self.pair_s = 2 * max(each.cost_s + self._block_s for each in times)
        return failed

    def stand_on(self, always: Settings) -> None:
        """Have all blocks from now on with these settings besides, which were timed alone or none.

        What was timed without them is forgotten, but for how long it takes to compile.
        """
        known = self._times[keys_of(always)]
        self._times.clear()
        self._idle.clear()
        self._always, self._started = always, {frozenset()}
        if known:
            self._times[frozenset()] = known
            self._measure_base(known)

    def _measure_base(self, times_ms: Sequence[float]) -> None:
        self.base_ms = sum(times_ms) / len(times_ms)
        self._block_s = usual_s(self.base_ms)

    def settle(self, point: Point) -> Steps[BlockTime]:
        """Have the script run a few steps with these settings."""
        (time,) = yield from self._ask(Block(point, SETTLING_S))
        if not time.failed and keys_of(point) not in self._started:
            self._started.add(keys_of(point))
            if (compiled := self._compiled_for(point)) not in self._compiled:
                self._compiled.add(compiled)
                self._starts_s[self._costly_part(point)] = time.cost_s
                if self._costly_part(point):
                    self._told({**self._always, **point}, time.cost_s)
            self._idle[keys_of(point)] = time.idle
        return time

    def prepare(self, base: Point, head: Point) -> Steps[str]:
        """Have both sides compile what they want to, and know how much blocks of the base differ.

        Return why one of them failed, if it did.
        """
        for point in (base, head):
            if keys_of(point) not in self._started:
                time = yield from self.settle(point)
                if time.failed:
                    return time.failed
        return (yield from self.repeat(base, FEW_KNOWN))

    def repeat(self, point: Point, count: int) -> Steps[str]:
        """Time a point until so many of its blocks are known; return why one failed, if it did."""
        while len(self._times[keys_of(point)]) < count:
            (time,) = yield from self._ask(Block(point, self._length_s()))
            if time.failed:
                return time.failed
        return ""

    def pair(self, first: Point, second: Point) -> Steps[tuple[BlockTime, BlockTime]]:
        """Time a block of each of two points, one right after the other."""
        before_s = self.seconds
        points = (first, second)
        one, other = yield from self._ask(*(Block(p, self._length_s()) for p in points))
        self.pair_s = self.seconds - before_s
        return one, other

    def is_idle(self, key: Key, point: Point) -> bool:
        """Say whether a value of a point that has run had found nothing to change."""
        return key[0] in self._idle.get(keys_of(point), ())

    def known(self, point: Point) -> Sequence[float]:
        """Return the steps of the latest blocks of a point, in milliseconds."""
        return self._times[keys_of(point)][-REMEMBERED:]

    def starting_s(self, *points: Point) -> float:
        """Return how long it may take until these points can be timed: nothing where they were
        before, or compile nothing. What several of them have compiled is compiled once."""
        new = [p for p in points if keys_of(p) not in self._started]
        anew = {compiled: p for p in new if (compiled := self._compiled_for(p))}
        parts = [self._costly_part(p) for each, p in anew.items() if each not in self._compiled]
        return sum(map(self._start_s, filter(None, parts)))

    def _start_s(self, part: frozenset[Key]) -> float:
        """Return how long the first start with some costly knobs may take."""
        if part in self._starts_s:
            return self._starts_s[part]
        usual_s = self._costly_s(part)
        alike = [s for known, s in self._starts_s.items() if self._costly_s(known) == usual_s]
        return LIKE_OTHERS * max(alike) if alike else self.first_start_s(usual_s)

    def first_start_s(self, usual_s: float) -> float:
        """Return how long a first start may take that usually takes so long: no longer than the
        unchanged script's step allows, which is large where the host has much to launch."""
        times = FIRST_STARTS
        if self.base_ms is not None:
            times = min(times, LEAST_START + self.base_ms / USUAL_START_MS)
        return times * usual_s

    def _costly_s(self, part: frozenset[Key]) -> float:
        """Return what the costliest of some knobs usually adds to a first block."""
        return max((self._costly[name] for name, _ in part), default=0.0)

    def _costly_part(self, point: Point) -> frozenset[Key]:
        return frozenset((name, value) for name, value in point.items() if name in self._costly)

    def _compiled_for(self, point: Point) -> frozenset[Key]:
        return frozenset(key for key in point.items() if key[0] not in self._harmless)

    def _most_s(self, point: Point) -> float:
        """Return how long a block of a point may take; a process that is new compiles anew."""
        if self.base_ms is None:
            return math.inf
        costly_s = self._costly_s(self._costly_part(point))
        return max(LEAST_PATIENCE_S, PATIENCE * whole_s(self.base_ms)) + COSTLY_PATIENCE * costly_s

    def _length_s(self) -> float:
        return self._block_s * self._random.uniform(1 - JITTER, 1 + JITTER)

    def _ask(self, *blocks: Block) -> Steps[Sequence[BlockTime]]:
        times = yield [
            Block({**self._always, **each.settings}, each.seconds, self._most_s(each.settings))
            for each in blocks
        ]
        for block, time in zip(blocks, times, strict=True):
            self.seconds += time.cost_s
            if not time.failed:
                self.seconds += time.steps * time.step_ms / 1e3
            if not time.failed and block.seconds > SETTLING_S:
                self._times[keys_of(block.settings)].append(time.step_ms)
        return times
