"""The sections of a profile's page that hold tables."""

from __future__ import annotations

from gpuadvisor.reports import figures, profile_wording
from gpuadvisor.reports.html_sections import NOTHING, section, table
from gpuadvisor.reports.markup import Markup, element, join
from gpuadvisor.reports.profile_parts import (
    as_table,
    kernel_name,
    lead,
    note,
    shown,
    wide_table,
)
from gpuadvisor.reports.profile_report import KernelRow, ProfileReport
from gpuadvisor.rules.facts.time_breakdown import TimeCategory

MOST_KERNELS = 25
MOST_OPERATORS = 15
MOST_COLLECTIVES = 20
MOST_GAPS = 20


def kernels(report: ProfileReport) -> Markup:
    """Return the kernels that took longest, and how they fit on the device."""
    rows = report.kernels
    if not rows:
        return NOTHING
    top = rows[:MOST_KERNELS]
    header = ["Kernel", "Share", "Time", "Count", "p50", "p95", "Occupancy"]
    zero = sum(row.share for row in rows if row.kineto_says_zero)
    covered = sum(row.share for row in top)
    words = (
        f"{figures.count(len(rows), 'kernel')} by name and launch; these are"
        f" {figures.percent(covered)} of the time of all. Occupancy is theoretical, by our own"
        " calculator, with what limits it."
    )
    return section(
        "Kernels",
        lead(words),
        wide_table(header, map(_kernel, top)),
        note(more) if (more := shown(len(rows), len(top), "kernel")) else "",
        note(
            f"{figures.percent(zero)} of the kernels’ time has {profile_wording.KINETO_ZERO}:"  # noqa: RUF001
            " averages made of it are too low."
        )
        if zero
        else "",
    )


def _kernel(row: KernelRow) -> list[str]:
    kernel = row.kernel
    share = figures.NOT_MEASURED if row.occupancy is None else figures.percent(row.occupancy)
    below = [profile_wording.limiters(row), "the trace says 0 %" if row.kineto_says_zero else ""]
    smaller = [element("small", words) for words in below if words]
    fits: str = join([share, *smaller]) if smaller else share
    return [
        kernel_name(
            kernel.name,
            profile_wording.short_name(kernel.name),
            profile_wording.launch(kernel),
        ),
        figures.percent(row.share),
        figures.milliseconds(kernel.time_ns / 1e6),
        f"{kernel.count:,}",
        figures.milliseconds(kernel.p50_ns / 1e6),
        figures.milliseconds(kernel.p95_ns / 1e6),
        fits,
    ]


def operators(report: ProfileReport) -> Markup:
    """Return the operators that the devices' time goes to."""
    found = [each for each in report.facts.operators.by_name if each.total_device_ns]
    if not found:
        return NOTHING
    whole = sum(each.self_device_ns for each in found)
    whole += report.facts.operators.unattributed_device_ns
    rows = [
        [
            element("code", each.name[:120]),
            figures.percent(each.self_device_ns / whole if whole else None),
            figures.milliseconds(each.self_device_ns / 1e6),
            figures.milliseconds(each.total_device_ns / 1e6),
            f"{each.count:,}",
            figures.milliseconds(each.host_ns / 1e6),
        ]
        for each in found[:MOST_OPERATORS]
    ]
    lost = report.facts.operators.unattributed_device_ns
    words = "Time on the device of what an operator launched itself, and with what it called."
    if lost:
        words += f" {figures.milliseconds(lost / 1e6)} belong to no operator."
    header = ["Operator", "Share", "Itself", "With called", "Count", "On the host"]
    return section("Operators", lead(words), wide_table(header, rows))


def copies(report: ProfileReport) -> Markup:
    """Return copies and memsets by direction and kind of memory."""
    if not report.facts.copies:
        return NOTHING
    rows = [
        [
            profile_wording.copy_words(each),
            f"{each.count:,}",
            figures.memory(each.bytes),
            figures.milliseconds(each.time_ns / 1e6),
            figures.milliseconds(each.exposed_ns / 1e6),
            profile_wording.rate(each.bandwidth_bytes_per_s, "B/s"),
        ]
        for each in report.facts.copies
    ]
    header = ["Copy", "Count", "Size", "Time", "Exposed", "Bandwidth"]
    words = "Exposed is the time in which no kernel ran beside it."
    if any("pageable" in row[0] for row in rows):
        words += " Pageable memory is copied twice: `pin_memory=True` of a DataLoader avoids that."
    return section("Copies", lead(words), wide_table(header, rows))


def communication(report: ProfileReport) -> Markup:
    """Return what was exchanged with other GPUs."""
    found = report.facts.communication
    if not found:
        return NOTHING
    devices = [
        [f"GPU {each.device}", figures.milliseconds(each.time_ns / 1e6),
         figures.milliseconds(each.exposed_ns / 1e6),
         figures.percent(each.exposed_ns / each.time_ns if each.time_ns else None)]
        for each in found
    ]  # fmt: skip
    collectives = sorted(
        (each for one in found for each in one.collectives), key=lambda each: -each.time_ns
    )
    rows = [
        [
            join([element("code", each.name[:80] or "not told"),
                  element("small", f"GPU {each.device} {each.group[:60]}")]),
            f"{each.count:,}",
            figures.NOT_MEASURED if each.group_size is None else str(each.group_size),
            figures.memory(each.bytes),
            figures.milliseconds(each.time_ns / 1e6),
            figures.milliseconds(each.exposed_ns / 1e6),
            profile_wording.rate(each.bus_bandwidth_bytes_per_s, "B/s"),
            profile_wording.rate(each.best_bus_bandwidth_bytes_per_s, "B/s"),
        ]
        for each in collectives[:MOST_COLLECTIVES]
    ]  # fmt: skip
    header = ["Collective", "Count", "Ranks", "Size", "Time", "Exposed", "Bus", "Fastest"]
    return section(
        "Communication",
        lead("Exposed is the time in which nothing computes beside it. Waiting for other ranks is"
             " part of the time, so the fastest tells the link’s speed."),  # noqa: RUF001
        table(["Device", "Time", "Exposed", "Share exposed"], devices),
        as_table(wide_table(header, rows), "By collective") if rows else "",
    )  # fmt: skip


def launching(report: ProfileReport) -> Markup:
    """Return how launching kernels went."""
    found = [each for each in report.facts.queues if each.launched]
    if not found or "queues" in report.facts.not_measured:
        return NOTHING
    rows = [
        [
            f"GPU {each.device}",
            f"{each.kernels:,}",
            figures.percent(each.short_kernels / each.kernels),
            figures.percent(each.starved_share),
            _time(each.call_p50_ns),
            _time(each.latency_p50_ns),
            figures.NOT_MEASURED if each.depth_p50 is None else f"{each.depth_p50:,}",
        ]
        for each in found
    ]
    header = ["Device", "Kernels", "Below 10 µs", "Starved", "Call", "In the queue", "Queued"]
    return section(
        "Launching",
        lead("Starved kernels found their stream empty when their launch began: the device waited"
             " for the host. Times and the length of the queue are medians."),
        wide_table(header, rows),
    )  # fmt: skip


def _time(nanoseconds: int | None) -> str:
    return figures.milliseconds(None if nanoseconds is None else nanoseconds / 1e6)


def gaps(report: ProfileReport) -> Markup:
    """Return the longest stretches in which a device did nothing."""
    if not report.accounts:
        return NOTHING
    found = sorted(
        ((idle.device, gap) for idle in report.facts.idle for gap in idle.longest),
        key=lambda each: -each[1].duration_ns,
    )
    rows = [
        [
            _code(gap.before),
            figures.milliseconds(gap.begin_ns / 1e6),
            figures.milliseconds(gap.duration_ns / 1e6),
            profile_wording.PARTS[TimeCategory(gap.cause)].removeprefix("idle: "),
            _code(gap.after),
            _code(gap.launched_by) if gap.launched_by else figures.NOT_MEASURED,
        ]
        for _, gap in found[:MOST_GAPS]
    ]
    if not rows:
        return NOTHING
    header = ["After", "At", "Idle for", "Cause", "Until", "Launched by"]
    return section(
        "Longest idle times",
        as_table(wide_table(header, rows), f"The {len(rows)} longest"),
    )


def _code(name: str) -> Markup:
    return element("code", profile_wording.short_name(name)[:80], title=name[:400])
