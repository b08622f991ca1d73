"""Numbers as a program of any country writes them: 1,234.5 or 1.234,5 or 1 234,5."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_LONGEST = 400
"""Characters; the largest number in floating point has 309 digits."""
_INSTANCES = re.compile(r"\s+\(.*", re.DOTALL)
"""The single values after a sum (`--print-metric-instances values`)."""
_SPACES = str.maketrans("", "", " \u00a0\u202f\u2009'\u2019")
"""What some countries put between thousands."""
_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{2,3})*,\d{3}|\d+)?(\.\d*)?([eE][+-]?\d+)?")
_COMMA_IS_DECIMAL = re.compile(r"[+-]?(\d+,(\d{1,2}|\d{4,})|0,\d+|\d{1,3}(\.\d{3})+,\d+)")
_POINT_IS_DECIMAL = re.compile(r"[+-]?(\d+\.(\d{1,2}|\d{4,})|0\.\d+|\d{1,3}(,\d{3})+\.\d+)")


def decimal_mark(texts: Iterable[str]) -> str:
    """Return which of `.` and `,` is before fractions, told by numbers that can be read one way."""
    points = commas = 0
    for text in texts:
        bare = text.translate(_SPACES)
        points += _POINT_IS_DECIMAL.fullmatch(bare) is not None
        commas += _COMMA_IS_DECIMAL.fullmatch(bare) is not None
    return "," if commas > points else "."


def number(text: str, mark: str = ".") -> float | None:
    """Return a number, or None for what is none (`no data`, `nan`, `N/A`, text)."""
    if len(text) > _LONGEST:
        text = _INSTANCES.sub("", text[:_LONGEST])
    bare = _INSTANCES.sub("", text.strip()).translate(_SPACES)
    if mark == ",":
        bare = bare.translate(str.maketrans(",.", ".,"))
    if not _NUMBER.fullmatch(bare) or not any(character.isdigit() for character in bare):
        return None
    try:
        value = float(bare.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
