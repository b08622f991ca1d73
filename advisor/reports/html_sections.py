"""Sections and tables of a profile's page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuadvisor.reports import figures
from gpuadvisor.reports.markup import Markup, element

NOTHING = Markup("")


def section(title: str, *children: str, class_: str | None = None) -> Markup:
    """Return a section with its heading."""
    return element("section", element("h2", title), *children, class_=class_)


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], class_: str | None = None
) -> Markup:
    """Return a table whose rows are named by their first cell."""
    head = element("tr", *(element("th", name, scope="col") for name in header))
    body = (element("tr", element("th", row[0], scope="row"), *map(_cell, row[1:])) for row in rows)
    return element("table", element("thead", head), element("tbody", *body), class_=class_)


def _cell(words: str) -> Markup:
    return element("td", words, class_="muted" if words == figures.NOT_MEASURED else None)
