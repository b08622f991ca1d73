"""Numbers in lines that a script prints or writes, and whether a line speaks of time."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w.]*\w)")
"""A number that stands alone: not part of a word, a version or an address."""
_TIMES = re.compile(
    r"\d:\d\d|/s\b|\bs/(?:it|iter|step|batch|epoch|sample|img)"
    r"|\d *(?:s|ms|us|sec|secs|seconds?|min|minutes?|h|hours?)\b"
    r"|time|took|elapsed|eta\b|speed|throughput|per[ _]second|(?:_|\b)(?:s|ms|sec|seconds)$",
    re.IGNORECASE,
)
"""What tells that a line, or a key, speaks of time, which settings of a plan are to change."""


def numbers_in(line: str) -> list[float]:
    """Return the numbers that stand alone in a line."""
    return [float(text) for text in _NUMBER.findall(line)]


def without_numbers(line: str) -> str:
    """Return the line with `#` for each number that stands alone."""
    return _NUMBER.sub("#", line)


def tells_time(line: str) -> bool:
    """Say whether a line or a key speaks of time: a date, a duration, a rate."""
    return _TIMES.search(line) is not None
