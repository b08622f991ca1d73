"""A profile as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from importlib.resources import files

from gpuadvisor.reports import (
    diagnosis_section,
    profile_plots,
    profile_sections,
    profile_tables,
    profile_wording,
)
from gpuadvisor.reports.markup import Markup, element, void
from gpuadvisor.reports.profile_report import ProfileReport

# Nothing may be loaded, whatever a trace calls its kernels.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLES = ("page.css", "profile.css", "diagnosis.css")


def profile_html(report: ProfileReport) -> str:
    """Return the whole page."""
    body = element(
        "body",
        profile_sections.masthead(report),
        element(
            "main",
            profile_sections.verdict(report),
            diagnosis_section.what_to_fix(report),
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
