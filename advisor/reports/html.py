"""A study as one HTML page that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from math import isfinite

from gpuadvisor.domain.knobs import Snippet
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import StudyResult
from gpuadvisor.reports import html_plots, html_sections, wording
from gpuadvisor.reports.markup import Markup, element, void

# Nothing may be loaded, whatever a script is called and whatever a trial printed.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def study_html(result: StudyResult, snippets: Sequence[Snippet] = ()) -> str:
    """Return the whole page; `snippets` are the lines that make the settings permanent."""
    result = _drawable(result)
    body = element(
        "body",
        html_sections.masthead(result),
        element(
            "main",
            html_sections.verdict(result),
            html_sections.comparison(result),
            html_sections.expectations(result),
            html_sections.notes(result),
            html_plots.contributions(result),
            html_sections.how_to_keep(result, snippets),
            html_plots.gains(result),
            html_plots.step_times(result),
            html_sections.not_helpful(result),
            html_sections.trials(result),
            html_sections.environment(result),
        ),
        html_sections.footer(result),
    )
    return "<!DOCTYPE html>\n" + element("html", _head(result), body, lang="en") + "\n"


def _head(result: StudyResult) -> Markup:
    style = (files("gpuadvisor.reports") / "page.css").read_text("utf-8")
    return element(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        element("title", f"{wording.headline(result)}: {result.script}"),
        element("style", Markup(style)),
    )


def _drawable(result: StudyResult) -> StudyResult:
    """Return the study without step times that cannot be drawn or ranked: NaN and infinity."""
    best = None if result.best is None else _finite(result.best)
    return replace(result, baseline=_finite(result.baseline), best=best)


def _finite(measurement: Measurement) -> Measurement:
    return replace(measurement, step_ms=tuple(filter(isfinite, measurement.step_ms)))
