"""Marks in the device's own time, taken without waiting for the device."""

from __future__ import annotations

import time
from typing import Any, Protocol


class Timer(Protocol):
    """Takes a mark at each step; marks are compared when the device has passed them."""

    def mark(self) -> Any: ...

    def ready(self, mark: Any) -> bool:
        """Say whether the device has passed the mark."""
        ...

    def between_s(self, first: Any, second: Any) -> float: ...

    def synchronize(self) -> None: ...


class HostTimer:
    """For scripts that use no GPU."""

    def mark(self) -> float:
        return time.perf_counter()

    def ready(self, mark: float) -> bool:
        return True

    def between_s(self, first: float, second: float) -> float:
        return second - first

    def synchronize(self) -> None:
        return None


class CudaTimer:
    """CUDA events on the stream that is current at the mark.

    The time between two steps' events is the time that the GPU took from the end of one to the
    end of the next, however far the host ran ahead; in steady state it is the step time.
    """

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda

    def mark(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def ready(self, mark: Any) -> bool:
        return bool(mark.query())

    def between_s(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) / 1e3

    def synchronize(self) -> None:
        self._cuda.synchronize()


def timer_for(torch: Any) -> Timer:
    """Return CUDA events if the script has work on a GPU by now, else the host's clock."""
    if torch.cuda.is_initialized() and torch.cuda.memory_allocated() > 0:
        return CudaTimer(torch)
    return HostTimer()
