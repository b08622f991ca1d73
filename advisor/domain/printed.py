"""Numbers in lines that a script prints or writes, and whether a line speaks of time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?=(?:[A-Za-z]{1,3})?(?![\w.]*\w))"
)
"""A number that stands alone, or before a short unit: not part of a word, a version or an
address."""
_FRACTION = r"(?:\.\d+|,\d{3}(?![\w.]))?"
_MOMENT = re.compile(
    rf"\b\d{{4}}[-/.]\d\d?[-/.]\d\d?(?:[T ]\d\d?:\d\d(?::\d\d{_FRACTION})?(?:Z|[-+]\d\d:?\d\d)?)?"
    rf"(?!\w)|\b\d\d?:\d\d:\d\d{_FRACTION}(?!\w)"
)
"""A date or a time of day, as logs and tables of measurements begin with: what else the line says
is no less a result for it."""
_UNITS = r"(?:ms|us|secs?|seconds?|minutes?|hours?)"
_TIMES = re.compile(
    rf"\d:\d\d|/s(?:ec)?\b|\bs/(?:it|iter|step|batch|epoch|sample|img)|\d *{_UNITS}\b"
    r"|\d(?:s|m|min|h)\b|\d s\b"
    r"|\b(?:time|timing|took|elapsed|eta|speed|throughput|duration|latency|fps)\b"
    rf"|per[ _]second|(?:\b|_)(?:timestamp|runtime|time|date|{_UNITS})(?:\b|_)|_s\b",
    re.IGNORECASE,
)
"""What tells that a line, or a key, speaks of time, which settings of a plan are to change. Words
that hold one of these do not, such as `sentiment`, nor does a smallest value (`0.5 min`)."""

_WARNING = re.compile(r"\S.*[/\\](?:site|dist)-packages[/\\].+\.py:\d+: (\w*Warning: )?")
"""Begin of what Python's `warnings` print of a place in an installed library; Lightning leaves the
category out."""

_MEMORY_UNIT = re.compile(r"\s*[kmgt]i?b\b(?!/)", re.IGNORECASE)
_MEMORY_WORD = re.compile(r"(?:\b|_)(?:memory|mem|rss|vram|[kmgt]i?b)(?:\b|_)", re.IGNORECASE)
_COLUMN = re.compile(r"(.*#.*) \((\d+)\)", re.DOTALL)
"""How files' columns of like lines are called: by the line's words, and the place in it."""


def without_warnings(lines: Iterable[str]) -> list[str]:
    """Return the lines that are no warning of an installed library, nor the code after it.

    Libraries warn of how they are used, such as of more workers than there are cores or of too few:
    that is what settings change.
    """
    kept, has_code = [], False
    for line in lines:
        found = _WARNING.match(line)
        if found is None and not (has_code and line.startswith("  ")):
            kept.append(line)
        has_code = found is not None and found[1] is not None
    return kept


def numbers_in(line: str) -> list[float]:
    """Return the numbers of a line that stand alone or before a short unit, without dates."""
    return [float(text) for text in _NUMBER.findall(_MOMENT.sub("@", line))]


def moments_in(line: str) -> list[str]:
    """Return the dates and times of day in a line, as they stand there."""
    return [found.group() for found in _MOMENT.finditer(line)]


def without_numbers(line: str) -> str:
    """Return the line with `#` for each such number, and `@` for each date."""
    return _NUMBER.sub("#", _MOMENT.sub("@", line))


def tells_time(line: str) -> bool:
    """Say whether a line or a key speaks of time beside a date: a duration, a rate."""
    return _TIMES.search(_MOMENT.sub("@", line)) is not None


def tells_memory(name: str) -> bool:
    """Say whether numbers of this name are of memory, which settings change: a key, the head of a
    column, or the words of a line with a place in it (`epoch #: # MB (2)`)."""
    column = _COLUMN.fullmatch(name)
    if column is None:
        return _MEMORY_WORD.search(name) is not None
    return int(column[2]) - 1 in memory_places(column[1])


def memory_places(words: str) -> set[int]:
    """Return which numbers of a line, given with `#` for each, stand after a word for memory or
    before a unit of it."""
    between = words.split("#")
    return {
        place
        for place, (before, after) in enumerate(pairwise(between))
        if _MEMORY_WORD.search(before if place == 0 else _MEMORY_UNIT.sub("", before, count=1))
        or _MEMORY_UNIT.match(after)
    }
