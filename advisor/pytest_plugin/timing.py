"""How a function is timed: called until it is warm, then in rounds, by CUDA events or the clock."""

from __future__ import annotations

import gc
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from gpuadvisor.collectors.script.child.clock import MAX_RESTARTS, RESTLESS_STEPS
from gpuadvisor.collectors.script.child.counters import compilations
from gpuadvisor.collectors.script.child.windows import (
    MAX_EXTENSIONS,
    CudaTimer,
    HostTimer,
    Timer,
)
from gpuadvisor.collectors.script.specification import Schedule

STEADY = Schedule()
"""What is warm and what is steady: as steps of a script, by compilations and by drift."""
WARMUP_S = 0.2
"""Least time of calls before the first that counts: a GPU's clocks rise within tens of ms. A script
has a second, as its loaders have to settle too."""
ROUND_S = {HostTimer: 1e-4, CudaTimer: 5e-4}
"""Least length of a round, a thousand times what a clock resolves: CUDA events tell half a
microsecond apart (cudaEventElapsedTime), and to call perf_counter takes about a tenth of one."""
L2_BYTES = 128 << 20
"""Size of an L2 cache that torch does not tell: that of the largest (B200)."""


@dataclass(frozen=True)
class Wanted:
    """How closely a function is to be timed."""

    max_time_s: float = 1.0
    min_rounds: int = 5
    flush_l2: bool = False


@dataclass
class Timing:
    """What a function took."""

    rounds_s: list[float]
    """Mean time of a call, for each round."""
    calls: int
    """Calls of a round."""
    on_gpu: bool
    """Whether CUDA events were compared."""
    is_steady: bool = True
    """Whether the two halves of the rounds agree within `STEADY.drift`."""
    span_s: tuple[float, float] = (0.0, 0.0)
    """When the rounds began and ended, by `time.monotonic`, which all processes have in common."""


@dataclass
class Stopwatch:
    """Times one function. The kind of clock is chosen when it has been called once."""

    call: Callable[[], Any]
    wanted: Wanted = field(default_factory=Wanted)
    now: Callable[[], float] = time.perf_counter
    timer: Timer | None = None
    """CUDA events or the host's clock; None to choose by whether torch has used the GPU."""
    flush: Callable[[], Any] | None = None
    """Called before each call, untimed."""

    def run(self) -> Timing:
        """Time it; what it raises is let through."""
        before = _allocations()
        self.call()
        self.choose_timer()
        if elsewhere := _elsewhere(before):
            warnings.warn(elsewhere, stacklevel=2)
        calls, round_s = self._warm_up()
        rounds_s: list[float] = []
        restarts = extensions = 0
        began_s = time.monotonic()
        while True:
            compiled = compilations()
            count = math.ceil(self.wanted.max_time_s / round_s)
            rounds_s += self.rounds(max(self.wanted.min_rounds, count) - len(rounds_s), calls)
            if compilations() != compiled and restarts < MAX_RESTARTS:
                restarts += 1
                rounds_s.clear()
                calls, round_s = self._warm_up()
                began_s = time.monotonic()
            elif not (steady := is_steady(rounds_s)) and extensions < MAX_EXTENSIONS:
                extensions += 1
                del rounds_s[: len(rounds_s) // 2]
            else:
                return Timing(rounds_s, calls, self.on_gpu, steady, (began_s, time.monotonic()))

    def rounds(
        self,
        count: int,
        calls: int,
        before: Callable[[], Any] | None = None,
        after: Callable[[], Any] | None = None,
    ) -> list[float]:
        """Return the time of a call in so many rounds; the device is waited for at both ends only.

        `before` and `after` are called around each round, untimed, and so is the garbage collector
        for what is youngest: what calls leave in cycles, such as tensors, would else stay.
        """
        marks = []
        for number in range(count):
            gc.collect(0)
            if before is not None:
                before()
            if not number:
                self.choose_timer()
                self._timer.synchronize()
            marks.append(self._round(calls))
            if after is not None:
                after()
        if not marks:
            return []
        self._timer.synchronize()
        taken = [math.fsum(self._timer.between_s(*both) for both in pairs) for pairs in marks]
        return [seconds / calls for seconds in taken]

    def choose_timer(self) -> None:
        """Choose the clock by whether torch has used the current GPU by now.

        What it has there at the moment says less: a function may free all that it allocates.
        """
        torch = sys.modules.get("torch")
        if self.timer is None or isinstance(self.timer, HostTimer):
            self.timer = CudaTimer(torch) if uses_gpu() else HostTimer()
        if self.flush is None and self.wanted.flush_l2 and self.on_gpu:
            self.flush = _flush(torch)

    @property
    def on_gpu(self) -> bool:
        return isinstance(self.timer, CudaTimer)

    @property
    def _timer(self) -> Timer:
        assert self.timer is not None  # it was chosen
        return self.timer

    def _warm_up(self) -> tuple[int, float]:
        """Call it until it is warm; return the calls that make a round, and what that takes.

        That counts what flushes take: they can be a hundred times as long as the function.
        """
        round_s = ROUND_S[CudaTimer if self.on_gpu else HostTimer]
        began, compiled = self.now(), compilations()
        calls, done, quiet = 1, 0, 0
        found: list[float] = []
        while True:
            started = self.now()
            (call_s,) = self.rounds(1, calls)
            found.append(calls * call_s if self.flush is None else self.now() - started)
            done += calls
            seen = compilations()
            compiled, quiet = seen, quiet + calls if seen == compiled else 0
            long_enough = calls * call_s >= round_s
            is_warm = quiet >= STEADY.quiet_steps or done >= RESTLESS_STEPS
            if long_enough and is_warm and self.now() - began >= WARMUP_S:
                return calls, median(found)
            if not long_enough:
                calls *= 2
                found.clear()

    def _round(self, calls: int) -> list[tuple[Any, Any]]:
        """Return marks before and after: of all calls together, or of each that is flushed for."""
        call, mark, flush = self.call, self._timer.mark, self.flush
        if flush is None:
            first = mark()
            for _ in range(calls):
                call()
            return [(first, mark())]
        pairs = []
        for _ in range(calls):
            flush()
            first = mark()
            call()
            pairs.append((first, mark()))
        return pairs


def is_steady(rounds_s: list[float]) -> bool:
    """Say whether the medians of both halves agree: a stall in one of them is no drift."""
    half = len(rounds_s) // 2
    if not half:
        return True
    first, second = median(rounds_s[:half]), median(rounds_s[half:])
    return abs(second / first - 1) <= STEADY.drift if first else True


def uses_gpu() -> bool:
    """Say whether torch has ever allocated memory on the current GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    return bool(torch.cuda.max_memory_reserved() > 0)


def _allocations() -> list[int]:
    """Return how often torch has allocated memory, for each GPU; nothing where it uses none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    return [
        torch.cuda.memory_stats(gpu).get("allocation.all.allocated", 0)
        for gpu in range(torch.cuda.device_count())
    ]


def _elsewhere(before: list[int]) -> str:
    """Return a warning where a function allocated memory on other GPUs than the current one only.

    Events on the current GPU's stream do not wait for those.
    """
    after = _allocations()
    before = before or [0] * len(after)
    grown = [gpu for gpu, count in enumerate(after) if count > before[gpu]]
    current = sys.modules["torch"].cuda.current_device() if grown else None
    if not grown or current in grown:
        return ""
    return (
        f"gpu_benchmark times what runs on the current GPU, cuda:{current}, but this function "
        f"works on cuda:{grown[0]}: put `with torch.cuda.device({grown[0]}):` around it"
    )


@contextmanager
def undisturbed() -> Iterator[None]:
    """Switch off garbage collection, tracers and profilers, such as that of coverage."""
    was_on, tracer, profiler = gc.isenabled(), sys.gettrace(), sys.getprofile()
    gc.collect()
    gc.disable()
    sys.settrace(None)
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        sys.setprofile(profiler)
        if was_on:
            gc.enable()


@contextmanager
def nvtx_range(name: str) -> Iterator[None]:
    """Have a range in the profiles of Nsight Systems, where torch uses a GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        yield
        return
    torch.cuda.nvtx.range_push(name)
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


def _flush(torch: Any) -> Callable[[], Any]:
    """Return what drives the GPU's L2 cache's contents out of it."""
    device = torch.cuda.current_device()
    size = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or L2_BYTES
    zero: Callable[[], Any] = torch.empty(2 * size, dtype=torch.int8, device=device).zero_
    return zero
