"""The sections of a profile's page that hold words."""

from __future__ import annotations

from datetime import UTC, datetime

from gpuadvisor.reports import figures, profile_wording
from gpuadvisor.reports.html_sections import NOTHING, section
from gpuadvisor.reports.markup import Markup, element
from gpuadvisor.reports.profile_parts import lead, ticked, words_table
from gpuadvisor.reports.profile_report import ProfileReport

_LONGEST = 400
"""Characters of a fact of the trace that are shown."""
_MOST_FACTS = 30
SOURCES = {
    "kineto": "torch profiler (Kineto)",
    "nsys": "Nsight Systems",
    "ncu": "Nsight Compute",
}


def masthead(report: ProfileReport) -> Markup:
    """Return the head of the page: what was recorded, where and for how long."""
    header = report.facts.profile.header
    rank = None if header.rank is None else f"rank {header.rank}"
    facts = [
        profile_wording.devices(report),
        header.tool or SOURCES.get(header.source, header.source),
        recorded(header.begin_unix_ns),
        figures.milliseconds(header.duration_ns / 1e6) if header.duration_ns else "",
        rank + (f" of {header.world_size}" if header.world_size else "") if rank else "",
    ]
    return element(
        "header",
        element("p", "gpuadvisor ", element("span", "profile"), class_="overline"),
        element("h1", element("code", report.name)),
        element("ul", *(element("li", fact[:_LONGEST]) for fact in facts if fact), class_="facts"),
    )


def recorded(begin_unix_ns: int | None) -> str:
    """Return when a profile began; empty where that is not known or no time of a day."""
    if begin_unix_ns is None:
        return ""
    try:
        moment = datetime.fromtimestamp(begin_unix_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def verdict(report: ProfileReport) -> Markup:
    """Return the one figure of the page, and what stands behind it."""
    value, words = profile_wording.headline(report)
    return element(
        "section",
        element("h2", "Conclusion", class_="unseen"),
        element("p", element("strong", value), f" {words}", class_="figure"),
        element("p", profile_wording.verdict(report)),
        class_="verdict",
    )


def remarks(report: ProfileReport) -> Markup:
    """Return what of the file could not be used, and other things to know."""
    sentences = (*report.problems, *report.facts.profile.header.warnings)
    if not sentences:
        return NOTHING
    items = (element("li", ticked(each[:_LONGEST])) for each in sentences)
    return section("Notes", element("ul", *items))


def not_measured(report: ProfileReport) -> Markup:
    """Return what is not known, why, and what to do about it."""
    rows = [
        [what, ticked(why[:_LONGEST]), ticked(how) if how else "not with this tool"]
        for what, why, how in profile_wording.not_measured(report)
    ]
    if not rows:
        return NOTHING
    return section(
        "Not measured",
        lead("This is not zero and not fine: it is not known."),
        words_table(["What", "Why", "How to measure it"], rows),
    )


def about(report: ProfileReport) -> Markup:
    """Return the devices and what else the file tells."""
    header = report.facts.profile.header
    rows = [("File", report.file), ("Recorded by", header.tool or header.source)]
    used = {device: report.device(device) for device in report.accounts}
    for index, device in used.items():
        if device is not None:
            known = ", ".join(
                f"{label} {value}" for label, value in profile_wording.device_rows(device)
            )
            rows.append((f"GPU {index}", f"{device.name}: {known}" if known else device.name))
    for name, peak in (report.peaks.by_quantity if report.peaks else {}).items():
        how = f"measured {peak.measured[:10]}" if peak.measured else "theoretical"
        unit = {"bytes/s": "B/s", "flop/s": "FLOP/s", "op/s": "OP/s"}.get(peak.unit, peak.unit)
        rows.append((f"Ceiling {name}", f"{profile_wording.rate(peak.value, unit)}, {how}"))
    rows += [(name, value) for name, value in list(header.facts.items())[:_MOST_FACTS]]
    items = (
        element("div", element("dt", label[:_LONGEST]), element("dd", value[:_LONGEST]))
        for label, value in rows
        if value
    )
    return section("About this profile", element("dl", *items))


def footer(report: ProfileReport) -> Markup:
    """Return how to read the figures."""
    return element(
        "footer",
        element(
            "p",
            "Shares are of the time from the device’s first event to its last one. Every figure"  # noqa: RUF001
            f" comes from the recording; what it lacks is called {figures.NOT_MEASURED}."
            " Recording slows the host down, so real idle time is shorter where it launches.",
        ),
        element("p", f"gpuadvisor {report.version}"),
    )
