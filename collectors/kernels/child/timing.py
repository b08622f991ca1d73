"""Times of kernels on the GPU: events around each launch, in turns, with a cold L2 cache or not."""

from __future__ import annotations

import random
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from gpuadvisor.domain.inquiry import Clock, Launch

WARM_UP = 2
"""Launches that are not counted: the first one may load code."""
FIRST_ROUNDS = 3
"""Rounds after which a point that is clearly slower is given up."""
LEAST_ROUNDS, MOST_ROUNDS = 7, 100
ROUNDS_MS = 20.0
"""Time of all counted launches of a point, unless that takes fewer rounds than the least: a spread
of 0.2 to 0.8 % within a configuration, as published spaces have it, is then averaged to 0.1 %."""
CLEARLY = 1.5
"""Ratio to the best so far from which a point is not timed to its end."""

HEAD_START_CYCLES = 100_000
"""Clock cycles, some 50 us, that the GPU waits before a launch with warm caches: until all of it is
queued, so that what the launch costs the CPU is not timed. Overwriting the cache takes as long."""
QUEUED_S, MOST_QUEUED = 0.05, 1000
"""Time of launches that are queued at once, and their number (CUDA's queue holds 1,024)."""


class TurnsClock(Clock):
    """Times launches in turns."""

    @abstractmethod
    def lead(self) -> None:
        """Do what comes before each launch that is timed."""

    def rounds(
        self,
        launches: Sequence[Launch],
        count: int,
        shuffled: random.Random,
        prepare: Callable[[], object] | None = None,
    ) -> list[list[float]]:
        """Return the milliseconds of each launch in each of `count` rounds, in random order within
        each; all are queued before the first is waited for. `prepare` is called before each launch,
        and not timed.
        """
        marks: list[list[Any]] = [[] for _ in launches]
        for _ in range(count):
            order = list(range(len(launches)))
            shuffled.shuffle(order)
            for place in order:
                if prepare is not None:
                    prepare()
                self.lead()
                begin = self.mark()
                launches[place]()
                marks[place].append((begin, self.mark()))
        self.synchronize()
        return [[self.between_ms(*pair) for pair in each] for each in marks]

    def against(
        self,
        default: Launch,
        launch: Launch,
        give_up_at: float | None,
        seed: int,
        prepare: Callable[[], object] | None = None,
    ) -> tuple[list[float], list[float], bool]:
        """Return the times of the default and of a point in turns, in milliseconds, and whether the
        point was given up early: at more than `give_up_at` times the default's time.
        """
        shuffled = random.Random(seed)
        for _ in range(WARM_UP):
            if prepare is not None:
                prepare()
            launch()
        both = self.rounds((default, launch), FIRST_ROUNDS, shuffled, prepare)
        slowest = give_up_at is not None and min(both[1]) > CLEARLY * give_up_at * min(both[0])
        if slowest:
            return both[0], both[1], True
        each_ms = max(sum(map(min, both)), 1e-3)
        wanted = max(LEAST_ROUNDS, min(MOST_ROUNDS, int(ROUNDS_MS / each_ms))) - FIRST_ROUNDS
        more = self.rounds((default, launch), wanted, shuffled, prepare)
        return both[0] + more[0], both[1] + more[1], False


class GpuClock(TurnsClock):
    """Times launches on the current GPU."""

    def __init__(self, is_cold: bool = True) -> None:
        """Time each launch after the L2 cache was overwritten, or as the last one left it."""
        import torch

        self._torch = torch
        self._is_cold = is_cold

    @cached_property
    def _flushed(self) -> Any:
        """Written before each launch, so that it finds nothing of its arguments in the cache."""
        properties = self._torch.cuda.get_device_properties(self._torch.cuda.current_device())
        l2_bytes = getattr(properties, "L2_cache_size", 0) or 64 << 20
        return self._torch.empty(2 * l2_bytes, dtype=self._torch.int8, device="cuda")

    def mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between_ms(self, begin: Any, end: Any) -> float:
        return float(begin.elapsed_time(end))

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def lead(self) -> None:
        if self._is_cold:
            self._flushed.zero_()
        else:
            self._torch.cuda._sleep(HEAD_START_CYCLES)

    def spend(self, launch: Launch, seconds: float) -> int:
        """Launch back to back for so long, and return how often: nothing beside the kernel takes
        energy meanwhile.
        """
        launch()
        self._torch.cuda.synchronize()
        began_s, launches, queued = time.perf_counter(), 0, 1
        while (past_s := time.perf_counter() - began_s) < seconds:
            if launches:
                queued = max(1, min(MOST_QUEUED, int(QUEUED_S * launches / past_s)))
            for _ in range(queued):
                launch()
            self._torch.cuda.synchronize()
            launches += queued
        return launches


class HostClock(TurnsClock):
    """Times launches that are over when they return, as those of a CPU are."""

    def mark(self) -> Any:
        return time.perf_counter()

    def between_ms(self, begin: Any, end: Any) -> float:
        return 1e3 * float(end - begin)

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def lead(self) -> None:
        """A CPU's caches are left as they are."""
