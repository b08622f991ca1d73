"""Plots of a profile: where its time went, its steps, its timeline, its memory, its roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from gpuadvisor.reports import figures, svg
from gpuadvisor.reports.markup import Markup
from gpuadvisor.reports.profile.report import ProfileReport
from gpuadvisor.reports.profile.wording import PARTS
from gpuadvisor.rules.facts.activity import Activity, Band, Lane
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.memory import MemoryUse
from gpuadvisor.rules.facts.roofline import MEMORY
from gpuadvisor.rules.facts.steps import Step, Steps
from gpuadvisor.rules.facts.time_breakdown import TimeBreakdown, TimeCategory

MOST_BARS = 16
_TIME_BAR, _TIME_GAP, _TIME_TITLE, _TIME_AXIS = 30, 14, 18, 22
_EDGES = (12, 40)
"""Pixels from the edges of a plot within which a label of the axis is not centred."""
_LABEL_FROM = 44
"""Width in pixels below which a part has no room for its number."""

_STEPS_LEFT, _STEPS_RIGHT, _STEPS_TOP, _STEPS_BOTTOM = 56, 4, 10, 26
_STEPS_HEIGHT = 190
_MOST_STEP_BARS = 120
"""Bars of a wide plot; where there are more steps, each is the slowest of its stretch."""

STRETCHES = 480
"""Stretches of the timeline: about one for every pixel and a half of a wide page."""
_LANE_HEIGHT, _BAND_HEIGHT, _LANE_AXIS, _LANE_STEPS = 40, 20, 26, 18
_MOST_MARKED_STEPS = 60
KINDS = {
    "compute": "computing",
    "communication": "communicating",
    "memory": "copying",
    "operator": "operators",
    "call": "calls into CUDA",
    "loader": "waiting for a DataLoader",
}

_MEMORY_LEFT, _MEMORY_RIGHT, _MEMORY_TOP, _MEMORY_BOTTOM = 72, 6, 24, 26
_MEMORY_HEIGHT = 200

MOST_POINTS = 40
_ROOF_LEFT, _ROOF_RIGHT, _ROOF_TOP, _ROOF_BOTTOM = 76, 10, 14, 44
_ROOF_HEIGHT = 340
_LARGEST, _SMALLEST = 11.0, 3.0
"""Radius in pixels of the point with most time, and of the least."""


def plot_time_breakdown(accounts: Mapping[int, TimeBreakdown], width: float) -> Markup:
    """Return a stacked bar for each device, 0 to 100 % of its own time."""
    shown = list(accounts.items())[:MOST_BARS]
    row = _TIME_BAR + _TIME_GAP + (_TIME_TITLE if len(shown) > 1 else 0)
    height = row * len(shown) + _TIME_AXIS
    x = svg.Scale(0, 1, 0, width)
    ticks = [(share, f"{share * 100:.0f} %") for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parts = svg.columns(x, ticks, height - 6, (0, height - _TIME_AXIS), _EDGES)
    for place, (device, account) in enumerate(shown):
        top = row * place
        if len(shown) > 1:
            words = f"GPU {device}, {figures.nanoseconds(account.span_ns)}"
            parts.append(svg.label(0, top + 13, words, "halo"))
            top += _TIME_TITLE
        parts += _time_bar(account, top, x)
    described = "; ".join(
        f"GPU {device}: "
        + ", ".join(f"{PARTS[part]} {figures.percent(share)}" for part, share in _shares(each))
        for device, each in shown
    )
    return svg.canvas("account", width, height, "Where the time goes", described, *parts)


def _shares(account: TimeBreakdown) -> list[tuple[TimeCategory, float]]:
    return [(part, account.share(part)) for part in TimeCategory if account.parts_ns[part] > 0]


def _time_bar(account: TimeBreakdown, top: float, x: svg.Scale) -> list[Markup]:
    parts, done = [], 0.0
    for part, share in _shares(account):
        left, right = x.clamp(done), x.clamp(done + share)
        done += share
        title = f"{PARTS[part]}: {figures.percent(share)}"
        wide = max(right - left, 0.3)
        parts.append(svg.bar(left, float(top), wide, _TIME_BAR, f"part {part}", title))
        if right - left >= _LABEL_FROM:
            middle = (left + right) / 2
            words = f"{share * 100:.0f} %"
            parts.append(svg.label(middle, top + _TIME_BAR / 2 + 5, words, "on-part", "middle"))
    return parts


def plot_steps(steps: Steps, width: float) -> Markup:
    """Return a bar for each step, in their order."""
    bars = _slowest(steps.steps, _MOST_STEP_BARS if width >= svg.WIDE else _MOST_STEP_BARS // 2)
    longest = max(step.duration_ns for _, step in bars) / 1e6 or 1.0
    y = svg.Scale(0, longest * 1.06, _STEPS_HEIGHT - _STEPS_BOTTOM, _STEPS_TOP)
    x = svg.Scale(0, len(bars), _STEPS_LEFT, width - _STEPS_RIGHT)
    parts = svg.rows(y, svg.tick_labels(0, y.high, 4), x.start, x.end)
    parts.append(svg.label(0, _STEPS_HEIGHT - 6, "ms", "tick"))
    wide = min(max((x(1) - x(0)) * 0.8, 1.0), 60)
    every = max(1, -(-len(bars) * 44 // int(x.end - x.start)))
    for place, (number, step) in enumerate(bars):
        parts += _step_bars(step, x(place + 0.5) - wide / 2, wide, y)
        if place % every == 0:
            words = str(number + 1)
            parts.append(svg.label(x(place + 0.5), _STEPS_HEIGHT - 6, words, "tick", "middle"))
    median = steps.median_ns / 1e6
    parts.append(svg.line(x.start, y(median), x.end, y(median), "median"))
    described = (
        f"{figures.count(len(steps.steps), 'step')}, median {figures.milliseconds(median)},"
        f" longest {figures.milliseconds(longest)}."
    )
    return svg.canvas("profile-steps", width, _STEPS_HEIGHT, "Time of each step", described, *parts)


def _step_bars(step: Step, left: float, wide: float, y: svg.Scale) -> list[Markup]:
    whole, waits = step.duration_ns / 1e6, min(step.data_wait_ns, step.duration_ns) / 1e6
    words = f"{step.name[:80]}: {figures.milliseconds(whole)}"
    if waits:
        words += f", of which waiting for data {figures.milliseconds(waits)}"
    shown = [(whole, "step"), (waits, "waiting_for_data")] if waits else [(whole, "step")]
    return [
        svg.bar(left, y(ms), wide, max(y(0) - y(ms), 0.0), f"part {kind}", words)
        for ms, kind in shown
    ]


def _slowest(steps: tuple[Step, ...], most: int) -> list[tuple[int, Step]]:
    numbered = list(enumerate(steps))
    if len(numbered) <= most:
        return numbered
    size = -(-len(numbered) // most)
    stretches = (numbered[start : start + size] for start in range(0, len(numbered), size))
    return [max(stretch, key=lambda each: each[1].duration_ns) for stretch in stretches]


def plot_timeline(activity: Activity, steps: Steps | None, width: float) -> Markup:
    """Return a lane for each stream and thread; a bar's height is the share of its stretch."""
    top = _LANE_STEPS if steps is not None and len(steps.steps) <= _MOST_MARKED_STEPS else 0
    height = top + _LANE_HEIGHT * len(activity.lanes) + _LANE_AXIS
    x = svg.Scale(0, activity.span_ns / 1e6, 0, width)
    ticks = svg.tick_labels(0, x.high, 8 if width >= svg.WIDE else 4, last_unit=" ms")
    parts = svg.columns(x, ticks, height - 6, (top, height - _LANE_AXIS), _EDGES)
    if steps is not None and top:
        parts += _step_marks(steps, activity, x)
    for place, lane in enumerate(activity.lanes):
        parts += _lane(lane, activity, top + _LANE_HEIGHT * place, x)
    described = (
        f"{figures.count(len(activity.lanes), 'lane')} over"
        f" {figures.nanoseconds(activity.span_ns)}: "
        + "; ".join(
            f"{_lane_title(lane)}: {_lane_summary(lane, activity)}" for lane in activity.lanes
        )
    )
    return svg.canvas("timeline", width, height, "Timeline", described, *parts)


def _lane_title(lane: Lane) -> str:
    """Return what a lane is."""
    if lane.is_device:
        return f"GPU {lane.owner}, stream {lane.number}"
    return f"process {lane.owner}, thread {lane.number}"


def _lane_summary(lane: Lane, activity: Activity) -> str:
    return ", ".join(
        f"{KINDS.get(band.kind, band.kind)} {figures.percent(band.active_ns / activity.span_ns)}"
        for band in lane.bands
    )


def _step_marks(steps: Steps, activity: Activity, x: svg.Scale) -> list[Markup]:
    parts = []
    for place, step in enumerate(steps.steps):
        left = x.clamp((step.begin_ns - activity.begin_ns) / 1e6)
        right = x.clamp((step.begin_ns + step.duration_ns - activity.begin_ns) / 1e6)
        class_ = "part step-mark" + (" odd" if place % 2 else "")
        parts.append(svg.bar(left, 2, max(right - left - 1, 0.5), 12, class_, step.name[:80]))
    return parts


def _lane(lane: Lane, activity: Activity, top: float, x: svg.Scale) -> list[Markup]:
    floor = top + _LANE_HEIGHT - 4
    words = svg.shorten(f"{_lane_title(lane)}: {_lane_summary(lane, activity)}", x.end - x.start)
    parts = [svg.label(0, top + 12, words, "lane halo")]
    parts.append(svg.line(x.start, floor, x.end, floor, "axis"))
    for band in lane.bands:
        if bars := _band_path(band, x, floor):
            parts.append(svg.path(bars, f"band {band.kind}"))
    return parts


def _band_path(band: Band, x: svg.Scale, floor: float) -> str:
    """Return bars of the stretches in which something ran; neighbours of equal height are one."""
    wide = (x.end - x.start) / len(band.shares)
    heights = [
        0 if not share else max(1, round(_BAND_HEIGHT * share)) for share in band.shares.tolist()
    ]
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


def plot_memory(use: MemoryUse, width: float) -> Markup:
    """Return the curve of one device with its peak."""
    begin, end = use.curve[0][0], max(use.curve[-1][0], use.peak_ns)
    x = svg.Scale(0, max((end - begin) / 1e6, 1e-6), _MEMORY_LEFT, width - _MEMORY_RIGHT)
    most = max(use.peak_allocated_bytes, 1)
    y = svg.Scale(0, most * 1.08, _MEMORY_HEIGHT - _MEMORY_BOTTOM, _MEMORY_TOP)
    sizes = [share * most for share in (0, 0.25, 0.5, 0.75, 1)]
    parts = svg.rows(y, [(size, figures.memory(size)) for size in sizes], x.start, x.end)
    ticks = svg.tick_labels(0, x.high, 6 if width >= svg.WIDE else 3, last_unit=" ms")
    parts += svg.columns(x, ticks, _MEMORY_HEIGHT - 6, edges=(0, 40 - _MEMORY_RIGHT))
    # Steps: between two events nothing changes.
    curve = [f"M{x(0):.1f} {y(max(use.curve[0][1], 0)):.1f}"]
    for time, allocated in use.curve[1:]:
        curve.append(f"H{x.clamp((time - begin) / 1e6):.1f}V{y.clamp(allocated):.1f}")
    curve.append(f"H{x.end:.1f}V{y(0):.1f}H{x.start:.1f}z")
    parts.append(svg.path("".join(curve), "memory-curve"))
    peak = x.clamp((use.peak_ns - begin) / 1e6), y(use.peak_allocated_bytes)
    parts.append(svg.point(*peak, 4, "peak"))
    anchor = "end" if peak[0] > width / 2 else "start"
    words = f"peak {figures.memory(use.peak_allocated_bytes)}"
    parts.append(svg.label(peak[0], peak[1] - 10, words, "halo figure", anchor))
    owner = "CPU" if use.device < 0 else f"GPU {use.device}"
    return svg.canvas(
        f"memory-{'cpu' if use.device < 0 else use.device}", width, _MEMORY_HEIGHT,
        f"Allocated memory, {owner}",
        f"{words} at {figures.nanoseconds(use.peak_ns)} of the recording.",
        *parts,
    )  # fmt: skip


@dataclass(frozen=True)
class RooflinePoint:
    """An operator, or a kernel whose operations were counted."""

    name: str
    intensity: float
    """Arithmetic intensity in operations a byte of device memory."""
    flops_per_s: float
    time_ns: float
    bound: str
    rate_share: float | None = None
    """Share of the device's rate for its type, 0 to 1."""
    at_most: bool = False
    """Whether its operations are an upper limit."""

    @property
    def is_drawable(self) -> bool:
        """Whether it can stand on logarithmic axes."""
        return all(isfinite(each) and each > 0 for each in (self.intensity, self.flops_per_s))


def roofline_points(report: ProfileReport) -> list[RooflinePoint]:
    """Return what can stand on the roofline: operators, and kernels that were counted."""
    found = [
        RooflinePoint(
            f"{each.operator} {each.shapes[:120]}".strip(),
            each.position.intensity_flops_per_byte or 0.0,
            each.position.flops_per_s or 0.0,
            each.device_ns,
            str(each.position.bound),
            each.position.compute_share,
            each.at_most,
        )
        for each in report.facts.rooflines
    ]
    found += [
        RooflinePoint(
            short_name(each.name),
            each.intensity_flops_per_byte or 0.0,
            each.flops_per_s or 0.0,
            (each.seconds or 0.0) * 1e9,
            str(each.bound),
        )
        for each in report.facts.ncu_kernels
    ]
    return sorted((point for point in found if point.is_drawable), key=lambda each: -each.time_ns)


def roofline_ceilings(report: ProfileReport) -> tuple[float | None, dict[str, float]]:
    """Return bytes a second of the memory, and operations a second of the types that occur."""
    peaks = report.ceilings.by_quantity if report.ceilings else {}
    used = {each.precision for each in report.facts.rooflines}
    if report.facts.ncu_kernels:
        used.add("fp32")
    memory_peak = peaks.get(MEMORY)
    kinds = {name: peak.value for name, peak in peaks.items() if name in used and peak.value > 0}
    return (memory_peak.value if memory_peak else None), kinds


def plot_roofline(
    points: Sequence[RooflinePoint],
    bytes_per_s: float | None,
    ceilings: Mapping[str, float],
    width: float,
) -> Markup:
    """Return the points, and the roof of each ceiling that is known."""
    x, y = _roof_scales(points, bytes_per_s, ceilings, width)
    bottom = _ROOF_HEIGHT - _ROOF_BOTTOM
    every = max(1, round((x.high - x.low) / (10 if width >= svg.WIDE else 5)))
    intensities = [
        (power, f"{10.0**power:,.0f}" if 0 <= power <= 6 else f"{10.0**power:g}")
        for power in range(int(x.low), int(x.high) + 1, every)
    ]
    parts = svg.columns(x, intensities, bottom + 16, (_ROOF_TOP, bottom))
    every = max(1, round((y.high - y.low) / 8))
    powers = range(int(y.low), int(y.high) + 1, every)
    rates = [(power, figures.rate(10.0**power, "FLOP/s")) for power in powers]
    parts += svg.rows(y, rates, x.start, x.end)
    words = "FLOP a byte of device memory"
    parts.append(svg.label(x.end, _ROOF_HEIGHT - 6, words, "muted", "end"))
    for kind, most in ceilings.items():
        parts += _roof(kind, most, bytes_per_s, x, y)
    longest = max(point.time_ns for point in points) or 1.0
    for point in points:
        radius = max(_LARGEST * (point.time_ns / longest) ** 0.5, _SMALLEST)
        words = (
            f"{point.name[:160]}: {figures.rate(point.flops_per_s, 'FLOP/s')},"
            f" {figures.number(point.intensity)} FLOP a byte,"
            f" {figures.nanoseconds(point.time_ns)}, bound by {point.bound}"
        )
        at = x(log10(point.intensity)), y(log10(point.flops_per_s))
        parts.append(svg.point(*at, radius, f"bound {point.bound}", words))
    described = f"{figures.count(len(points), 'point')}; all are in the table below."
    return svg.canvas("roofline", width, _ROOF_HEIGHT, "Roofline", described, *parts)


def _roof_scales(
    points: Sequence[RooflinePoint],
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
        svg.Scale(low, max(high, low + 2), _ROOF_LEFT, width - _ROOF_RIGHT),
        svg.Scale(bottom, max(top, bottom + 2), _ROOF_HEIGHT - _ROOF_BOTTOM, _ROOF_TOP),
    )


def _roof(
    kind: str, most: float, bytes_per_s: float | None, x: svg.Scale, y: svg.Scale
) -> list[Markup]:
    level = log10(most)
    words = f"{kind} {figures.rate(most, 'FLOP/s')}"
    label = svg.label(x.end, y(level) - 5, words, "tick halo", "end")
    if not bytes_per_s:
        return [svg.line(x.start, y(level), x.end, y(level), "roof"), label]
    ridge = min(max(level - log10(bytes_per_s), x.low), x.high)
    # Left of the ridge the memory limits: one power of ten in x is one in y.
    left = max(x.low, y.low - log10(bytes_per_s))
    start = min(left, ridge)
    roof = (
        f"M{x(start):.1f} {y.clamp(start + log10(bytes_per_s)):.1f}"
        f"L{x(ridge):.1f} {y.clamp(ridge + log10(bytes_per_s)):.1f}H{x.end:.1f}"
    )
    return [svg.path(roof, "roof"), label]
