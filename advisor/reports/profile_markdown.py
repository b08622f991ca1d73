"""A profile as Markdown, to be pasted into an issue or a pull request."""

from __future__ import annotations

from gpuadvisor.reports import diagnosis_wording, figures, profile_wording
from gpuadvisor.reports.diagnosis_document import what_to_fix
from gpuadvisor.reports.diagnosis_report import of_profile
from gpuadvisor.reports.document import Paragraph, Section
from gpuadvisor.reports.markdown_parts import code, details, table, text
from gpuadvisor.reports.profile_report import ProfileReport
from gpuadvisor.reports.render_markdown import markdown_section
from gpuadvisor.rules.facts.time_breakdown import TimeCategory, added

MOST_KERNELS = 15
MOST_OPERATORS = 10


def profile_markdown(report: ProfileReport) -> str:
    """Return the profile as GitHub-flavoured Markdown."""
    parts = [
        _heading(report),
        *_diagnosis(report),
        _account(report),
        _steps(report),
        _kernels(report),
        _operators(report),
        _copies(report),
        _communication(report),
        _memory(report),
        _not_measured(report),
        _warnings(report),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(report: ProfileReport) -> str:
    header = report.facts.profile.header
    value, words = profile_wording.headline(report)
    where = [profile_wording.devices(report), header.tool or header.source]
    if header.duration_ns:
        where.append(figures.milliseconds(header.duration_ns / 1e6))
    sentence = f"**{text(value)} {text(words)}** ({text(', '.join(filter(None, where)))})."
    return f"### {code(report.name)}\n\n{sentence} {text(profile_wording.verdict(report))}".rstrip()


def _diagnosis(report: ProfileReport) -> list[str]:
    diagnosis = of_profile(report)
    if diagnosis is None:
        return []
    lead = Paragraph(diagnosis_wording.found(diagnosis), "lead")
    return [markdown_section(Section("What to fix first", [lead, *what_to_fix(diagnosis)]))]


def _account(report: ProfileReport) -> str:
    if not report.accounts:
        return ""
    total = added(report.accounts)
    rows = [
        (profile_wording.PARTS[part], figures.percent(total.share(part)),
         figures.milliseconds(total.parts_ns[part] / 1e6))
        for part in TimeCategory
        if total.parts_ns[part] > 0
    ]  # fmt: skip
    return table(("Where the time goes", "Share", "Time"), rows)


def _steps(report: ProfileReport) -> str:
    found = report.facts.steps
    if found is None or not found.steps:
        return ""
    longest = max(step.duration_ns for step in found.steps)
    return text(
        f"{figures.count(len(found.steps), 'step')} ({profile_wording.STEP_SOURCES[found.source]}):"
        f" median {figures.milliseconds(found.median_ns / 1e6)}, longest"
        f" {figures.milliseconds(longest / 1e6)}, waiting for data"
        f" {figures.percent(found.data_wait_share)}."
    )


def _kernels(report: ProfileReport) -> str:
    if not report.kernels:
        return ""
    rows = [
        (
            code(profile_wording.short_name(row.kernel.name)[:100]),
            figures.percent(row.share),
            figures.milliseconds(row.kernel.time_ns / 1e6),
            f"{row.kernel.count:,}",
            figures.milliseconds(row.kernel.p50_ns / 1e6),
            figures.milliseconds(row.kernel.p95_ns / 1e6),
            profile_wording.occupancy(row) + (" *" if row.kineto_says_zero else ""),
            profile_wording.launch(row.kernel),
        )
        for row in report.kernels[:MOST_KERNELS]
    ]
    header = ("Kernel", "Share", "Time", "Count", "p50", "p95", "Occupancy", "Launch")
    parts = ["#### Kernels", table(header, [tuple(map(_starred, row)) for row in rows])]
    if any(row.kineto_says_zero for row in report.kernels[:MOST_KERNELS]):
        parts.append("\\* " + text(profile_wording.KINETO_ZERO) + ".")
    return "\n\n".join(parts)


def _starred(cell: str) -> str:
    return cell[:-1] + "\\*" if cell.endswith(" *") else cell


def _operators(report: ProfileReport) -> str:
    found = [each for each in report.facts.operators.by_name if each.total_device_ns]
    rows = [
        (code(each.name[:100]), figures.milliseconds(each.self_device_ns / 1e6),
         figures.milliseconds(each.total_device_ns / 1e6), f"{each.count:,}")
        for each in found[:MOST_OPERATORS]
    ]  # fmt: skip
    header = ("Operator", "Itself on the device", "With called", "Count")
    return details("Operators", table(header, rows)) if rows else ""


def _copies(report: ProfileReport) -> str:
    rows = [
        (text(profile_wording.copy_words(each)), f"{each.count:,}", figures.memory(each.bytes),
         figures.milliseconds(each.time_ns / 1e6), figures.milliseconds(each.exposed_ns / 1e6),
         profile_wording.rate(each.bandwidth_bytes_per_s, "B/s"))
        for each in report.facts.copies
    ]  # fmt: skip
    header = ("Copy", "Count", "Size", "Time", "Exposed", "Bandwidth")
    return details("Copies", table(header, rows)) if rows else ""


def _communication(report: ProfileReport) -> str:
    rows = [
        (f"GPU {each.device}", figures.milliseconds(each.time_ns / 1e6),
         figures.milliseconds(each.exposed_ns / 1e6))
        for each in report.facts.communication
    ]  # fmt: skip
    return table(("Communication", "Time", "Exposed"), rows) if rows else ""


def _memory(report: ProfileReport) -> str:
    lines = [
        f"Peak memory on {'the host' if use.device < 0 else f'GPU {use.device}'}:"
        f" {figures.memory(use.peak_allocated_bytes)} allocated,"
        f" {figures.memory(use.peak_reserved_bytes)} reserved."
        for use in report.facts.memory
    ]
    return "\n".join(text(line) for line in lines)


def _not_measured(report: ProfileReport) -> str:
    rows = [
        (text(what), text(why), text(how) or "not with this tool")
        for what, why, how in profile_wording.not_measured(report)
    ]
    if not rows:
        return ""
    body = table(("What", "Why", "How to measure it"), rows, right=False)
    return details("Not measured", body)


def _warnings(report: ProfileReport) -> str:
    lines = [*report.problems, *report.facts.profile.header.warnings]
    return "\n".join(["**Notes**\n", *(f"- {text(line)}" for line in lines)]) if lines else ""
