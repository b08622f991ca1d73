"""Plot: what each stream and thread did over time, whatever the number of events."""

from __future__ import annotations

from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.rules.facts.activity import Activity, Band, Lane
from gpuadvisor.rules.facts.steps import Steps

STRETCHES = 480
"""Of the timeline: about one for every pixel and a half of a wide page."""
_LANE, _BAR, _AXIS, _STEPS = 40, 20, 26, 18
_MOST_STEPS = 60
KINDS = {
    "compute": "computing",
    "communication": "communicating",
    "memory": "copying",
    "operator": "operators",
    "call": "calls into CUDA",
    "loader": "waiting for a DataLoader",
}


def plot_timeline(activity: Activity, steps: Steps | None, width: float) -> Markup:
    """Return a lane for each stream and thread; a bar's height is the share of its stretch."""
    top = _STEPS if steps is not None and len(steps.steps) <= _MOST_STEPS else 0
    height = top + _LANE * len(activity.lanes) + _AXIS
    x = svg.Scale(0, activity.span_ns / 1e6, 0, width)
    values = svg.ticks(0, x.high, 8 if width >= svg.WIDE else 4)
    decimals = svg.tick_decimals(values)
    parts = []
    for place, value in enumerate(values):
        unit = " ms" if place == len(values) - 1 else ""
        anchor = "start" if x(value) < 12 else "end" if x(value) > width - 40 else "middle"
        parts.append(svg.line(x(value), top, x(value), height - _AXIS, "grid"))
        words = f"{value:,.{decimals}f}{unit}"
        parts.append(svg.label(x(value), height - 6, words, "tick", anchor))
    if steps is not None and top:
        parts += _steps(steps, activity, x)
    for place, lane in enumerate(activity.lanes):
        parts += _lane(lane, activity, top + _LANE * place, x)
    described = (
        f"{figures.count(len(activity.lanes), 'lane')} over"
        f" {figures.milliseconds(activity.span_ns / 1e6)}: "
        + "; ".join(f"{title(lane)}: {_summary(lane, activity)}" for lane in activity.lanes)
    )
    return svg.canvas("timeline", width, height, "Timeline", described, *parts)


def title(lane: Lane) -> str:
    """Return what a lane is."""
    if lane.is_device:
        return f"GPU {lane.owner}, stream {lane.number}"
    return f"process {lane.owner}, thread {lane.number}"


def _summary(lane: Lane, activity: Activity) -> str:
    return ", ".join(
        f"{KINDS.get(band.kind, band.kind)} {figures.percent(band.active_ns / activity.span_ns)}"
        for band in lane.bands
    )


def _steps(steps: Steps, activity: Activity, x: svg.Scale) -> list[Markup]:
    parts = []
    for place, step in enumerate(steps.steps):
        left = x.clamp((step.begin_ns - activity.begin_ns) / 1e6)
        right = x.clamp((step.begin_ns + step.duration_ns - activity.begin_ns) / 1e6)
        parts.append(
            element(
                "rect",
                element("title", step.name[:80]),
                x=left,
                y=2,
                width=max(right - left - 1, 0.5),
                height=12,
                class_="part step-mark" + (" odd" if place % 2 else ""),
            )
        )
    return parts


def _lane(lane: Lane, activity: Activity, top: float, x: svg.Scale) -> list[Markup]:
    floor = top + _LANE - 4
    words = svg.shorten(f"{title(lane)}: {_summary(lane, activity)}", x.end - x.start)
    parts = [svg.label(0, top + 12, words, "lane halo")]
    parts.append(svg.line(x.start, floor, x.end, floor, "axis"))
    for band in lane.bands:
        path = _path(band, x, floor)
        if path:
            parts.append(element("path", d=path, class_=f"band {band.kind}"))
    return parts


def _path(band: Band, x: svg.Scale, floor: float) -> str:
    """Return bars of the stretches in which something ran; neighbours of equal height are one."""
    wide = (x.end - x.start) / len(band.shares)
    heights = [0 if not share else max(1, round(_BAR * share)) for share in band.shares.tolist()]
    path, place = [], 0
    while place < len(heights):
        until = place
        while until < len(heights) and heights[until] == heights[place]:
            until += 1
        if heights[place]:
            left, length = x.start + place * wide, (until - place) * wide
            path.append(f"M{left:.1f} {floor:g}v-{heights[place]}h{length:.1f}v{heights[place]}z")
        place = until
    return "".join(path)
