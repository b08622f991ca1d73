"""What the sections of a profile's page are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.html_sections import table
from gpuadvisor.reports.markup import Markup, element, join

CORNER = element("span", "What", class_="unseen")


def lead(words: str) -> Markup:
    """Return what a section is about."""
    return element("p", ticked(words), class_="lead")


def note(words: str) -> Markup:
    """Return a remark below a table."""
    return element("p", ticked(words), class_="note muted")


def figure(plot: Callable[[float], Markup]) -> Markup:
    """Return the plot for a wide and for a narrow page; the style sheet shows one of them."""
    return element("figure", join([plot(svg.WIDE), plot(svg.NARROW)]))


def as_table(content: Markup, title: str = "As a table") -> Markup:
    """Return what is folded until somebody wants it."""
    return element("details", element("summary", title), content)


def wide_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table that scrolls sideways on a narrow page."""
    body = table(header, rows, class_="wide")
    return element("div", body, class_="scroll", tabindex="0")


def words_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table of sentences."""
    return table(header, rows, class_="words")


def legend(items: Iterable[tuple[str, str]]) -> Markup:
    """Return coloured squares with their names: (class, words)."""
    parts = (
        element("li", element("span", "", class_=f"dot square {class_}"), words)
        for class_, words in items
    )
    return element("ul", *parts, class_="legend")


def kernel_name(name: str, short: str, small: str = "") -> Markup:
    """Return a kernel's short name, its whole name in a tooltip, and what stands below."""
    code = element("code", short[:_LONGEST_SHORT], title=name[:_LONGEST])
    return join([code, element("small", small)]) if small else code


_LONGEST, _LONGEST_SHORT = 1000, 120
"""Characters: names in a trace may be endless."""


def ticked(sentence: str) -> Markup:
    """Return the sentence with what stands between backticks as code."""
    parts = re.split(r"`([^`]+)`", sentence)
    return join(element("code", part) if place % 2 else part for place, part in enumerate(parts))


def shown(total: int, rows: int, what: str) -> str:
    """Return how many rows are left out, in a sentence; empty where none are."""
    if total <= rows:
        return ""
    return f"{figures.count(total - rows, f'more {what}')} not shown; `--json` has all of them."
