"""The occupancy of a launch as a page for a terminal, as JSON, and as plots in a file."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict

from gpuadvisor.reports import svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.rules.facts.gpu_specs import KIB
from gpuadvisor.rules.facts.occupancy import AXES, Occupancy, OccupancyStep, curve

VERSION = 1
"""Version of the JSON."""
_ROWS = 5
"""Lines of a chart: each is worth 20 percentage points."""
_COLUMNS = 60
_WORDS = {
    "threads_per_block": "threads a block",
    "registers_per_thread": "registers a thread",
    "shared_bytes_per_block": "shared memory a block",
    "carveout_bytes": "carve-out of an SM",
    "barriers": "barriers a block",
}
_WIDTH, _PANEL = 720, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 34, 40
_TITLES = {
    "threads_per_block": ("Threads a block", 1),
    "registers_per_thread": ("Registers a thread", 1),
    "shared_bytes_per_block": ("Shared memory a block, KiB", KIB),
}
"""Titles of the axes, and how many of the field's units are one of the axis."""
# A file of its own has no page whose style it could use.
_STYLE = Markup(
    "text{font:13px system-ui,sans-serif;fill:#16191d}.tick{fill:#5c646e;font-size:12px}"
    ".grid{stroke:#e2e5e9}.curve{fill:none;stroke:#2f6fb5;stroke-width:2}"
    ".here{stroke:#c2313d;stroke-dasharray:4 3}.point{fill:#c2313d}"
    "@media(prefers-color-scheme:dark){svg{background:#121417}text{fill:#e8eaed}"
    ".tick{fill:#9aa3ad}.grid{stroke:#2c3137}.curve{stroke:#6ea8e6}"
    ".here{stroke:#f0727c}.point{fill:#f0727c}}"
)


def page(now: Occupancy, steps: Sequence[OccupancyStep]) -> str:
    """Return all limiters, what the next steps would buy, and a chart over each axis."""
    parts = [_head(now), _limiters(now), _steps(now, steps)]
    parts += [_chart(now, over) for over in AXES]
    return "\n\n".join(parts)


def as_json(now: Occupancy, steps: Sequence[OccupancyStep]) -> str:
    """Return limiters, next steps and the curve over each axis as a JSON document."""
    major, minor = now.architecture.compute_capability
    document = {
        "version": VERSION,
        "compute_capability": f"{major}.{minor}",
        "launch": asdict(now.launch),
        **_result(now),
        "max_warps": now.max_warps,
        "warps_per_block": now.warps_per_block,
        "limits_blocks": dict(now.limits),
        "allocated_registers_per_block": now.registers_per_block,
        "allocated_shared_bytes_per_block": now.shared_bytes_per_block,
        "impossible": now.impossible,
        "next_steps": [{"changes": dict(s.changes), **_result(s.result)} for s in steps],
        "curves": {over: [list(point) for point in curve(now, over)] for over in AXES},
    }
    return json.dumps(document, indent=2)


def value(field: str, amount: int) -> str:
    """Return a figure of a launch with its unit."""
    if not field.endswith(("bytes", "bytes_per_block")):
        return f"{amount:,}"
    return f"{amount / KIB:,.4g} KiB" if amount % 64 == 0 else f"{amount:,} bytes"


def _result(found: Occupancy) -> dict[str, object]:
    return {
        "occupancy": found.fraction,
        "blocks": found.blocks,
        "warps": found.warps,
        "limited_by": list(found.limiters),
    }


def _head(now: Occupancy) -> str:
    major, minor = now.architecture.compute_capability
    launch = now.launch
    figures = ", ".join(
        f"{value(field, getattr(launch, field))} {_WORDS[field]}"
        for field in AXES
        if field == "threads_per_block" or getattr(launch, field)
    )
    return (
        f"{now.architecture.name}, compute capability {major}.{minor}: {figures}\n"
        f"Theoretical occupancy {now.fraction:.1%}: {_blocks(now)} and {now.warps} of "
        f"{now.max_warps} warps an SM, limited by {_named(now.limiters)}"
    )


def _limiters(now: Occupancy) -> str:
    lines = [f"{'limiter':<18}{'blocks':>6}  "]
    for name, blocks in now.limits.items():
        if name == "virtual_resources" and blocks is None:
            continue
        shown = "-" if blocks is None else str(blocks)
        mark = "limits" if blocks == now.blocks else ""
        lines.append(f"{name.replace('_', ' '):<18}{shown:>6}  {mark:<7} {_why(now, name)}")
    return "\n".join(line.rstrip() for line in lines)


def _why(now: Occupancy, limiter: str) -> str:
    sm, launch = now.architecture, now.launch
    if limiter == "warps":
        return f"{now.warps_per_block} a block, {sm.max_warps} an SM"
    if limiter == "registers":
        return f"{now.registers_per_block:,} a block as allocated, {sm.registers:,} an SM"
    if limiter == "shared_memory":
        total = sm.shared_bytes if launch.carveout_bytes is None else launch.carveout_bytes
        reserved = f", with {value('bytes', sm.shared_reserved_bytes)} reserved"
        return (
            f"{value('bytes', now.shared_bytes_per_block)} a block as allocated"
            f"{reserved if sm.shared_reserved_bytes else ''}; {value('bytes', total)} an SM"
        )
    return ""


def _steps(now: Occupancy, steps: Sequence[OccupancyStep]) -> str:
    if not steps:
        full = now.fraction == 1.0
        return "All warps are used." if full else "No single change would raise it."
    lines = ["What would raise it, all else unchanged"]
    for step in steps:
        changes = " and ".join(
            f"{_WORDS[field]} {value(field, getattr(now.launch, field))} -> {value(field, amount)}"
            for field, amount in step.changes.items()
        )
        result = step.result
        lines.append(
            f"  {changes}: {result.fraction:.1%}, {_blocks(result)}, "
            f"then limited by {_named(result.limiters)}"
        )
    return "\n".join(lines)


def _blocks(found: Occupancy) -> str:
    return f"{found.blocks} block{'s' * (found.blocks != 1)}"


def _named(limiters: Sequence[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in limiters)


def _chart(now: Occupancy, over: str) -> str:
    """Return a chart of plain characters; a caret stands below the launch's own value."""
    points, own = curve(now, over), getattr(now.launch, over)
    width = min(_COLUMNS, len(points))
    shown = [points[place * len(points) // width] for place in range(width)]
    lines = [f"occupancy over {_WORDS[over]} (^ {value(over, own)})"]
    for row in range(_ROWS, 0, -1):
        cells = "".join(_cell(fraction * _ROWS - (row - 1)) for _, fraction in shown)
        lines.append(f"{row / _ROWS:>5.0%} |{cells}")
    # A figure counts as the next one that can be allocated.
    place = min(bisect_left([amount for amount, _ in shown], own), width - 1)
    lines.append(f"{'':>6}+{'-' * place}^{'-' * (width - place - 1)}")
    low, high = (value(over, points[end][0]) for end in (0, -1))
    lines.append(f"{'':>7}{low}{high:>{width - len(low)}}")
    return "\n".join(line.rstrip() for line in lines)


def _cell(filled: float) -> str:
    return "#" if filled >= 0.75 else ":" if filled >= 0.25 else " "


# -- plots ---------------------------------------------------------------------------------------


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
    shares = [(share, f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)]
    parts += svg.rows(y, shares, _LEFT, _WIDTH - _RIGHT)
    ticks = [(tick, f"{tick:g}") for tick in svg.ticks(0, points[-1][0], 8)]
    parts += svg.columns(x, ticks, y(0) + 18)
    # Steps: between two allocations the occupancy does not change.
    steps = [f"V{y(fraction):.1f}H{x(amount):.1f}" for amount, fraction in points]
    parts.append(svg.path(f"M{x(0):.1f} {y(points[0][1]):.1f}{''.join(steps)}", "curve"))
    parts.append(svg.line(x(own), y(0), x(own), y(1), "here"))
    parts.append(svg.point(x(own), y(now.fraction), 4, "point"))
    return parts
