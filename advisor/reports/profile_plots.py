"""The sections of a profile's page that hold plots, each with the same figures in a table."""

from __future__ import annotations

from gpuadvisor.reports import figures, profile_wording
from gpuadvisor.reports.html_sections import NOTHING, section, table
from gpuadvisor.reports.markup import Markup, join
from gpuadvisor.reports.plot_memory import plot_memory
from gpuadvisor.reports.plot_profile_steps import plot_profile_steps
from gpuadvisor.reports.plot_roofline import MOST_POINTS, Point, plot_roofline, plottable
from gpuadvisor.reports.plot_time_account import MOST_BARS, plot_time_account
from gpuadvisor.reports.plot_timeline import KINDS, STRETCHES, plot_timeline
from gpuadvisor.reports.profile_parts import (
    CORNER,
    as_table,
    figure,
    kernel_name,
    lead,
    legend,
    note,
    shown,
    wide_table,
)
from gpuadvisor.reports.profile_report import ProfileReport
from gpuadvisor.reports.svg import WIDE
from gpuadvisor.rules.facts.activity import activity, halved
from gpuadvisor.rules.facts.memory import MemoryUse
from gpuadvisor.rules.facts.roofline import MEMORY
from gpuadvisor.rules.facts.time_breakdown import TimeCategory, added

_BAND_PARTS = {
    "compute": TimeCategory.COMPUTING,
    "communication": TimeCategory.COMMUNICATING,
    "memory": TimeCategory.COPYING,
    "call": TimeCategory.LAUNCHING,
    "operator": TimeCategory.DEVICE,
    "loader": TimeCategory.WAITING_FOR_DATA,
}
_MOST_CURVES = 8
_PERCENTILES = (5, 50, 95, 100)


def where_time_goes(report: ProfileReport) -> Markup:
    """Return the time of each device by what it did, or why it did nothing."""
    if not report.accounts:
        return NOTHING
    total = added(report.accounts)
    parts = [part for part in TimeCategory if total.parts_ns[part] > 0]
    rows = [
        [
            profile_wording.PARTS[part],
            figures.percent(total.share(part)),
            figures.milliseconds(total.parts_ns[part] / 1e6),
            profile_wording.EXPLAINED[part],
        ]
        for part in parts
    ]
    busy = figures.percent(total.busy_share), figures.milliseconds(total.busy_ns / 1e6)
    rows.append(["busy, together", *busy, "At least one kernel or copy runs."])
    words = "What the device did, and why it did nothing, as parts that exclude each other."
    if len(report.accounts) > 1:
        words += f" The table adds {len(report.accounts)} devices up."
    left_out = len(report.accounts) - MOST_BARS
    if left_out > 0:
        words += f" {figures.count(left_out, 'more device')} not drawn."
    return section(
        "Where the time goes",
        lead(words),
        figure(lambda width: plot_time_account(report.accounts, width)),
        legend((f"part {part}", profile_wording.PARTS[part]) for part in parts),
        table(["Part", "Share", "Time", "Which means"], rows, class_="account"),
    )


def steps(report: ProfileReport) -> Markup:
    """Return how long the steps took."""
    found = report.facts.steps
    if found is None or not found.steps:
        reason = report.facts.not_measured.get("steps", "the trace marks no steps that are certain")
        return section("Steps", note(f"Not measured: {reason}."))
    times = sorted(step.duration_ns for step in found.steps)
    whole = sum(times)
    busy = sum(step.device_busy_ns for step in found.steps)
    names = [{50: "Median", 100: "Longest"}.get(each, f"{each}th percentile")
             for each in _PERCENTILES]  # fmt: skip
    figures_of = [
        figures.milliseconds(times[max(-(-percent * len(times) // 100) - 1, 0)] / 1e6)
        for percent in _PERCENTILES
    ]
    shares = [figures.percent(busy / whole if whole else None),
              figures.percent(found.data_wait_share)]  # fmt: skip
    waits = [("part device", "step"), ("part waiting_for_data", "of which waiting for data")]
    header = [CORNER, *names, "Device busy", "Waiting for data"]
    rows = [[figures.count(len(times), "step"), *figures_of, *shares]]
    source = profile_wording.STEP_SOURCES.get(found.source, str(found.source))
    return section(
        "Steps",
        lead(f"{figures.count(len(found.steps), 'step')}: {source}. Times are the host’s."),  # noqa: RUF001
        figure(lambda width: plot_profile_steps(found, width)),
        legend(waits) if found.data_wait_share else "",
        table(header, rows),
    )


def timeline(report: ProfileReport) -> Markup:
    """Return what each stream and thread did over time."""
    found = activity(report.facts, STRETCHES) if report.has_timeline else None
    if found is None or not found.lanes:
        return NOTHING
    narrow = halved(found)
    kinds = {band.kind for lane in found.lanes for band in lane.bands}
    words = "Streams of the device, then threads of the host. A bar’s height is the share of its"  # noqa: RUF001
    words += (
        f" {figures.milliseconds(found.span_ns / found.stretches / 1e6)} in which something ran."
    )
    if found.omitted:
        words += f" {figures.count(found.omitted, 'lane')} with less to do not drawn."
    return section(
        "Timeline",
        lead(words),
        legend((f"part {_BAND_PARTS[kind]}", KINDS[kind]) for kind in KINDS if kind in kinds),
        figure(
            lambda width: plot_timeline(
                found if width >= WIDE else narrow, report.facts.steps, width
            )
        ),
    )


def memory(report: ProfileReport) -> Markup:
    """Return the curve of each device's memory with its peak."""
    known = [use for use in report.facts.memory if use.curve]
    # What the host gives out is seldom a problem, and in `--json`.
    uses = [use for use in known if use.device >= 0] or known
    if not uses:
        return NOTHING
    uses.sort(key=lambda use: -use.peak_allocated_bytes)
    parts = [_memory_of(use) for use in uses[:_MOST_CURVES]]
    return section(
        "Memory",
        lead("What the framework’s allocator had given out."),  # noqa: RUF001
        join(parts),
    )


def _memory_of(use: MemoryUse) -> Markup:
    reserved = figures.memory(use.peak_reserved_bytes)
    who = "the host" if use.device < 0 else f"GPU {use.device}"
    sentence = (
        f"Peak on {who}: {figures.memory(use.peak_allocated_bytes)}, reserved {reserved};"
        f" {figures.memory(use.older_bytes)} of the peak is older than the recording."
    )
    rows = [
        [each.operator[:120] or "not known", figures.memory(each.bytes),
         figures.milliseconds(each.time_ns / 1e6)]
        for each in use.alive_at_peak
    ]  # fmt: skip
    largest = table(["Allocated in", "Size", "At"], rows)
    return join(
        [
            note(sentence),
            figure(lambda width: plot_memory(use, width)),
            as_table(largest, "The largest allocations that lived at the peak") if rows else "",
        ]
    )


def points(report: ProfileReport) -> list[Point]:
    """Return what can stand on the roofline: operators, and kernels that were counted."""
    found = [
        Point(
            f"{each.operator} {each.shapes[:120]}".strip(),
            each.position.intensity_flops_per_byte or 0.0,
            each.position.flops_per_s or 0.0,
            each.device_ns,
            str(each.position.bound),
        )
        for each in report.facts.rooflines
        if plottable(each.position.intensity_flops_per_byte, each.position.flops_per_s)
    ]
    found += [
        Point(
            profile_wording.short_name(each.name),
            each.intensity_flops_per_byte or 0.0,
            each.flops_per_s or 0.0,
            (each.seconds or 0.0) * 1e9,
            str(each.bound),
        )
        for each in report.facts.ncu_kernels
        if plottable(each.intensity_flops_per_byte, each.flops_per_s)
    ]
    return sorted(found, key=lambda point: -point.time_ns)


def ceilings(report: ProfileReport) -> tuple[float | None, dict[str, float]]:
    """Return bytes a second of the memory, and operations a second of the types that occur."""
    peaks = report.peaks.by_quantity if report.peaks else {}
    used = {each.precision for each in report.facts.rooflines}
    if report.facts.ncu_kernels:
        used.add("fp32")
    memory_peak = peaks.get(MEMORY)
    kinds = {name: peak.value for name, peak in peaks.items() if name in used and peak.value > 0}
    return (memory_peak.value if memory_peak else None), kinds


def roofline(report: ProfileReport) -> Markup:
    """Return where operators or kernels stand against what the device can do."""
    found = points(report)
    if not found:
        return NOTHING
    bytes_per_s, kinds = ceilings(report)
    drawn = found[:MOST_POINTS]
    words = "Operations a second over operations a byte; a larger point took longer."
    if report.facts.rooflines:
        words += " The bytes of a matrix product are the least that it needs, so that it stands"
        words += " at its rightmost place."
    if not kinds:
        words += " The device’s ceilings are not known."  # noqa: RUF001
    elif report.peaks and not all(peak.measured for peak in report.peaks.by_quantity.values()):
        words += " Ceilings are theoretical ones: `gpuadvisor bench-device` measures real ones."
    rows = [
        [kernel_name(point.name, point.name), figures.milliseconds(point.time_ns / 1e6),
         profile_wording.rate(point.flops_per_s, "FLOP/s"), figures.number(point.intensity),
         point.bound if point.bound != "unknown" else "not known"]
        for point in drawn
    ]  # fmt: skip
    bounds = [each for each in ("compute", "memory", "latency", "unknown")
              if any(point.bound == each for point in drawn)]  # fmt: skip
    names = {"unknown": "bound not known"}
    return section(
        "Roofline",
        lead(words),
        legend((f"bound {each}", names.get(each, f"bound by {each}")) for each in bounds),
        figure(lambda width: plot_roofline(drawn, bytes_per_s, kinds, width)),
        as_table(wide_table(["What", "Time", "Achieved", "FLOP a byte", "Bound by"], rows)),
        note(more) if (more := shown(len(found), len(drawn), "point")) else "",
    )
