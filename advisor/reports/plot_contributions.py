"""Plot: what each kept knob is worth, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from gpuadvisor.domain.knobs import Contribution
from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element

_ROW, _BAR, _AXIS = 46, 12, 26
_MARGIN = 2
_DASH = "–"  # noqa: RUF001 - an en dash is what typography wants in a range


def plot_contributions(contributions: Sequence[Contribution], width: float) -> Markup:
    """Return a bar a knob from 1 (no effect) to its ratio, the most valuable first."""
    ordered = sorted(contributions, key=lambda each: -each.ratio)
    height = _ROW * len(ordered) + _AXIS
    x = svg.Scale(*_range(ordered), _MARGIN, width - _MARGIN)
    rows = [part for place, each in enumerate(ordered) for part in _row(each, _ROW * place, x)]
    return svg.canvas(
        "contributions",
        width,
        height,
        "What each knob is worth",
        "; ".join(f"{_name(each)} {_worth(each)}" for each in ordered) + ".",
        *_grid(x, height),
        # Below the rows: the halo of a name keeps it readable where the line passes.
        svg.line(x(1), 0, x(1), height - _AXIS + 4, "baseline"),
        *rows,
    )


def _range(contributions: Sequence[Contribution]) -> tuple[float, float]:
    ends = [
        end
        for each in contributions
        for end in (each.ratio, each.low, each.high)
        if end is not None and isfinite(end)
    ]
    low, high = min([1.0, *ends]), max([1.0, *ends])
    margin = max(0.01, 0.04 * (high - low))
    return (low - margin if low < 1 else 1.0), high + margin


def _grid(x: svg.Scale, height: float) -> list[Markup]:
    values = svg.ticks(x.low, x.high, 5 if x.end >= svg.NARROW * 1.5 else 3)
    decimals = max(1, svg.tick_decimals(values))
    parts = []
    for value in values:
        parts.append(svg.line(x(value), 0, x(value), height - _AXIS + 4, "grid"))
        anchor = "start" if x(value) < 20 else "end" if x(value) > x.end - 20 else "middle"
        tick = f"{value:.{decimals}f}x"
        parts.append(svg.label(x(value), height - 6, tick, "tick", anchor))
    return parts


def _row(each: Contribution, top: float, x: svg.Scale) -> list[Markup]:
    """Return name and figure on one line, and the bar with its interval below."""
    title = element("title", f"{_name(each)}: {_worth(each)}")
    middle = top + 24 + _BAR / 2
    start, end = sorted((x(1), x.clamp(each.ratio) if isfinite(each.ratio) else x(1)))
    bar = element(
        "rect",
        title,
        x=start,
        y=top + 24,
        width=max(1.0, end - start),
        height=_BAR,
        class_="bar" if each.ratio >= 1 else "bar loss",
    )
    worth = _worth(each)
    name = svg.shorten(_name(each), x.end - 7.5 * len(worth) - 24)
    parts = [
        svg.label(x.start + 8, top + 16, name, "halo name"),
        svg.label(x.end, top + 16, worth, "halo figure", "end"),
        bar,
    ]
    if figures.is_figure(each.low) and figures.is_figure(each.high):
        low, high = x.clamp(each.low or 0), x.clamp(each.high or 0)
        parts.append(svg.line(low, middle, high, middle, "whisker"))
        parts += [svg.line(end, middle - 4, end, middle + 4, "whisker") for end in (low, high)]
    return parts


def _name(each: Contribution) -> str:
    return figures.settings({each.knob: each.value})


def _worth(each: Contribution) -> str:
    value = figures.ratio(each.ratio, figures.ratio_decimals(each.low, each.high))
    if each.low is None or each.high is None:
        return value
    return f"{value} ({figures.interval(each.low, each.high, _DASH)})"
