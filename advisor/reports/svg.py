"""What every plot shares: the canvas, linear scales and round tick values.

Colours and type live in the page's style sheet: a plot only names classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, log10

from gpuadvisor.reports.markup import Markup, element

WIDE = 720
NARROW = 340
"""Widths in CSS pixels. A plot is drawn for both, so that text on a phone is not scaled down."""
CHARACTER = 7.0
"""Mean width of a character in CSS pixels."""


@dataclass(frozen=True)
class Scale:
    """A linear map from data to pixels."""

    low: float
    high: float
    start: float
    """Pixel of `low`."""
    end: float
    """Pixel of `high`."""

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def clamp(self, value: float) -> float:
        """Return the pixel of the nearest value that the scale holds."""
        return self(min(max(value, self.low), self.high))


def canvas(
    name: str, width: float, height: float, title: str, description: str, *children: Markup
) -> Markup:
    """Return an `<svg>` with its title and description for those who cannot see it."""
    ids = f"{name}-{width}-title", f"{name}-{width}-desc"
    return element(
        "svg",
        element("title", title, id=ids[0]),
        element("desc", description, id=ids[1]),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=" ".join(ids),
        class_="wide" if width >= WIDE else "narrow",
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def label(x: float, y: float, words: str, class_: str = "", anchor: str | None = None) -> Markup:
    """Return text whose baseline is at `y`; `anchor` is `middle` or `end`."""
    return element("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def bar(x: float, y: float, width: float, height: float, class_: str, title: str = "") -> Markup:
    """Return a rectangle with its tooltip."""
    inside = [element("title", title)] if title else []
    return element("rect", *inside, x=x, y=y, width=width, height=height, class_=class_)


def point(x: float, y: float, r: float, class_: str, title: str = "") -> Markup:
    """Return a disc around a place, with its tooltip."""
    inside = [element("title", title)] if title else []
    return element("circle", *inside, cx=x, cy=y, r=r, class_=class_)


def path(d: str, class_: str) -> Markup:
    """Return a line or an area; `d` is in the language of SVG paths."""
    return element("path", d=d, class_=class_)


def rows(y: Scale, values: Iterable[tuple[float, str]], left: float, right: float) -> list[Markup]:
    """Return horizontal grid lines from left to right, each with its label before it."""
    parts = []
    for value, words in values:
        parts.append(line(left, y(value), right, y(value), "grid"))
        parts.append(label(left - 8, y(value) + 4, words, "tick", "end"))
    return parts


def columns(
    x: Scale,
    values: Iterable[tuple[float, str]],
    at: float,
    span: tuple[float, float] | None = None,
    edges: tuple[float, float] = (0, -1),
) -> list[Markup]:
    """Return labels at a height, each with a vertical grid line over `span` where one is given.

    A label is centred, but not within so many pixels of the page's left edge and the scale's end.
    """
    parts = []
    for value, words in values:
        if span is not None:
            parts.append(line(x(value), span[0], x(value), span[1], "grid"))
        is_first, is_last = x(value) < edges[0], x(value) > x.end - edges[1]
        anchor = "start" if is_first else "end" if is_last else "middle"
        parts.append(label(x(value), at, words, "tick", anchor))
    return parts


def tick_labels(
    low: float, high: float, count: int, unit: str = "", last_unit: str = "", least: int = 0
) -> list[tuple[float, str]]:
    """Return ticks with their labels: the decimals that tell them apart, at least so many.

    `last_unit` stands behind the last one only.
    """
    values = ticks(low, high, count)
    words = [f"{value:,.{max(least, tick_decimals(values))}f}{unit}" for value in values]
    words[-1:] = [f"{last}{last_unit}" for last in words[-1:]]
    return list(zip(values, words, strict=True))


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round values (1, 2 or 5 times a power of ten) from low to high."""
    rough = (high - low) / max(1, count)
    power: float = 10.0 ** floor(log10(rough))
    step = next((m * power for m in (1, 2, 5) if m * power >= rough * 0.999), 10 * power)
    # An error in the last bit must lose no tick at an end.
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def tick_decimals(values: list[float]) -> int:
    """Return how many decimals tell these ticks apart."""
    if len(values) < 2:
        return 2
    return max(0, -floor(log10(values[1] - values[0]) + 1e-9))


def shorten(words: str, width: float) -> str:
    """Return the text cut to a width in pixels."""
    most = max(4, int(width / CHARACTER))
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"
