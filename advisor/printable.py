"""Text for people: values and times in brief, and foreign text that cannot command a terminal."""

from __future__ import annotations

import re
from typing import Any

MOST_SHOWN = 60
"""Characters of a key or a value in a sentence."""


def printable(text: str, keep: str = "") -> str:
    """Return the text with a question mark for each letter that no terminal shows.

    What scripts, traces, plans and drivers say may hold any. Line breaks and tabs are among them,
    unless `keep` has them.
    """
    return "".join(each if each.isprintable() or each in keep else "?" for each in text)


def brief(value: Any) -> str:
    """Return a value as Python writes it, cut to what a sentence has room for."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = "a huge number"
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


def duration(seconds: float) -> str:
    """Return a time for people: `8 s`, `12 min 3 s`, `5 h 20 min`, `3 d 4 h`."""
    whole = max(round(seconds), 0)
    for unit_s, unit, next_s, smaller in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // next_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def file_name(name: str, fallback: str, ending: str = ".html") -> str:
    """Return a file name for what is called so: a name that the user chose may hold slashes."""
    return (re.sub(r"[^\w.+-]+", "-", name).strip(".-") or fallback) + ending
