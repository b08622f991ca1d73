"""Walks a trace's JSON once: hands out the events by batches, and the other values by key.

Almost every batch is cut where `},` and `{` follow each other, decoded at once, and thereby proven:
a prefix of an array's content that is an array's content itself ends between two elements, since
JSON is read from left to right in one way only. Where the guess was wrong (a nested list of
objects, a name with `},{` in it, the end of the array, invalid JSON) the exact search of
`structure` finds the elements, which takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from gpuadvisor.collectors.kineto.structure import spans
from gpuadvisor.collectors.kineto.window import Window

EVENTS = "traceEvents"
MAX_KEYS = 10_000
"""Beside the events. PyTorch writes about twenty."""

ENOUGH_BYTES = 1 << 16
"""Less than that is what the last batch left over, and waits for the next block."""

_BETWEEN = re.compile(rb"[ \t\r\n]*+\{")
_GUESSES = 16
"""Ends of objects to look at, from the last one on, before the exact search."""


class Events(Protocol):
    """Takes the events."""

    def take_array(self, array: bytes) -> bool:
        """Take an array of events, or nothing and return False if any part of it is unfit."""
        ...

    def take_each(self, elements: list[bytes]) -> None:
        """Take those of them that are events."""
        ...


class Document:
    """One trace's JSON."""

    def __init__(
        self,
        window: Window,
        events: Events,
        tell: Callable[[str, bytes], None],
        enough_bytes: int = ENOUGH_BYTES,
    ) -> None:
        self._window = window
        self._events = events
        self._tell = tell
        self._enough_bytes = enough_bytes
        self.broken_at: int | None = None
        """The byte at which the content ended early, or was no JSON any more."""

    def walk(self) -> bool:
        """Read all of it; False if it is no JSON at all."""
        window = self._window
        first = window.next()
        if window.data.startswith(b"\xef\xbb\xbf", window.at):
            window.at += 3
            first = window.next()
        if first == b"[":
            self._array()
        elif first == b"{":
            self._object()
        return first in (b"[", b"{")

    def _object(self) -> None:
        window = self._window
        window.at += 1
        for _ in range(MAX_KEYS):
            first = window.next(commas=True)
            if first == b"}":
                return
            key = window.value() if first == b'"' else None
            if key is None or window.next() != b":":
                self.broken_at = window.offset
                return
            window.at += 1
            if not self._member(key):
                self.broken_at = window.offset
                return
        self.broken_at = window.offset

    def _member(self, key: bytes) -> bool:
        """Take the value of a key; False if the content ends or breaks within it."""
        name = key[1:-1].decode("utf-8", "replace")
        if name == EVENTS and self._window.next() == b"[":
            return self._array()
        value = self._window.value()
        if not value:
            return False
        self._tell(name, value)
        return True

    def _array(self) -> bool:
        """Take the events of the array that begins here; False if it does not end."""
        window = self._window
        window.at += 1
        while (first := window.next(commas=True)) and first != b"]":
            if len(window.data) - window.at < self._enough_bytes and window.more():
                continue
            is_broken = first == b"}"  # what comes next may belong to anything
            if is_broken or not (self._guess() or self._search() or window.more()):
                self.broken_at = window.offset
                return False
        if not first:
            self.broken_at = window.offset
            return False
        window.at += 1
        return True

    def _guess(self) -> bool:
        """Take everything up to the last place that looks as if it were between two events."""
        window = self._window
        end = len(window.data)
        for _ in range(_GUESSES):
            end = window.data.rfind(b"},", window.at, end)
            if end < 0:
                return False
            if _BETWEEN.match(window.data, end + 2):
                return self._take(window.at, end + 1)
        return False

    def _search(self) -> bool:
        """Take the whole elements that are there; False where there is none."""
        window = self._window
        found = spans(window.data, window.at)
        elements = found.complete()
        if elements:
            begin, end = elements[0][0], elements[-1][1]
            if not self._take(begin, end):
                self._events.take_each([window.data[a:b] for a, b in elements])
            window.at = end
        if found.closed_at is not None:
            window.at = found.closed_at
        return bool(elements) or found.closed_at is not None

    def _take(self, begin: int, end: int) -> bool:
        content = memoryview(self._window.data)[begin:end]
        if not self._events.take_array(b"".join((b"[", content, b"]"))):
            return False
        self._window.at = end
        return True
