"""Walks a trace's JSON once: hands out the events by batches, and the other values by key.

Almost every batch is cut where `},` and `{` follow each other, decoded at once, and thereby proven:
a prefix of an array's content that is an array's content itself ends between two elements, since
JSON is read from left to right in one way only. Where the guess was wrong (a nested list of
objects, a name with `},{` in it, the end of the array, invalid JSON) the exact search of
`spans` finds the elements, which takes ten times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from gpuadvisor.errors import UsageError

Places: TypeAlias = npt.NDArray[np.int64]

FIRST_PIECE_BYTES = 1 << 12
LARGEST_PIECE_BYTES = 1 << 18
"""Positions take 8 bytes each, so a piece takes a few MiB at most, whatever it holds."""

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1
MAX_VALUE_BYTES = 64 << 20
"""Largest event, or other value beside the events. Those of real traces stay below 1 MiB."""
_SPACE = re.compile(rb"[ \t\r\n]*+")
_SPACE_AND_COMMAS = re.compile(rb"[ \t\r\n,]*+")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^ \t\r\n,:{}\[\]\"]++")
EVENTS = "traceEvents"
MAX_KEYS = 10_000
"""Most keys beside the events. PyTorch writes about twenty."""
ENOUGH_BYTES = 1 << 16
"""Less than that is what the last batch left over, and waits for the next block."""
_BETWEEN = re.compile(rb"[ \t\r\n]*+\{")
_GUESSES = 16
"""Ends of objects to look at, from the last one on, before the exact search."""


@dataclass
class Spans:
    """The arrays and objects directly within an array."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Positions behind the last byte. One that is still open at the end of the data has none."""
    closed_at: int | None = None
    """Position of the array's own closing bracket."""


def spans(data: bytes, begin: int, only_first: bool = False) -> Spans:
    """Find the arrays and objects from `begin` on, which lies directly within an array."""
    found = Spans()
    depth = 0
    for at, marks, steps in _brackets(data, begin):
        depths = depth + np.cumsum(steps, dtype=np.int64)
        past = np.flatnonzero(depths < 0)
        if len(past):
            found.closed_at = at + int(marks[past[0]])
            marks, steps, depths = marks[: past[0]], steps[: past[0]], depths[: past[0]]
        found.begins.extend((at + marks[(steps > 0) & (depths == 1)]).tolist())
        found.ends.extend((at + 1 + marks[(steps < 0) & (depths == 0)]).tolist())
        if found.closed_at is not None or (only_first and found.ends):
            break
        depth = int(depths[-1]) if len(depths) else depth
    return found


def _brackets(data: bytes, begin: int) -> Iterator[tuple[int, Places, npt.NDArray[np.int8]]]:
    """Yield pieces: where each begins, its brackets outside of strings, and their steps."""
    size, inside, escaped = FIRST_PIECE_BYTES, 0, False
    while begin < len(data):
        piece = np.frombuffer(data, np.uint8, min(size, len(data) - begin), begin)
        quotes, escaped = _quotes(piece, escaped)
        steps = _STEPS[piece]
        marks = np.flatnonzero(steps)
        marks = marks[(np.searchsorted(quotes, marks) + inside) % 2 == 0]
        yield begin, marks, steps[marks]
        inside = (inside + len(quotes)) % 2
        begin += len(piece)
        size = min(2 * size, LARGEST_PIECE_BYTES)


def _quotes(piece: npt.NDArray[np.uint8], escaped: bool) -> tuple[Places, bool]:
    """Return the quotes that begin or end a string, and whether the next piece begins escaped."""
    quotes = np.flatnonzero(piece == _QUOTE)
    slashes = np.flatnonzero(piece == _BACKSLASH)
    if escaped:
        quotes, slashes = quotes[quotes != 0], slashes[slashes != 0]
    if not len(slashes):
        return quotes, False
    is_first = np.diff(slashes, prepend=-2) != 1
    is_last = np.append(is_first[1:], True)
    lengths = slashes[is_last] - slashes[is_first] + 1
    behind = (slashes[is_last] + 1)[lengths % 2 == 1]
    quotes = quotes[~np.isin(quotes, behind, assume_unique=True)]
    return quotes, bool(len(behind) and behind[-1] == len(piece))


class ContentWindow:
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


class Events(Protocol):
    """Takes the events."""

    def take_array(self, array: bytes) -> bool:
        """Take an array of events, or nothing and return False if any part of it is unfit."""
        ...

    def take_each(self, elements: list[bytes]) -> None:
        """Take those of them that are events."""
        ...


class TraceDocument:
    """One trace's JSON."""

    def __init__(
        self,
        window: ContentWindow,
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
            name = key[1:-1].decode("utf-8", "replace")
            if name == EVENTS and window.next() == b"[":
                if not self._array():
                    return
            elif value := window.value():
                self._tell(name, value)
            else:
                break
        self.broken_at = window.offset

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
        elements = list(zip(found.begins, found.ends, strict=False))  # those that end
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
