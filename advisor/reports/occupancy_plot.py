"""Plot: occupancy over block size, registers and shared memory, as a file of its own."""

from __future__ import annotations

from gpuadvisor.reports import svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.rules.facts.gpu_specs import KIB
from gpuadvisor.rules.facts.occupancy import AXES, Occupancy, curve

_WIDTH, _PANEL = 720, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 34, 40
_TITLES = {
    "threads_per_block": ("Threads a block", 1),
    "registers_per_thread": ("Registers a thread", 1),
    "shared_bytes_per_block": ("Shared memory a block, KiB", KIB),
}
"""And how many of the field's units are one of the axis."""
# A file of its own has no page whose style it could use.
_STYLE = Markup(
    "text{font:13px system-ui,sans-serif;fill:#16191d}.tick{fill:#5c646e;font-size:12px}"
    ".grid{stroke:#e2e5e9}.curve{fill:none;stroke:#2f6fb5;stroke-width:2}"
    ".here{stroke:#c2313d;stroke-dasharray:4 3}.point{fill:#c2313d}"
    "@media(prefers-color-scheme:dark){svg{background:#121417}text{fill:#e8eaed}"
    ".tick{fill:#9aa3ad}.grid{stroke:#2c3137}.curve{stroke:#6ea8e6}"
    ".here{stroke:#f0727c}.point{fill:#f0727c}}"
)


def as_svg(now: Occupancy) -> str:
    """Return an SVG document with three plots, the launch's own place marked in each."""
    height = _PANEL * len(AXES)
    panels = [part for place, over in enumerate(AXES) for part in _panel(now, over, place)]
    return element(
        "svg",
        element("title", f"Theoretical occupancy {now.fraction:.1%}"),
        element("style", _STYLE),
        *panels,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_WIDTH} {height}",
        width=_WIDTH,
        height=height,
    )


def _panel(now: Occupancy, over: str, place: int) -> list[Markup]:
    title, unit = _TITLES[over]
    points = [(amount / unit, fraction) for amount, fraction in curve(now, over)]
    top = place * _PANEL + _TOP
    x = svg.Scale(0, points[-1][0], _LEFT, _WIDTH - _RIGHT)
    y = svg.Scale(0, 1, top + _PANEL - _TOP - _BOTTOM, top)
    own = min(getattr(now.launch, over) / unit, points[-1][0])
    parts = [svg.label(_LEFT, top - 12, f"{title}: occupancy")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(svg.line(_LEFT, y(share), _WIDTH - _RIGHT, y(share), "grid"))
        parts.append(svg.label(_LEFT - 8, y(share) + 4, f"{share:.0%}", "tick", "end"))
    for tick in svg.ticks(0, points[-1][0], 8):
        parts.append(svg.label(x(tick), y(0) + 18, f"{tick:g}", "tick", "middle"))
    parts.append(element("path", d=_path(points, x, y), class_="curve"))
    parts.append(svg.line(x(own), y(0), x(own), y(1), "here"))
    parts.append(element("circle", cx=x(own), cy=y(now.fraction), r=4, class_="point"))
    return parts


def _path(points: list[tuple[float, float]], x: svg.Scale, y: svg.Scale) -> str:
    """Return steps: between two allocations the occupancy does not change."""
    path = f"M{x(0):.1f} {y(points[0][1]):.1f}"
    for amount, fraction in points:
        path += f"V{y(fraction):.1f}H{x(amount):.1f}"
    return path
