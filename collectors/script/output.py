"""What the script prints: drained all the time, kept only as far as anybody will read it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import IO

KEPT_BYTES = 64 * 1024
"""The end of the output that is kept. A script that prints gigabytes fills neither memory nor
disk, and never waits for a reader."""
CHUNK_BYTES = 16 * 1024


class Tail:
    """Reads a stream to its end in a thread of its own."""

    def __init__(self, stream: IO[bytes], also: Callable[[bytes], object] | None = None) -> None:
        self._stream = stream
        self._also = also
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while chunk := self._stream.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
            if self._also is not None:
                with contextlib.suppress(OSError, ValueError):  # nobody reads there any more
                    self._also(chunk)
            with self._lock:
                self._chunks.append(chunk)
                self._size += len(chunk)
                while self._size - len(self._chunks[0]) > KEPT_BYTES:
                    self._size -= len(self._chunks.popleft())
        self._stream.close()

    def text(self) -> str:
        """Return the end of the output; call it when the processes are gone."""
        self._thread.join(timeout=1.0)
        with self._lock:
            kept = b"".join(self._chunks)
        text = kept[-KEPT_BYTES:].decode("utf-8", "replace")
        return "\n".join(line.rsplit("\r", 1)[-1] for line in text.splitlines())
