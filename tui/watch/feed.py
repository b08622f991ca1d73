"""Frames from a source that may block for ever, for a page that must not."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from gpuadvisor.daemon.sources import Source
from gpuadvisor.domain.telemetry import Frame

QUEUED = 256
"""Frames that wait for the page; a recording that is read at once waits for it in turn."""
POLL_S = 0.2


class Feed:
    """A thread that reads the source. None of its threads keeps the program from ending."""

    def __init__(self, source: Source) -> None:
        self.error: Exception | None = None
        """What ended the frames, where it was not their end."""
        self._source = source
        self._frames: queue.Queue[Frame] = queue.Queue(QUEUED)
        self._stopped = threading.Event()
        self._reader = threading.Thread(target=self._read, name="frames", daemon=True)
        self._closer = threading.Thread(target=source.close, name="close", daemon=True)

    def start(self) -> None:
        self._reader.start()

    def waiting(self, for_s: float) -> Iterator[Frame]:
        """Yield the frames that have come, for at most that time."""
        until = time.monotonic() + for_s
        while time.monotonic() < until:
            try:
                yield self._frames.get_nowait()
            except queue.Empty:
                return

    @property
    def is_over(self) -> bool:
        """Whether all frames were taken, and none will come."""
        return self._reader.ident is not None and not self._reader.is_alive() and self._is_empty

    def stop(self) -> None:
        """Ask the source to close; it may take its time, or never do it."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._closer.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the source has closed, but no longer."""
        self._closer.join(timeout_s)

    @property
    def _is_empty(self) -> bool:
        return self._frames.empty()

    def _read(self) -> None:
        try:
            for frame in self._source.frames():
                self._put(frame)
                if self._stopped.is_set():
                    return
        except Exception as error:
            self.error = error

    def _put(self, frame: Frame) -> None:
        while not self._stopped.is_set():
            with suppress(queue.Full):
                self._frames.put(frame, timeout=POLL_S)
                return
