"""The frames of a source, read by a thread that keeps nothing from ending."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from gpuadvisor.daemon.sources import Source
from gpuadvisor.domain.telemetry import Frame

QUEUED = 256
"""Frames that wait for the page; a recording that is read at once waits for it in turn."""
PUT_FOR_S = 0.2
"""How long the reader waits for room before it looks whether it is to stop."""


class Feed:
    """A thread that reads the source. None of its threads keeps the program from ending."""

    def __init__(self, source: Source) -> None:
        self.error: Exception | None = None
        """What ended the frames, where it was not their end."""
        self._source = source
        self._tell: Callable[[], object] = lambda: None
        self._look: Callable[[Frame], object] = lambda frame: None
        self._frames: queue.Queue[Frame] = queue.Queue(QUEUED)
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._is_told = threading.Event()
        self._reader = threading.Thread(target=self._read, name="frames", daemon=True)
        self._closer = threading.Thread(target=source.close, name="close", daemon=True)

    def start(self, look: Callable[[Frame], object] = lambda frame: None) -> None:
        """Begin to read. `look` is called in the thread with each frame, before it can be taken."""
        self._look = look
        self._reader.start()

    def listen(self, tell: Callable[[], object]) -> None:
        """Begin to read, where nobody has. `tell` is called when there is something to take, in
        any thread and once until it is taken."""
        self._tell = tell
        if self._reader.ident is None:
            self.start()
            return
        self._is_told.clear()
        if self._ended.is_set() or not self._frames.empty():
            self._told()

    def waiting(self, for_s: float) -> Iterator[Frame]:
        """Yield the frames that have come, for at most that time."""
        self._is_told.clear()
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            try:
                yield self._frames.get_nowait()
            except queue.Empty:
                return
        self._told()

    @property
    def is_over(self) -> bool:
        """Whether all frames were taken, and none will come."""
        return self._ended.is_set() and self._frames.empty()

    def stop(self) -> None:
        """Ask the source to close; it may take its time, or never do it."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._closer.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the source has closed, but no longer."""
        self._closer.join(timeout_s)

    def _told(self) -> None:
        if not self._is_told.is_set() and not self._stopped.is_set():
            self._is_told.set()
            self._tell()

    def _read(self) -> None:
        try:
            for frame in self._source.frames():
                self._look(frame)
                is_waiting = True
                while is_waiting:
                    if self._stopped.is_set():
                        return
                    with suppress(queue.Full):
                        self._frames.put(frame, timeout=PUT_FOR_S)
                        is_waiting = False
                self._told()
        except Exception as error:
            self.error = error
        finally:
            self._ended.set()
            self._told()
