"""Ctrl-C and other signals as a request to stop, so that work can end with what it has."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from gpuadvisor.errors import Interrupted

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ctrl-C, `kill`, a terminal that is closed, and Ctrl-\\: none may leave a script running."""

_shielded = 0
_immediate = 0
_stop: Stop | None = None
"""The newest, while its block runs."""


@contextmanager
def at_once() -> Iterator[None]:
    """Let already the first request end the block, by Interrupted: nothing in it would be lost."""
    global _immediate
    if _stop is not None and _stop.requested():
        raise Interrupted("interrupted")
    _immediate += 1
    try:
        yield
    finally:
        _immediate -= 1


@contextmanager
def to_its_end() -> Iterator[None]:
    """Let no second request cut the block short, such as the ending of a script's processes."""
    global _shielded
    _shielded += 1
    try:
        yield
    finally:
        _shielded -= 1


class Stop:
    """Whether the user asked to stop, and how."""

    def __init__(self) -> None:
        self._signal: int | None = None

    def request(self, number: int, frame: FrameType | None) -> None:
        """Note the request; the second one does not wait any more."""
        if self._signal is None:
            self._signal = number
            if _immediate:
                raise Interrupted("interrupted")
        elif not _shielded:
            raise KeyboardInterrupt

    def requested(self) -> bool:
        return self._signal is not None

    @property
    def exit_status(self) -> int:
        """128 and the signal's number, as shells have it."""
        return 128 + (self._signal or signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Turn the signals into requests while the block runs; what `nohup` ignores stays ignored.

    Interrupted leaves the block with the exit status of the signal.
    """
    global _stop
    _stop = stop = Stop()
    asked = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop.request) for number in asked}
    try:
        yield stop
    except Interrupted as interruption:
        interruption.exit_code = stop.exit_status
        raise
    finally:
        _stop = None
        for number, handler in before.items():
            signal.signal(number, handler)
