"""Text that cannot command a terminal: what scripts, traces, plans and drivers say may hold any."""

from __future__ import annotations

from typing import Any

MOST_SHOWN = 60
"""Characters of a key or a value in a sentence."""


def printable(text: str, keep: str = "") -> str:
    """Return the text with a question mark for each letter that no terminal shows.

    Line breaks and tabs are among them, unless `keep` has them.
    """
    return "".join(each if each.isprintable() or each in keep else "?" for each in text)


def brief(value: Any) -> str:
    """Return a value as Python writes it, cut to what a sentence has room for."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = "a huge number"
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."
