"""Text that cannot command a terminal: what scripts, traces, plans and drivers say may hold any."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Return the text with a question mark for each letter that no terminal shows.

    Line breaks and tabs are among them, unless `keep` has them.
    """
    return "".join(each if each.isprintable() or each in keep else "?" for each in text)
