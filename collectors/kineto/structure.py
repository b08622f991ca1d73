"""Where the values of a JSON array lie, without decoding them: exact, and in whole arrays of bytes.

Brackets count only outside of strings; strings end at quotes that no odd number of backslashes
precedes. What this finds in valid JSON is exact; of invalid JSON it finds what looks balanced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Places: TypeAlias = npt.NDArray[np.int64]

FIRST_PIECE_BYTES = 1 << 12
LARGEST_PIECE_BYTES = 1 << 18
"""Positions take 8 bytes each, so a piece takes a few MiB at most, whatever it holds."""

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


@dataclass
class Spans:
    """The arrays and objects directly within an array."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Behind the last byte. One that is still open at the end of the data has none."""
    closed_at: int | None = None
    """Where the array's own closing bracket is."""

    def complete(self) -> list[tuple[int, int]]:
        """Return the begin and end of each that ends."""
        return list(zip(self.begins, self.ends, strict=False))


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
