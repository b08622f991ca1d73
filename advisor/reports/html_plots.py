"""The sections of the page that hold plots, each with the same figures in words or a table."""

from __future__ import annotations

from collections.abc import Callable

from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import StudyResult, TrialState
from gpuadvisor.reports import figures, plot_steps, svg, wording
from gpuadvisor.reports.html_sections import DASH, NOTHING, dot, section, table
from gpuadvisor.reports.markup import Markup, element, join
from gpuadvisor.reports.plot_contributions import plot_contributions
from gpuadvisor.reports.plot_trials import FLOOR, plot_trials

_PERCENTILES = (5, 25, 50, 75, 95, 99)


def contributions(result: StudyResult) -> Markup:
    """Return what each kept knob is worth."""
    kept = result.contributions
    if not kept or not wording.is_proven(result):
        return NOTHING
    return section(
        "What each knob is worth",
        _lead(
            "How much worse the best settings get when this knob alone is taken out."
            f" The thin line is the {wording.CONFIDENCE}, where it was measured."
        ),
        _figure(lambda width: plot_contributions(kept, width)),
        _as_table(table(*wording.contribution_table(kept, DASH))),
    )


def gains(result: StudyResult) -> Markup:
    """Return what every trial gained."""
    if not result.trials:
        return NOTHING
    lead = (
        "In the order in which they ran; the line is the best found so far."
        " Point at a mark for its knobs, or see the table of all trials."
    )
    if any(trial.gain is not None and trial.gain < FLOOR for trial in result.trials):
        lead += f" What is slower than {FLOOR}x is drawn there."
    return section(
        "Gain by trial",
        _lead(lead),
        _legend(result),
        _figure(lambda width: plot_trials(result.trials, width)),
    )


def step_times(result: StudyResult) -> Markup:
    """Return how step times are distributed, of the baseline and of the best."""
    named = [("Baseline", result.baseline)]
    if result.best is not None:
        named.append(("Best", result.best))
    runs = [(name, run) for name, run in named if run.step_ms]
    if not runs:
        return NOTHING
    beyond = plot_steps.left_out([run for _, run in runs])
    lead = "How often a step took how long."
    if beyond:
        lead += f" {figures.count(beyond, 'slower step')} beyond the axis: not drawn, but counted."
    header = ["Percentile", *(name for name, _ in runs)]
    return section(
        "Step times",
        _lead(lead),
        _figure(lambda width: plot_steps.plot_steps(runs, width)),
        _as_table(table(header, [_percentiles(runs, percent) for percent in _PERCENTILES])),
    )


def _percentiles(runs: list[tuple[str, Measurement]], percent: int) -> list[str]:
    return [
        f"{percent}th" if percent != 50 else "50th (median)",
        *(figures.milliseconds(run.percentile_ms(percent)) for _, run in runs),
    ]


def _legend(result: StudyResult) -> Markup:
    """Return the states that occurred with their marks, and what sets other marks apart."""
    seen = [state for state in TrialState if any(t.state is state for t in result.trials)]
    items = [element("li", dot(state), wording.STATES[state]) for state in seen]
    if any(trial.phase == "proof" for trial in result.trials):
        items.append(
            element("li", element("span", "", class_="dot disc proof"), "proof of the best")
        )
    if any(not trial.settings for trial in result.trials):
        plain = element("span", "", class_="dot disc plain")
        items.append(element("li", plain, "the script as it is"))
    return element("ul", *items, class_="legend")


def _figure(plot: Callable[[float], Markup]) -> Markup:
    """Return the plot for a wide and for a narrow page; the style sheet shows one of them."""
    return element("figure", join([plot(svg.WIDE), plot(svg.NARROW)]))


def _as_table(content: Markup) -> Markup:
    return element("details", element("summary", "As a table"), content)


def _lead(words: str) -> Markup:
    return element("p", words, class_="lead")
