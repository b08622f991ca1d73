"""Ctrl-C and SIGTERM as a request to stop, so that work can end with what it has."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether the user asked to stop, and how."""

    def __init__(self) -> None:
        self._signal: int | None = None

    def request(self, number: int, frame: FrameType | None) -> None:
        """Note the request; the second one does not wait any more."""
        if self._signal is not None:
            raise KeyboardInterrupt
        self._signal = number

    def requested(self) -> bool:
        return self._signal is not None

    @property
    def exit_status(self) -> int:
        """128 and the signal's number, as shells have it."""
        return 128 + (self._signal or signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn SIGINT and SIGTERM into requests while the block runs."""
    stop = Stop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop.request) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
