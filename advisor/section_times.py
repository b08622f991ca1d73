"""`profile_section("name")`: how long a part of a script takes, on the GPU where it works there.

    with gpuadvisor.profile_section("forward"):
        loss = model(batch)

    @gpuadvisor.profile_section("load")
    def load(): ...

    print(gpuadvisor.sections())

On a GPU a section is timed with CUDA events on the current stream, which are read once they have
passed: nothing waits for the GPU until `sections()` is called. Each section is an NVTX range too,
so that Nsight Systems and the torch profiler show it.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import ContextDecorator
from dataclasses import dataclass
from importlib import import_module
from threading import Lock
from time import perf_counter
from typing import Any

MAX_PENDING = 10_000
"""Sections whose events are kept unread; the GPU is waited for beyond that, as each keeps some
hundred bytes of the driver's memory."""


@dataclass(frozen=True)
class SectionTimes:
    """The times of all calls of a section together."""

    name: str
    clock: str
    """`cuda`: time between two events on the GPU; `cpu`: time on the host's clock."""
    calls: int
    total_ms: float
    min_ms: float
    max_ms: float

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.calls

    def __str__(self) -> str:
        calls = "1 call" if self.calls == 1 else f"{self.calls} calls"
        return (
            f"{self.name}: {self.mean_ms:.3f} ms in the mean of {calls} "
            f"({self.min_ms:.3f} to {self.max_ms:.3f} ms, {self.clock} clock)"
        )


class profile_section(ContextDecorator):  # noqa: N801 - used like a function
    """Time a block, or each call of a function; blocks may nest and run in several threads.

    Inside of what `torch.compile` or a CUDA graph captures, it does nothing.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._began: Any = None

    def _recreate_cm(self) -> profile_section:
        return profile_section(self._name)  # each call of a decorated function has its own

    def __enter__(self) -> profile_section:
        torch = sys.modules.get("torch")
        if torch is not None and torch.compiler.is_compiling():
            return self
        ranges = _ranges()
        if ranges is not None:
            ranges.push_range(self._name)
        self._began = _event(torch) or perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        began, self._began = self._began, None
        if began is None:
            return
        if isinstance(began, float):
            _RECORD.add(self._name, "cpu", 1e3 * (perf_counter() - began))
        else:
            ended = _event(sys.modules["torch"])
            if ended is not None:  # else a capture began inside the section
                _RECORD.wait_for(self._name, began, ended)
        ranges = _ranges()
        if ranges is not None:
            ranges.pop_range()


def sections() -> tuple[SectionTimes, ...]:
    """Return what every section took since `reset_sections()`, in the order of their first end.

    Waits for the GPU to reach the end of those that are over.
    """
    return _RECORD.times()


def reset_sections() -> None:
    """Forget all sections, for example after the warm-up."""
    _RECORD.forget()


class _Record:
    """The sums by section, and the events that the GPU has yet to pass."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._times: dict[tuple[str, str], SectionTimes] = {}
        self._pending: deque[tuple[str, Any, Any]] = deque()

    def add(self, name: str, clock: str, ms: float) -> None:
        with self._lock:
            self._add(name, clock, ms)

    def wait_for(self, name: str, began: Any, ended: Any) -> None:
        with self._lock:
            self._pending.append((name, began, ended))
            if len(self._pending) > MAX_PENDING:
                self._pending[0][2].synchronize()
            while self._pending and self._pending[0][2].query():
                self._read()

    def times(self) -> tuple[SectionTimes, ...]:
        with self._lock:
            while self._pending:
                self._pending[0][2].synchronize()
                self._read()
            return tuple(self._times.values())

    def forget(self) -> None:
        with self._lock:
            self._pending.clear()
            self._times.clear()

    def _read(self) -> None:
        name, began, ended = self._pending.popleft()
        self._add(name, "cuda", began.elapsed_time(ended))

    def _add(self, name: str, clock: str, ms: float) -> None:
        old = self._times.get((name, clock)) or SectionTimes(name, clock, 0, 0.0, ms, ms)
        least, most = min(old.min_ms, ms), max(old.max_ms, ms)
        self._times[name, clock] = SectionTimes(
            name, clock, old.calls + 1, old.total_ms + ms, least, most
        )


_RECORD = _Record()
_nvtx: Any = None


def _event(torch: Any) -> Any:
    """Return an event recorded now on the current stream; None where torch uses no GPU here."""
    if torch is None or not torch.cuda.is_initialized():
        return None
    if torch.cuda.is_current_stream_capturing():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _ranges() -> Any:
    """Return the nvtx package, None where it is not installed."""
    global _nvtx
    if _nvtx is None:
        try:
            _nvtx = import_module("nvtx")
        except ImportError:
            _nvtx = False
    return _nvtx or None
