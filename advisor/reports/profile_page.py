"""A profile as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from importlib.resources import files

from gpuadvisor.reports import (
    diagnosis_wording,
    profile_plots,
    profile_sections,
    profile_tables,
    profile_wording,
)
from gpuadvisor.reports.diagnosis_document import what_to_fix
from gpuadvisor.reports.diagnosis_report import of_profile
from gpuadvisor.reports.document import Paragraph, Section
from gpuadvisor.reports.markup import Markup, element, void
from gpuadvisor.reports.profile_report import ProfileReport
from gpuadvisor.reports.render_html import html_section

# Nothing may be loaded, whatever a trace calls its kernels.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLES = ("page.css", "profile.css")


def profile_html(report: ProfileReport) -> str:
    """Return the whole page."""
    body = element(
        "body",
        profile_sections.masthead(report),
        element(
            "main",
            profile_sections.verdict(report),
            _what_to_fix(report),
            profile_sections.remarks(report),
            profile_plots.where_time_goes(report),
            profile_plots.steps(report),
            profile_plots.timeline(report),
            profile_tables.kernels(report),
            profile_plots.roofline(report),
            profile_tables.operators(report),
            profile_plots.memory(report),
            profile_tables.copies(report),
            profile_tables.communication(report),
            profile_tables.launching(report),
            profile_tables.gaps(report),
            profile_sections.not_measured(report),
            profile_sections.about(report),
        ),
        profile_sections.footer(report),
    )
    return "<!DOCTYPE html>\n" + element("html", _head(report), body, lang="en") + "\n"


def _what_to_fix(report: ProfileReport) -> Markup:
    diagnosis = of_profile(report)
    if diagnosis is None:
        return Markup("")
    lead = Paragraph(diagnosis_wording.found(diagnosis), "lead")
    return html_section(Section("What to fix first", [lead, *what_to_fix(diagnosis)]))


def _head(report: ProfileReport) -> Markup:
    folder = files("gpuadvisor.reports")
    style = "\n".join((folder / name).read_text("utf-8") for name in _STYLES)
    figure, words = profile_wording.headline(report)
    return element(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        element("title", f"{report.name}: {figure} {words}"),
        element("style", Markup(style)),
    )
