"""The part of a file's content that is being looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuadvisor.collectors.kineto.structure import spans
from gpuadvisor.errors import UsageError

MAX_VALUE_BYTES = 64 << 20
"""Of one event, or of another value beside the events. Those of real traces stay below 1 MiB."""

_SPACE = re.compile(rb"[ \t\r\n]*+")
_SPACE_AND_COMMAS = re.compile(rb"[ \t\r\n,]*+")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^ \t\r\n,:{}\[\]\"]++")


class Window:
    """Bytes from `at` on, which `more` makes more; what lies before `at` is forgotten then."""

    def __init__(self, blocks: Iterable[bytes], what: str) -> None:
        self._blocks = iter(blocks)
        self._what = what
        self._passed = 0
        self.data = b""
        self.at = 0
        self.ended = False

    @property
    def offset(self) -> int:
        """How many bytes of the content lie before `at`."""
        return self._passed + self.at

    def more(self) -> bool:
        """Double what is there, so that looking again and again stays linear; False at the end."""
        rest = len(self.data) - self.at
        if rest > MAX_VALUE_BYTES:
            raise UsageError(
                f"{self._what} holds a value of more than {MAX_VALUE_BYTES >> 20} MiB at byte "
                f"{self.offset}, which no trace has: it was not read."
            )
        parts, size = [memoryview(self.data)[self.at :]], 0
        while size < max(rest, 1) and not self.ended:
            block = next(self._blocks, b"")
            self.ended = not block
            parts.append(memoryview(block))
            size += len(block)
        self._passed += self.at
        self.data, self.at = b"".join(parts), 0
        return size > 0

    def next(self, commas: bool = False) -> bytes:
        """Skip space, commas too if asked, and return the byte that follows, empty at the end."""
        pattern = _SPACE_AND_COMMAS if commas else _SPACE
        while True:
            found = pattern.match(self.data, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.data):
                return self.data[self.at : self.at + 1]
            if not self.more():
                return b""

    def value(self) -> bytes | None:
        """Take the JSON value that begins at `at`; None where the content ends within it."""
        first = self.next()
        if not first:
            return None
        while True:
            end = self._value_end(first)
            if end is not None:
                value, self.at = self.data[self.at : end], end
                return value
            if not self.more():
                return None

    def _value_end(self, first: bytes) -> int | None:
        if first in b"{[":
            ends = spans(self.data, self.at, only_first=True).ends
            return ends[0] if ends else None
        found = (_STRING if first == b'"' else _SCALAR).match(self.data, self.at)
        if not found:
            return None if first == b'"' else self.at
        is_whole = first == b'"' or found.end() < len(self.data) or self.ended
        return found.end() if is_whole else None
