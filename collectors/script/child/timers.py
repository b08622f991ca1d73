"""Marks in the device's own time, taken without waiting for the device."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol


class Timer(Protocol):
    """Takes a mark at each step; marks are compared when the device has passed them."""

    def mark(self) -> Any: ...

    def ready(self, mark: Any) -> bool:
        """Say whether the device has passed the mark."""
        ...

    def between_s(self, first: Any, second: Any) -> float: ...

    def synchronize(self) -> None: ...

    def give_back(self, marks: Iterable[Any]) -> None:
        """Take back marks that nobody will compare any more, to use them again."""
        ...


class HostTimer:
    """For scripts that use no GPU."""

    mark = staticmethod(time.perf_counter)

    def ready(self, mark: float) -> bool:
        return True

    def between_s(self, first: float, second: float) -> float:
        return second - first

    def synchronize(self) -> None:
        return None

    def give_back(self, marks: Iterable[float]) -> None:
        return None


class CudaTimer:
    """CUDA events on the stream that is current at the mark.

    The time between two steps' events is the time that the GPU took from the end of one to the
    end of the next, however far the host ran ahead; in steady state it is the step time.
    """

    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda
        self._free: list[Any] = []
        """Events to record again, which costs less than to create one and to destroy one."""
        self._device = getattr(torch._C, "_cuda_getDevice", None)  # private: it may go
        self._stream_of = getattr(torch._C, "_cuda_getCurrentStream", None)
        self._streams: dict[Any, Any] = {}

    def mark(self) -> Any:
        stream = self._stream()
        if self._free:
            event = self._free.pop()
            try:
                event.record(stream)
            except RuntimeError:  # an event stays on the device of its first record
                self._free.clear()
            else:
                return event
        event = self._cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def _stream(self) -> Any:
        """Return `torch.cuda.current_stream()`, which makes a new object in ten calls each time."""
        if self._device is None or self._stream_of is None:
            return self._cuda.current_stream()
        identity = self._stream_of(self._device())
        stream = self._streams.get(identity)
        if stream is None:
            stream = self._streams[identity] = self._cuda.current_stream()
        return stream

    def ready(self, mark: Any) -> bool:
        return bool(mark.query())

    def between_s(self, first: Any, second: Any) -> float:
        return float(first.elapsed_time(second)) / 1e3

    def synchronize(self) -> None:
        self._cuda.synchronize()

    def give_back(self, marks: Iterable[Any]) -> None:
        self._free.extend(marks)


def timer_for(torch: Any) -> Timer:
    """Return CUDA events if the script has work on a GPU by now, else the host's clock."""
    if torch.cuda.is_initialized() and torch.cuda.memory_allocated() > 0:
        return CudaTimer(torch)
    return HostTimer()
