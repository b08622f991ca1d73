"""Has two runs that live at the same time work in turns.

Each works for a block of about a tenth of a second, waits while the other one does, and so on: what
else the machine does meanwhile, it does to both. Within each pair of blocks chance says who is
first, so that nothing that comes and goes can be in step with one of them.

A turn is given through a named pipe of the run, by the process of gpuadvisor that reads its events,
and that does nothing until the block has ended. So a run that ends, however it does, is seen to do
so, and the other one is ended, too: nobody waits for who is gone.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from gpuadvisor.collectors.script.child.turns import BLOCK, GO, WARM
from gpuadvisor.collectors.script.specification import Specification

BLOCK_S = 0.1
"""Time of a block, which has one step at least. Beside a process that comes and goes every 4 or
30 s, pairs of runs differ by 1.1 and 1.7 % with blocks of 0.1 s, and by 1.9 and 2.9 % with 0.5 s
(`benchmarks/README.md`); shorter ones wait as long as they work."""
LEAST_BLOCKS = 8
"""Blocks of each run at least: with fewer, one of them is much of what the pair says."""
FEWEST_BLOCKS = 4
"""Such blocks where a script ends by itself, or where its steps take so long that no more fit."""
MOST_LONGER = 3.0
"""Times the usual time for which runs are measured at most. Beside the work of eight others on two
cores, pairs of 4 s a side differ by 3.9 %, of which 3.5 % is how blocks differ; to start both
takes as long as such blocks do."""
BUSY = 0.1
"""CPU cores that a run may keep busy while it waits: the threads of OpenMP that spin for some
milliseconds after a step keep fewer. A run with threads or processes that go on working would
slow down the other one, and have its work done when its own turn comes."""


@dataclass
class Turns:
    """Two runs that take turns, until each of them was measured for so long."""

    measure_s: float
    min_steps: int
    longest_s: float
    """Time after which it is enough, however few blocks there are."""
    seed: str
    """What the random order of the two sides' blocks is drawn from: one seed gives one order."""
    is_precise: Callable[[Sequence[float], Sequence[float]], bool] = lambda first, second: True
    """Says of the blocks of both whether they agree well enough; else they are measured for up to
    `MOST_LONGER` times as long."""

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.seats = (Seat(self), Seat(self))
        self._chance = random.Random(f"turns: {self.seed}")
        self._next: list[Seat] = []
        """Who still works in the pair of blocks that is under way."""
        self._began_s: float | None = None
        self._voided = False
        """Whether the block that is under way does not count."""
        self.is_over = False
        """Whether no further block is wanted, or one of both has ended."""

    @property
    def blocks_ms(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean step times of the blocks of both, those beside each other at the same place.

        Blocks beside one in which no step counted, as in an evaluation, are left out.
        """
        pairs = zip(*(seat.blocks for seat in self.seats), strict=False)
        both = [(1e3 * a[1] / a[0], 1e3 * b[1] / b[0]) for a, b in pairs if a[0] and b[0]]
        return tuple(first for first, _ in both), tuple(second for _, second in both)

    def go_on(self) -> None:
        """Give the next turn, where both wait; to be called with the lock held."""
        if not all(seat.waits or seat.has_left for seat in self.seats):
            return
        if any(seat.broke for seat in self.seats):
            return  # the other one is ended as it waits
        now = time.monotonic()
        if self._began_s is None:
            self._began_s = now
        if not self._next:
            self.is_over |= self._is_enough(now)
            self._next = list(self.seats)
            self._chance.shuffle(self._next)
        if self.is_over:
            for seat in self.seats:
                seat.order("end")
        else:
            self._next.pop().order(GO)

    def void(self) -> None:
        """Forget all blocks: what one of them took for its steps was something else."""
        for seat in self.seats:
            seat.blocks.clear()
        self._next = []
        self._voided = self._began_s is not None

    def add(self, seat: Seat, steps: int, seconds: float) -> None:
        """Add a block, unless it belongs to a pair that was begun with other steps."""
        if not self._voided:
            seat.blocks.append((steps, seconds))
        self._voided = False

    def _is_enough(self, now: float) -> bool:
        assert self._began_s is not None  # it was noted before
        count = len(self.blocks_ms[0])
        steps, seconds = (
            min(sum(block[i] for block in seat.blocks) for seat in self.seats) for i in (0, 1)
        )
        if now - self._began_s >= 2 * self.longest_s:
            return True
        if count < LEAST_BLOCKS or steps < self.min_steps or seconds < self.measure_s:
            return False
        return seconds >= MOST_LONGER * self.measure_s or self.is_precise(*self.blocks_ms)


class Place(ABC):
    """One of two runs that live at the same time, and wait for each other."""

    def __init__(self) -> None:
        self.waits = False
        self.has_left = False
        """Whether its processes are gone."""
        self.waited_s = 0.0
        """Time in which it has waited so far."""
        self._orders: int | None = None
        self._since_s = 0.0
        self._processes: list[psutil.Process] = []
        self._cpu_s = self._busy_s = 0.0

    @abstractmethod
    def open(self, folder: Path, specification: Specification) -> Specification:
        """Return the specification with a pipe through which its process gets orders."""

    def pipe(self, folder: Path) -> str:
        """Return the path of a new pipe for its orders."""
        path = folder / "orders"
        os.mkfifo(path, 0o600)
        # Read and write, so that its process never finds the pipe without a writer.
        self._orders = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return str(path)

    def started(self, process: int) -> None:
        """Note its first process."""
        with contextlib.suppress(psutil.Error):
            self._processes = [psutil.Process(process)]

    @abstractmethod
    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event of its process: the other one may be to go on now."""

    @abstractmethod
    def leave(self, failed: bool = True) -> None:
        """Note that its processes are gone, and whether the run failed; only the first time."""

    @property
    @abstractmethod
    def is_abandoned(self) -> bool:
        """Whether it is to end, as the other one, or the machine, has no use for it any more."""

    @property
    def busy(self) -> float:
        """CPU cores that its processes kept busy while it waited, until now."""
        busy_s, waited_s = self._busy_s, self.waited_s
        if self.waits:
            busy_s += max(0.0, self._used_s() - self._cpu_s)
            waited_s += time.monotonic() - self._since_s
        return busy_s / waited_s if waited_s else 0.0

    def wait(self) -> None:
        """Note that it waits from now on."""
        self.waits, self._since_s, self._cpu_s = True, time.monotonic(), self._used_s()

    def note_children(self) -> None:
        """Note the processes that it has by now."""
        if self._processes:
            with contextlib.suppress(psutil.Error):
                self._processes += self._processes[0].children(recursive=True)

    def order(self, word: str) -> None:
        """End its wait with an order; to be called with the lock of both held."""
        if not self.waits or self._orders is None:
            return
        self._busy_s += max(0.0, self._used_s() - self._cpu_s)
        self.waited_s += time.monotonic() - self._since_s
        self.waits = False
        os.write(self._orders, f"{word}\n".encode())

    def close(self) -> None:
        """Give no more orders."""
        if self._orders is not None:
            os.close(self._orders)
            self._orders = None

    def _used_s(self) -> float:
        """Return the CPU time of its processes so far."""
        used = 0.0
        for process in self._processes:
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                used += times.user + times.system
        return used


class Seat(Place):
    """One of two runs that take turns."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns
        self.blocks: list[tuple[int, float]] = []
        """Steps that counted in each block, and their seconds."""
        self.broke = False
        """Whether it was the first to fail, or to end before the turns were over."""

    def open(self, folder: Path, specification: Specification) -> Specification:
        return replace(specification, turns=self.pipe(folder))

    def take(self, event: Mapping[str, Any]) -> None:
        """Take an event of its process: it may be the other one's turn now."""
        kind = event["event"]
        if kind not in (WARM, BLOCK, "step", "done", "ended"):
            return
        with self.turns.lock:
            if kind == "step":  # the first one, or a better kind of steps
                self.turns.void()
                return
            if kind in ("done", "ended"):
                self.turns.is_over = True
                return
            if kind == BLOCK:
                self.turns.add(self, event["steps"], event["seconds"])
            else:
                self.note_children()
            self.wait()
            self.turns.go_on()

    def leave(self, failed: bool = True) -> None:
        """Note that its processes are gone, and whether the run failed; only the first time.

        The other one is told to end if the turns were over, else it is abandoned.
        """
        with self.turns.lock:
            if self.has_left:
                return
            self.has_left = True
            is_left = any(seat.broke for seat in self.turns.seats)
            self.broke = (failed or not self.turns.is_over) and not is_left
            self.turns.is_over = True
            self.waits = False
            self.close()
            self.turns.go_on()

    @property
    def is_abandoned(self) -> bool:
        """Whether the other one has left while this one was still to work."""
        return any(seat.broke for seat in self.turns.seats if seat is not self)
