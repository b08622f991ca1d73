"""A profile: where its time went, and what is known of its steps, kernels, copies and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from gpuadvisor.reports import figures
from gpuadvisor.reports.diagnosis import account as account_wording
from gpuadvisor.reports.diagnosis import wording as diagnosis_wording
from gpuadvisor.reports.diagnosis.document import what_to_fix
from gpuadvisor.reports.diagnosis.idle import place_of_cpu, share_of_samples
from gpuadvisor.reports.diagnosis.report import of_profile
from gpuadvisor.reports.document import (
    Bullets,
    Cell,
    Code,
    Column,
    Content,
    Document,
    Folded,
    Paragraph,
    Plot,
    Section,
    Table,
    Terms,
)
from gpuadvisor.reports.markup import Markup
from gpuadvisor.reports.profile import plots as profile_plots
from gpuadvisor.reports.profile import wording
from gpuadvisor.reports.profile.memory import memory_sections
from gpuadvisor.reports.profile.ranks import ranks_section
from gpuadvisor.reports.profile.report import KernelRow, ProfileReport
from gpuadvisor.reports.render_html import html
from gpuadvisor.reports.render_markdown import markdown
from gpuadvisor.reports.svg import WIDE
from gpuadvisor.rules.facts.activity import activity, halved
from gpuadvisor.rules.facts.failures import failures, lost_launches
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.time_breakdown import TimeCategory, added
from gpuadvisor.rules.paces import why_not_timed

MOST_KERNELS = 25
MOST_OPERATORS = 15
MOST_COLLECTIVES = 20
MOST_GAPS = 20
_MOST_FACTS = 30
_LONGEST = 400
"""Characters of a fact of the trace that are shown."""
_LONGEST_NAME, _LONGEST_TIP = 120, 1000
"""Characters of a name, and of a whole one in a tooltip: names in a trace may be endless."""
_PERCENTILES = (5, 50, 95, 100)
_BAND_PARTS = {
    "compute": TimeCategory.COMPUTING,
    "communication": TimeCategory.COMMUNICATING,
    "memory": TimeCategory.COPYING,
    "call": TimeCategory.LAUNCHING,
    "operator": TimeCategory.DEVICE,
    "loader": TimeCategory.WAITING_FOR_DATA,
}
_SOURCES = {"kineto": "torch profiler (Kineto)", "nsys": "Nsight Systems", "ncu": "Nsight Compute"}
_DEVICE = Column("Device", "device", "GPU {}".format)
_TIME = Column("Time", "time_ns", figures.nanoseconds)
_EXPOSED = Column("Exposed", "exposed_ns", figures.nanoseconds)
_COUNT = Column("Count", "count", figures.whole)
_SIZE = Column("Size", "bytes", figures.memory)
_UNITS = {"bytes/s": "B/s", "flop/s": "FLOP/s", "op/s": "OP/s"}


def profile_html(report: ProfileReport) -> str:
    """Return the profile as a page."""
    return html(profile_document(report))


def profile_markdown(report: ProfileReport) -> str:
    """Return the profile as GitHub-flavoured Markdown."""
    return markdown(profile_document(report))


def profile_document(report: ProfileReport) -> Document:
    """Return all that is to be said of a profile."""
    header = report.facts.profile.header
    value, words = wording.headline(report)
    lasted = figures.nanoseconds(header.duration_ns) if header.duration_ns else ""
    where = (wording.devices(report), header.tool or header.source, lasted)
    rank = "" if header.rank is None else f"rank {header.rank}"
    facts = (
        wording.devices(report),
        header.tool or _SOURCES.get(header.source, header.source),
        wording.recorded(header.begin_unix_ns),
        lasted,
        f"{rank} of {header.world_size}" if rank and header.world_size else rank,
    )
    return Document(
        name=(report.name,),
        summary=(
            f"{value} {words}".strip(),
            f"({', '.join(filter(None, where))}). {wording.verdict(report)}",
        ),
        kind=("gpuadvisor", "profile"),
        title=f"{report.name}: {f'{value} {words}'.strip()}",
        facts=[fact[:_LONGEST] for fact in facts],
        headline=(value, words),
        conclusion=[Paragraph(wording.verdict(report)), *_part(report)],
        sections=tuple(_sections(report)),
        footer=(
            "Shares of time are of the run: from its first step, or its first work where that is"
            " earlier, to the last work of its devices. Every figure"
            f" comes from the recording; what it lacks is called {figures.NOT_MEASURED}."
            " Recording slows the CPU down, so real idle time is shorter where it launches.",
            f"gpuadvisor {report.version}",
        ),
        styles=("page.css", "profile.css"),
    )


def _sections(report: ProfileReport) -> Iterator[Section]:
    if (diagnosis := of_profile(report)) is not None:
        lead = diagnosis_wording.found(diagnosis)
        yield Section.led("What to fix first", lead, *what_to_fix(diagnosis))
    facts = report.facts
    at_top = facts.fitness.note if facts.fitness.excerpt else None
    looked_at = (each for each in facts.looked_at if each != at_top)
    limits = (failures(facts), *looked_at, lost_launches(facts), why_not_timed(facts))
    told = (f"{each}." for each in limits if each)
    if sentences := (*told, *report.problems, *report.facts.profile.header.warnings):
        yield Section("Notes", [Bullets([each[:_LONGEST] for each in sentences])])
    if report.ranks is not None:
        yield ranks_section(report.ranks)
    for section in (
        _where_time_goes, _steps, _timeline, _kernels, _roofline, _operators, memory_sections,
        _copies, _communication, _launching, _gaps, _not_measured, _about,
    ):  # fmt: skip
        yield from section(report)


def _part(report: ProfileReport) -> Iterator[Paragraph]:
    """Yield which part of a large recording the page is about."""
    if report.facts.fitness.excerpt is not None:
        yield Paragraph(f"{report.facts.fitness.note}.")


def _titled(*titles: str, words_from: int | None = None) -> list[Column]:
    """Return the columns of rows that are tuples; from one place on they hold words."""
    return [
        Column(title, itemgetter(place), left=words_from is not None and place >= words_from)
        for place, title in enumerate(titles)
    ]


def _bytes_per_s(value: float | None) -> str:
    return figures.rate(value, "B/s")


def _kernel_name(name: str, below: str = "", longest: int = _LONGEST_NAME) -> Cell:
    """Return a kernel's short name, with the whole one in the tooltip."""
    short = Code(short_name(name)[:longest])
    return Cell(short, (below,) if below else (), name[:_LONGEST_TIP])


def _where_time_goes(report: ProfileReport) -> Iterator[Section]:
    """Yield the time of each device by what it did, or why it did nothing."""
    if not report.facts.time_breakdowns:
        return
    account = report.facts.account
    total = added(account.breakdowns)
    parts = [part for part in TimeCategory if total.parts_ns[part] > 0]
    claimed = account_wording.claims(report.diagnosis)
    longest = sorted(
        (gap for each in account.devices for gap in each.longest), key=lambda gap: gap.cause_ns
    )
    places = {str(gap.cause): account_wording.place(gap) for gap in longest}
    rows = [
        (account_wording.name(entry, account), figures.percent(account.share(entry)),
         figures.nanoseconds(entry.time_ns), wording.EXPLAINED[entry.part],
         claimed.get(entry.part, ""), places.get(str(entry.part), ""))
        for entry in account.entries
    ]  # fmt: skip
    busy = figures.percent(total.busy_share), figures.nanoseconds(total.busy_ns)
    rows.append(("busy, together", *busy, "At least one kernel or copy runs.", "", ""))
    words = "What the device did, and why it did nothing: each moment of the run is in one part."
    if len(report.facts.time_breakdowns) > 1:
        words += f" The table adds {len(report.facts.time_breakdowns)} devices up."
    left_out = len(report.facts.time_breakdowns) - profile_plots.MOST_BARS
    if left_out > 0:
        words += f" {figures.count(left_out, 'more device')} not drawn."
    plot = Plot(
        lambda width: profile_plots.plot_time_breakdown(report.facts.time_breakdowns, width),
        [(f"dot square part {part}", wording.PARTS[part]) for part in parts],
    )
    titles = "Part", "Share", "Time", "Which means", "Finding", "The longest"
    columns = _titled(*titles, words_from=3)
    tables = (Table(rows, columns, "account"), *_sampled(report))
    yield Section.led("Where the time goes", words, plot, *tables)


def _sampled(report: ProfileReport) -> Iterator[Table]:
    """Yield where the launching thread was sampled in its own time."""
    found = report.facts.cpu_samples
    if found is None or not found.modules:
        return
    columns = (
        Column("The launching thread’s own time", lambda each: Code(place_of_cpu(each))),  # noqa: RUF001
        Column("Samples", "samples", figures.whole),
        Column("Share of samples", share_of_samples),
    )
    note = (
        f"{figures.count(found.samples, 'sample')} of the CPU, taken while that thread ran and"
        " neither launched nor waited for the GPU; by library, then by function. Shares are 95 %"
        " intervals."
    )
    yield Table([*found.modules, *found.functions], columns, "", (note,))


def _steps(report: ProfileReport) -> Iterator[Section]:
    """Yield how long the steps took."""
    found = report.facts.steps
    if found is None or not found.steps:
        reason = report.facts.not_measured.get("steps", "the trace marks no steps that are certain")
        yield Section("Steps", [Paragraph(f"Not measured: {reason}.", "note")])
        return
    times = sorted(step.duration_ns for step in found.steps)
    count = figures.count(len(times), "step")
    row = (
        count,
        *(figures.nanoseconds(times[max(-(-percent * len(times) // 100) - 1, 0)])
          for percent in _PERCENTILES),
        figures.nanoseconds(sum(step.data_wait_ns for step in found.steps) / len(times)),
    )  # fmt: skip
    names = ({50: "Median", 100: "Longest"}.get(p, f"{p}th percentile") for p in _PERCENTILES)
    source = wording.STEP_SOURCES.get(found.source, str(found.source))
    waits = [("dot square part device", "step"),
             ("dot square part waiting_for_data", "of which waiting for data")]  # fmt: skip
    plot = Plot(
        lambda width: profile_plots.plot_steps(found, width), waits if found.data_wait_share else ()
    )
    columns = _titled("", *names, "Waiting for data (mean)")
    lead = f"{count}: {source}. Times are the CPU's."
    yield Section.led("Steps", lead, plot, Table([row], columns))


def _timeline(report: ProfileReport) -> Iterator[Section]:
    """Yield what each stream and thread did over time."""
    found = activity(report.facts, profile_plots.STRETCHES) if report.facts.has_timeline else None
    if found is None or not found.lanes:
        return
    narrow = halved(found)
    stretch = figures.nanoseconds(found.span_ns / found.stretches)
    words = "Streams of the device, then threads of the CPU. A bar's height is the share of its"
    words += f" {stretch} in which something ran."
    if found.omitted:
        words += f" {figures.count(found.omitted, 'lane')} with less to do not drawn."
    kinds = {band.kind for lane in found.lanes for band in lane.bands}
    legend = [
        (f"dot square part {_BAND_PARTS[kind]}", words)
        for kind, words in profile_plots.KINDS.items()
        if kind in kinds
    ]

    def plot(width: float) -> Markup:
        shown = found if width >= WIDE else narrow
        return profile_plots.plot_timeline(shown, report.facts.steps, width)

    yield Section("Timeline", [Plot(plot, legend, words)])


def _kernels(report: ProfileReport) -> Iterator[Section]:
    """Yield the kernels that took longest, and how they fit on the device."""
    rows = report.kernels
    if not rows:
        return
    top = rows[:MOST_KERNELS]
    columns = (
        Column("Kernel", "kernel", lambda each: _kernel_name(each.name, wording.launch(each))),
        Column("Share", "share", figures.percent),
        Column("Time", "kernel.time_ns", figures.nanoseconds),
        Column("Count", "kernel.count", figures.whole),
        Column("p50", "kernel.p50_ns", figures.nanoseconds),
        Column("p95", "kernel.p95_ns", figures.nanoseconds),
        Column("Occupancy", _occupancy),
    )
    words = (
        f"{figures.count(len(rows), 'kernel')} by name and launch; these are"
        f" {figures.percent(sum(row.share for row in top))} of the time of all. Occupancy is"
        " theoretical, by our own calculator, with what limits it."
    )
    notes = wording.left_out(len(rows), len(top), "kernel")
    if zero := sum(row.share for row in rows if row.kineto_says_zero):
        share = figures.percent(zero)
        notes += (f"{share} of the kernels' time has {wording.KINETO_ZERO}: averages made of it"
                  " are too low.",)  # fmt: skip
    yield Section.led("Kernels", words, Table(top, columns, "wide", notes))


def _occupancy(row: KernelRow) -> Content:
    share = figures.percent(row.occupancy)
    below = (wording.limiters(row), "the trace says 0 %" if row.kineto_says_zero else "")
    return Cell(share, tuple(filter(None, below))) if any(below) else share


def _roofline(report: ProfileReport) -> Iterator[Section]:
    """Yield where operators or kernels stand against what the device can do."""
    found = profile_plots.roofline_points(report)
    if not found:
        return
    bytes_per_s, kinds = profile_plots.roofline_ceilings(report)
    drawn = found[: profile_plots.MOST_POINTS]
    words = "Operations a second over operations a byte; a larger point took longer."
    if report.facts.rooflines:
        words += " The bytes of matrix products and attention are the least that they need, so that"
        words += " they stand at their rightmost place."
    if not kinds:
        words += " The device's ceilings are not known."
    elif report.ceilings and not all(
        peak.measured for peak in report.ceilings.by_quantity.values()
    ):
        words += " Ceilings are theoretical ones: `gpuadvisor bench-device` measures real ones."
    columns = (
        Column(
            "What", "name", lambda name: Cell(Code(name[:_LONGEST_NAME]), tip=name[:_LONGEST_TIP])
        ),
        _TIME,
        Column("Achieved", lambda each: _at_most(each, figures.rate(each.flops_per_s, "FLOP/s"))),
        Column("Of the rate", lambda each: _at_most(each, figures.percent(each.rate_share))),
        Column("FLOP a byte", "intensity", figures.number),
        Column("Bound by", "bound", lambda bound: "not known" if bound == "unknown" else bound),
    )
    legend = [
        (f"dot square bound {each}", "bound not known" if each == "unknown" else f"bound by {each}")
        for each in ("compute", "memory", "latency", "unknown")
        if any(point.bound == each for point in drawn)
    ]
    table = Table(drawn, columns, "wide", wording.left_out(len(found), len(drawn), "point"))
    plot = Plot(
        lambda width: profile_plots.plot_roofline(drawn, bytes_per_s, kinds, width),
        legend, words, table,
    )  # fmt: skip
    yield Section("Roofline", [plot], is_folded=True)


def _at_most(point: profile_plots.RooflinePoint, value: str) -> str:
    return f"at most {value}" if point.at_most and value != figures.NOT_MEASURED else value


def _operators(report: ProfileReport) -> Iterator[Section]:
    """Yield the operators that the devices' time goes to."""
    found = [each for each in report.facts.operators.by_name if each.total_device_ns]
    if not found:
        return
    lost = report.facts.operators.unattributed_device_ns
    whole = sum(each.self_device_ns for each in found) + lost
    columns = (
        Column("Operator", "name", lambda name: Code(name[:_LONGEST_NAME])),
        Column(
            "Share", "self_device_ns", lambda ns: figures.percent(ns / whole if whole else None)
        ),
        Column("Itself", "self_device_ns", figures.nanoseconds),
        Column("With called", "total_device_ns", figures.nanoseconds),
        _COUNT,
        Column("CPU time", "host_ns", figures.nanoseconds),
    )
    words = "Time on the device of what an operator launched itself, and with what it called."
    if lost:
        words += f" {figures.nanoseconds(lost)} belong to no operator."
    table = Table(found[:MOST_OPERATORS], columns, "wide")
    yield Section.led("Operators", words, table, is_folded=True)


def _copies(report: ProfileReport) -> Iterator[Section]:
    """Yield copies and memsets by direction and kind of memory."""
    found = report.facts.copies
    if not found:
        return
    columns = (
        Column("Copy", wording.copy_words),
        _COUNT, _SIZE, _TIME, _EXPOSED,
        Column("Bandwidth", "bandwidth_bytes_per_s", _bytes_per_s),
    )  # fmt: skip
    words = "Exposed is the time in which no kernel ran beside it."
    if any("pageable" in wording.copy_words(each) for each in found):
        words += " Pageable memory is copied twice: `pin_memory=True` of a DataLoader avoids that."
    yield Section.led("Copies", words, Table(found, columns, "wide"), is_folded=True)


def _communication(report: ProfileReport) -> Iterator[Section]:
    """Yield what was exchanged with other GPUs."""
    found = report.facts.communication
    if not found:
        return
    devices = (
        _DEVICE, _TIME, _EXPOSED,
        Column("Share exposed", lambda each: each.exposed_ns / each.time_ns if each.time_ns
               else None, figures.percent),
    )  # fmt: skip
    collectives = (
        Column("Collective", lambda each: Cell(
            Code(each.name[:80] or "not told"), (f"GPU {each.device} {each.group[:60]}".strip(),))),
        _COUNT,
        Column("Ranks", "group_size", figures.whole),
        _SIZE, _TIME, _EXPOSED,
        Column("Bus", "bus_bandwidth_bytes_per_s", _bytes_per_s),
        Column("Fastest", "best_bus_bandwidth_bytes_per_s", _bytes_per_s),
    )  # fmt: skip
    rows = sorted((each for one in found for each in one.collectives), key=lambda e: -e.time_ns)
    lead = (
        "Exposed is the time in which nothing computes beside it. Waiting for other ranks is part"
        " of the time, so the fastest tells the link's speed."
    )
    table = Table(rows[:MOST_COLLECTIVES], collectives, "wide")
    by_collective = [Folded("By collective", [table])] if rows else []
    yield Section.led("Communication", lead, Table(found, devices), *by_collective)


def _launching(report: ProfileReport) -> Iterator[Section]:
    """Yield how launching kernels went."""
    found = [each for each in report.facts.queues if each.launched]
    if not found or "queues" in report.facts.not_measured:
        return
    columns = (
        _DEVICE,
        Column("Kernels", "kernels", figures.whole),
        Column("Below 10 µs", lambda each: each.short_kernels / each.kernels, figures.percent),
        Column("Starved", "starved_share", figures.percent),
        Column("Call", "call_p50_ns", figures.nanoseconds),
        Column("In the queue", "latency_p50_ns", figures.nanoseconds),
        Column("Queued", "depth_p50", figures.whole),
    )
    lead = (
        "Starved kernels found their stream empty when their launch began: the device waited for"
        " the CPU. Times and the length of the queue are medians."
    )
    yield Section.led("Launching", lead, Table(found, columns, "wide"), is_folded=True)


def _gaps(report: ProfileReport) -> Iterator[Section]:
    """Yield the longest stretches in which a device did nothing."""
    if not report.facts.time_breakdowns:
        return
    gaps = [gap for idle in report.facts.idle for gap in idle.longest]
    if not gaps:
        return
    rows = sorted(gaps, key=lambda gap: -gap.duration_ns)[:MOST_GAPS]
    columns = (
        Column("After", "before", _short),
        Column("At", "begin_ns", figures.nanoseconds),
        Column("Idle for", "duration_ns", figures.nanoseconds),
        Column("Cause", lambda gap: wording.PARTS[gap.cause].removeprefix("idle: "), left=True),
        Column("Until", "after", _short, left=True),
        Column("Launched by", "launched_by", _short, left=True),
    )
    folded = Folded(f"The {len(rows)} longest", [Table(rows, columns, "wide")])
    yield Section("Longest idle times", [folded])


def _short(name: str) -> Content:
    return _kernel_name(name, longest=80) if name else figures.NOT_MEASURED


def _not_measured(report: ProfileReport) -> Iterator[Section]:
    """Yield what is not known, why, and what to do about it."""
    rows: Sequence[Any] = [
        (what, why[:_LONGEST], how or "not with this tool")
        for what, why, how in wording.not_measured(report)
    ]
    if rows:
        lead = "This is not zero and not fine: it is not known."
        columns = _titled("What", "Why", "How to measure it", words_from=1)
        table = Table(rows, columns, "words")
        yield Section.led("Not measured", lead, table, is_folded=True)


def _about(report: ProfileReport) -> Iterator[Section]:
    """Yield the devices and what else the file tells."""
    header = report.facts.profile.header
    rows = [("File", report.file), ("Recorded by", header.tool or header.source)]
    for index in report.facts.time_breakdowns:
        if (device := report.device(index)) is not None:
            known = ", ".join(f"{label} {value}" for label, value in wording.device_rows(device))
            rows.append((f"GPU {index}", f"{device.name}: {known}" if known else device.name))
    for name, peak in (report.ceilings.by_quantity if report.ceilings else {}).items():
        how = f"measured {peak.measured[:10]}" if peak.measured else "theoretical"
        unit = _UNITS.get(peak.unit, peak.unit)
        rows.append((f"Ceiling {name}", f"{figures.rate(peak.value, unit)}, {how}"))
    rows += list(header.facts.items())[:_MOST_FACTS]
    terms = Terms([(label[:_LONGEST], value[:_LONGEST]) for label, value in rows])
    yield Section("About this profile", [terms], is_folded=True)
