"""Elements of HTML and SVG as text. Attributes and text are escaped here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

_INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters that no HTML page may hold."""


class Markup(str):
    """Text that is markup already; any other `str` is escaped before it gets into a page."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Return the value escaped; it is returned unchanged if it is markup already."""
    if isinstance(value, Markup):
        return value
    # A file name may hold bytes that are no UTF-8; Python keeps them as lone surrogates.
    printable = value.encode("utf-8", "replace").decode()
    return Markup(escape(_INVALID.sub("\ufffd", printable), quote=True))


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return `<tag attributes>children</tag>`.

    Attribute names lose a trailing underscore (`class_`), and others become hyphens
    (`stroke_width`). An attribute that is None is left out.
    """
    inside = "".join(map(text, children))
    return Markup(f"<{tag}{_attributes(attributes)}>{inside}</{tag}>")


def void(tag: str, **attributes: str | float | None) -> Markup:
    """Return an element that has no content and no end tag: `<meta charset="utf-8">`."""
    return Markup(f"<{tag}{_attributes(attributes)}>")


def join(parts: Iterable[str], separator: str = "") -> Markup:
    """Return the parts one after another, each escaped unless it is markup."""
    return Markup(separator.join(map(text, parts)))


def _attributes(attributes: dict[str, str | float | None]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )


def _value(value: str | float) -> str:
    # A hundredth of a pixel cannot be seen, and shorter numbers make a smaller page.
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else text(str(value))
