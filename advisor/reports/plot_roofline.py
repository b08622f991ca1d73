"""Plot: operations a second over operations a byte, under the device's ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.reports.profile_wording import rate

MOST_POINTS = 40
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 10, 14, 44
_HEIGHT = 340
_LARGEST, _SMALLEST = 11.0, 3.0
"""Radius of the point with most time, and of the least."""


@dataclass(frozen=True)
class Point:
    """An operator or a kernel."""

    name: str
    intensity: float
    """Operations a byte."""
    flops_per_s: float
    time_ns: float
    bound: str


def plottable(intensity: float | None, flops_per_s: float | None) -> bool:
    """Say whether something can stand on logarithmic axes."""
    return all(
        value is not None and isfinite(value) and value > 0 for value in (intensity, flops_per_s)
    )


def plot_roofline(
    points: Sequence[Point],
    bytes_per_s: float | None,
    ceilings: Mapping[str, float],
    width: float,
) -> Markup:
    """Return the points, and the roof of each ceiling that is known."""
    x, y = _scales(points, bytes_per_s, ceilings, width)
    parts = [*_grid(x, y, width)]
    for kind, most in ceilings.items():
        parts += _roof(kind, most, bytes_per_s, x, y)
    longest = max(point.time_ns for point in points) or 1.0
    for point in points:
        radius = max(_LARGEST * (point.time_ns / longest) ** 0.5, _SMALLEST)
        words = (
            f"{point.name[:160]}: {rate(point.flops_per_s, 'FLOP/s')},"
            f" {figures.number(point.intensity)} FLOP a byte,"
            f" {figures.milliseconds(point.time_ns / 1e6)}, bound by {point.bound}"
        )
        parts.append(
            element(
                "circle",
                element("title", words),
                cx=x(log10(point.intensity)),
                cy=y(log10(point.flops_per_s)),
                r=radius,
                class_=f"bound {point.bound}",
            )
        )
    described = f"{figures.count(len(points), 'point')}; all are in the table below."
    return svg.canvas("roofline", width, _HEIGHT, "Roofline", described, *parts)


def _scales(
    points: Sequence[Point],
    bytes_per_s: float | None,
    ceilings: Mapping[str, float],
    width: float,
) -> tuple[svg.Scale, svg.Scale]:
    """Return both axes in powers of ten, wide enough for points, roofs and their ridges."""
    rates = [point.flops_per_s for point in points] + list(ceilings.values())
    intensities = [point.intensity for point in points]
    if bytes_per_s:
        intensities += [most / bytes_per_s for most in ceilings.values()]
    low, high = floor(log10(min(intensities))), ceil(log10(max(intensities)) + 0.3)
    bottom, top = floor(log10(min(rates))), ceil(log10(max(rates)) + 0.05)
    return (
        svg.Scale(low, max(high, low + 2), _LEFT, width - _RIGHT),
        svg.Scale(bottom, max(top, bottom + 2), _HEIGHT - _BOTTOM, _TOP),
    )


def _grid(x: svg.Scale, y: svg.Scale, width: float) -> list[Markup]:
    parts = []
    every = max(1, round((x.high - x.low) / (10 if width >= svg.WIDE else 5)))
    for power in range(int(x.low), int(x.high) + 1, every):
        parts.append(svg.line(x(power), _TOP, x(power), _HEIGHT - _BOTTOM, "grid"))
        words = f"{10.0**power:,.0f}" if 0 <= power <= 6 else f"{10.0**power:g}"
        parts.append(svg.label(x(power), _HEIGHT - _BOTTOM + 16, words, "tick", "middle"))
    every = max(1, round((y.high - y.low) / 8))
    for power in range(int(y.low), int(y.high) + 1, every):
        parts.append(svg.line(_LEFT, y(power), width - _RIGHT, y(power), "grid"))
        words = rate(10.0**power, "FLOP/s")
        parts.append(svg.label(_LEFT - 8, y(power) + 4, words, "tick", "end"))
    words = "FLOP a byte of device memory"
    parts.append(svg.label(width - _RIGHT, _HEIGHT - 6, words, "muted", "end"))
    return parts


def _roof(
    kind: str, most: float, bytes_per_s: float | None, x: svg.Scale, y: svg.Scale
) -> list[Markup]:
    level = log10(most)
    words = f"{kind} {rate(most, 'FLOP/s')}"
    label = svg.label(x.end, y(level) - 5, words, "tick halo", "end")
    if not bytes_per_s:
        return [svg.line(x.start, y(level), x.end, y(level), "roof"), label]
    ridge = min(max(level - log10(bytes_per_s), x.low), x.high)
    # Left of the ridge the memory limits: one power of ten in x is one in y.
    left = max(x.low, y.low - log10(bytes_per_s))
    start = min(left, ridge)
    path = (
        f"M{x(start):.1f} {y.clamp(start + log10(bytes_per_s)):.1f}"
        f"L{x(ridge):.1f} {y.clamp(ridge + log10(bytes_per_s)):.1f}H{x.end:.1f}"
    )
    return [element("path", d=path, class_="roof"), label]
