"""The sections of the page that hold words and tables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from gpuadvisor.domain.knobs import Snippet
from gpuadvisor.domain.study import StudyResult, Trial, TrialState
from gpuadvisor.reports import figures, wording
from gpuadvisor.reports.environment import environment_rows
from gpuadvisor.reports.markup import Markup, element, join
from gpuadvisor.reports.quantities import comparisons, quantities

NOTHING = Markup("")
_CORNER = element("span", "Figure", class_="unseen")
DASH = "–"  # noqa: RUF001 - an en dash is what typography wants in a range


def section(title: str, *children: str, class_: str | None = None) -> Markup:
    """Return a section with its heading."""
    return element("section", element("h2", title), *children, class_=class_)


def masthead(result: StudyResult) -> Markup:
    """Return the head of the page: what ran, where, when and for how long."""
    facts = [
        result.environment.device.name,
        f"level {result.level}",
        f"objective {result.objective}",
        _date(result.started),
        f"{figures.count(len(result.trials), 'trial')} in {figures.duration(result.wall_s)}",
    ]
    return element(
        "header",
        element("p", "gpuadvisor ", element("span", f"study {result.study}"), class_="overline"),
        element("h1", element("code", _command(result))),
        element("ul", *(element("li", fact) for fact in facts if fact), class_="facts"),
    )


def verdict(result: StudyResult) -> Markup:
    """Return the conclusion: the one figure of the page, and what it rests on."""
    title = element("h2", "Conclusion", class_="unseen")
    reason = wording.no_gain_reason(result, DASH)
    if not wording.is_proven(result) or result.speedup is None:
        return element(
            "section",
            title,
            element("p", wording.headline(result), class_="figure"),
            element("p", f"{reason[0].upper()}{reason[1:]}."),
            element("p", _ticked(wording.no_gain_advice(result)), class_="muted"),
            class_="verdict none",
        )
    value, words = wording.headline(result).split(" ", 1)
    proof = wording.evidence(result.speedup, DASH)
    return element(
        "section",
        title,
        element("p", element("strong", value), f" {words}", class_="figure"),
        element("p", proof[0].upper() + proof[1:], " of fresh processes."),
        element("p", wording.equivalence_sentence(result.equivalence)),
        class_="verdict",
    )


def comparison(result: StudyResult) -> Markup:
    """Return the table of baseline against best."""
    rows = comparisons(result)
    if result.best is None:
        body = [[row.label, row.baseline] for row in rows]
        return section("What was measured", table([_CORNER, "Baseline"], body))
    body = [[row.label, row.baseline, row.best, row.change] for row in rows]
    return section("Baseline and best", table([_CORNER, "Baseline", "Best", "Change"], body))


def expectations(result: StudyResult) -> Markup:
    """Return what the diagnosis predicted beside what was measured."""
    rows = wording.expectation_rows(result)
    if not rows:
        return NOTHING
    body = table(list(wording.EXPECTATION_HEADER), rows)
    return section(wording.EXPECTATIONS, body)


def notes(result: StudyResult) -> Markup:
    """Return what the reader must know to judge the figures."""
    sentences = wording.notes(result)
    if not sentences:
        return NOTHING
    return section("Notes", element("ul", *(element("li", _ticked(each)) for each in sentences)))


def how_to_keep(result: StudyResult, snippets: Sequence[Snippet]) -> Markup:
    """Return how to apply the plan, and the lines that need no plan."""
    command = wording.apply_command(result)
    if not wording.is_proven(result) or not (command or snippets):
        return NOTHING
    parts: list[str] = []
    if command:
        parts.append(element("p", "Without a change in the script:"))
        parts.append(_code_block(command))
    if snippets:
        parts.append(element("p", "Or for good, in the script’s own code:"))  # noqa: RUF001
    for each in snippets:
        caption = element("p", element("code", each.knob), f" {each.where}", class_="caption")
        parts.append(element("div", caption, _code_block(each.code), class_="snippet"))
    return section("How to keep it", *parts)


def not_helpful(result: StudyResult) -> Markup:
    """Return the knobs that were looked at and not kept."""
    reasons = wording.not_helpful(result)
    if not reasons:
        return NOTHING
    items = (
        element("div", element("dt", element("code", knob)), element("dd", _ticked(reason)))
        for knob, reason in reasons.items()
    )
    return section("What did not help", element("dl", *items))


def trials(result: StudyResult) -> Markup:
    """Return the table of all trials."""
    if not result.trials:
        return NOTHING
    header = ["#", "Phase", "Knobs", "State", "Gain", "Mean step"]
    body = table(header, map(_trial_cells, result.trials), class_="trials")
    return section("All trials", element("div", body, class_="scroll", tabindex="0"))


def environment(result: StudyResult) -> Markup:
    """Return what must be equal for these figures to be comparable with others."""
    items = (
        element("div", element("dt", label), element("dd", value))
        for label, value in environment_rows(result.environment)
    )
    return section("Environment", element("dl", *items))


def footer(result: StudyResult) -> Markup:
    """Return how the figures were taken."""
    return element(
        "footer",
        element(
            "p",
            "A gain is the ratio of the baseline’s cost to the best’s,"  # noqa: RUF001
            " from fresh processes that ran in turns. Every figure was measured;"
            f" what was not is called {figures.NOT_MEASURED}.",
        ),
        element("p", f"gpuadvisor {result.environment.gpuadvisor}"),
    )


def dot(state: TrialState) -> Markup:
    """Return the state's mark as in the plot: a disc if the run is complete, else a cross."""
    shape = "disc" if state is TrialState.COMPLETE else "cross"
    return element("span", "", class_=f"dot {shape} state-{state}", aria_hidden="true")


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], class_: str | None = None
) -> Markup:
    """Return a table whose rows are named by their first cell."""
    head = element("tr", *(element("th", name, scope="col") for name in header))
    body = (element("tr", element("th", row[0], scope="row"), *map(_cell, row[1:])) for row in rows)
    return element("table", element("thead", head), element("tbody", *body), class_=class_)


def _cell(words: str) -> Markup:
    return element("td", words, class_="muted" if words == figures.NOT_MEASURED else None)


def _trial_cells(trial: Trial) -> list[str]:
    reason = element("small", _ticked(trial.reason)) if trial.reason else NOTHING
    return [
        str(trial.number),
        trial.phase,
        element("code", figures.settings(trial.settings)) if trial.settings else "as the script is",
        join([dot(trial.state), wording.STATES[trial.state], reason]),
        figures.ratio(trial.gain),
        figures.milliseconds(quantities(trial.measurement).mean_ms),
    ]


def _command(result: StudyResult) -> Markup:
    """Return the command in words that a line break does not part, at a hyphen for example."""
    words = map(shlex.quote, (result.script, *result.args))
    return join((element("span", word) for word in words), " ")


def _code_block(code: str) -> Markup:
    return element("pre", element("code", code.rstrip()), tabindex="0")


def _ticked(sentence: str) -> Markup:
    """Return the sentence with what stands between backticks as code."""
    parts = re.split(r"`([^`]+)`", sentence)
    return join(element("code", part) if place % 2 else part for place, part in enumerate(parts))


def _date(moment: str) -> str:
    """Return `2025-10-02 14:12 UTC` from UTC in ISO 8601."""
    return f"{moment[:10]} {moment[11:16]} UTC" if len(moment) >= 16 else moment
