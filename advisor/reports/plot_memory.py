"""Plot: the memory that the framework's allocator had given out over time."""

from __future__ import annotations

from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.rules.facts.memory import MemoryUse

_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 6, 24, 26
_HEIGHT = 200


def plot_memory(use: MemoryUse, width: float) -> Markup:
    """Return the curve of one device with its peak."""
    begin, end = use.curve[0][0], max(use.curve[-1][0], use.peak_ns)
    x = svg.Scale(0, max((end - begin) / 1e6, 1e-6), _LEFT, width - _RIGHT)
    most = max(use.peak_allocated_bytes, 1)
    y = svg.Scale(0, most * 1.08, _HEIGHT - _BOTTOM, _TOP)
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(svg.line(_LEFT, y(share * most), width - _RIGHT, y(share * most), "grid"))
        words = figures.memory(share * most)
        parts.append(svg.label(_LEFT - 8, y(share * most) + 4, words, "tick", "end"))
    values = svg.ticks(0, x.high, 6 if width >= svg.WIDE else 3)
    decimals = svg.tick_decimals(values)
    for place, value in enumerate(values):
        anchor = "end" if x(value) > width - 40 else "middle"
        unit = " ms" if place == len(values) - 1 else ""
        words = f"{value:,.{decimals}f}{unit}"
        parts.append(svg.label(x(value), _HEIGHT - 6, words, "tick", anchor))
    parts.append(element("path", d=_path(use, begin, x, y), class_="memory-curve"))
    peak = x.clamp((use.peak_ns - begin) / 1e6), y(use.peak_allocated_bytes)
    parts.append(element("circle", cx=peak[0], cy=peak[1], r=4, class_="peak"))
    anchor = "end" if peak[0] > width / 2 else "start"
    words = f"peak {figures.memory(use.peak_allocated_bytes)}"
    parts.append(svg.label(peak[0], peak[1] - 10, words, "halo figure", anchor))
    owner = "host" if use.device < 0 else f"GPU {use.device}"
    return svg.canvas(
        f"memory-{'host' if use.device < 0 else use.device}", width, _HEIGHT,
        f"Allocated memory, {owner}",
        f"{words} at {figures.milliseconds(use.peak_ns / 1e6)} of the recording.",
        *parts,
    )  # fmt: skip


def _path(use: MemoryUse, begin: int, x: svg.Scale, y: svg.Scale) -> str:
    """Return steps: between two events nothing changes."""
    first = use.curve[0]
    path = [f"M{x(0):.1f} {y(max(first[1], 0)):.1f}"]
    for time, allocated in use.curve[1:]:
        path.append(f"H{x.clamp((time - begin) / 1e6):.1f}V{y.clamp(allocated):.1f}")
    path.append(f"H{x.end:.1f}V{y(0):.1f}H{x.start:.1f}z")
    return "".join(path)
