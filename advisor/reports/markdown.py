"""A study as Markdown, to be pasted into a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpuadvisor.domain.knobs import Contribution, Snippet
from gpuadvisor.domain.study import StudyResult, Trial
from gpuadvisor.reports import figures, wording
from gpuadvisor.reports.environment import environment_rows
from gpuadvisor.reports.quantities import comparisons, quantities

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")
"""What could start markup inside a line: HTML, links, emphasis, code, headings, table cells."""


def study_markdown(result: StudyResult, snippets: Sequence[Snippet] = ()) -> str:
    """Return the study as GitHub-flavoured Markdown; `snippets` make the settings permanent."""
    parts = [
        _heading(result),
        _comparison_table(result),
        f"{_text(wording.equivalence_sentence(result.equivalence))}" if result.best else "",
        _contribution_table(result.contributions) if wording.is_proven(result) else "",
        _expectation_table(result),
        _how_to_apply(result, snippets),
        _not_helpful(result),
        _notes(result),
        _environment(result),
        _trials(result.trials),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(result: StudyResult) -> str:
    title = f"### {_code(wording.command(result))}"
    sentence = f"**{_text(wording.verdict_sentence(result))}**"
    if wording.is_proven(result):
        return f"{title}\n\n{sentence}"
    return f"{title}\n\n{sentence} {_text(wording.no_gain_advice(result))}"


def _comparison_table(result: StudyResult) -> str:
    rows = comparisons(result)
    if result.best is None:
        return _table(("", "Baseline"), [(row.label, row.baseline) for row in rows])
    return _table(
        ("", "Baseline", "Best", "Change"),
        [(row.label, row.baseline, row.best, row.change) for row in rows],
    )


def _contribution_table(contributions: Sequence[Contribution]) -> str:
    if not contributions:
        return ""
    header, rows = wording.contribution_table(contributions)
    cells = [(_code(row[0]), *row[1:]) for row in rows]
    title = "What each knob is worth, measured by taking it out alone:"
    return f"{title}\n\n" + _table(header, cells)


def _expectation_table(result: StudyResult) -> str:
    rows = wording.expectation_rows(result)
    if not rows:
        return ""
    title = "What the diagnosis predicted of the run's time, and what its knobs brought:"
    cells = [tuple(_text(cell) for cell in row) for row in rows]
    return f"{title}\n\n" + _table(wording.EXPECTATION_HEADER, cells)


def _how_to_apply(result: StudyResult, snippets: Sequence[Snippet]) -> str:
    if not wording.is_proven(result):
        return ""
    parts = ["#### How to keep it"]
    command = wording.apply_command(result)
    if command:
        parts.append("Without a change in the script:\n\n" + _fence(command, "shell"))
    if snippets:
        parts.append("Or for good, in the script's own code:")
    for each in snippets:
        parts.append(
            f"{_code(each.knob)}: {_text(each.where)}\n\n" + _fence(each.code, each.language)
        )
    return "\n\n".join(parts) if len(parts) > 1 else ""


def _not_helpful(result: StudyResult) -> str:
    reasons = wording.not_helpful(result)
    if not reasons:
        return ""
    lines = [f"- {_code(knob)}: {_text(reason)}" for knob, reason in reasons.items()]
    return _details(f"What did not help ({len(lines)})", "\n".join(lines))


def _notes(result: StudyResult) -> str:
    lines = [f"- {_text(note)}" for note in wording.notes(result)]
    return "\n".join(["**Notes**\n", *lines]) if lines else ""


def _environment(result: StudyResult) -> str:
    rows = [(label, _text(value)) for label, value in environment_rows(result.environment)]
    return _details("Environment", _table(("", ""), rows, right=False))


def _trials(trials: Sequence[Trial]) -> str:
    if not trials:
        return ""
    rows = [
        (
            str(trial.number),
            trial.phase,
            _code(figures.settings(trial.settings)) if trial.settings else "as the script is",
            wording.STATES[trial.state] + (f": {_text(trial.reason)}" if trial.reason else ""),
            figures.milliseconds(quantities(trial.measurement).mean_ms),
            figures.ratio(trial.gain),
        )
        for trial in trials
    ]
    header = ("#", "Phase", "Knobs", "State", "Mean step", "Gain")
    return _details(f"All {figures.count(len(rows), 'trial')}", _table(header, rows, right=False))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], right: bool = True) -> str:
    """Return a table; all columns but the first are aligned right for figures."""
    rules = ["---"] + ["--:" if right else "---"] * (len(header) - 1)
    lines = [header, rules, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _details(summary: str, body: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n\n</details>"


def _text(text: str) -> str:
    """Return the text on one line; what stands between backticks is code, no other markup works."""
    parts = re.split(r"`([^`]+)`", " ".join(text.split()))
    return "".join(
        _code(part) if place % 2 else _SPECIAL.sub(r"\\\1", part)
        for place, part in enumerate(parts)
    )


def _code(text: str) -> str:
    """Return the text as inline code, also inside a table."""
    line = " ".join(text.split()).replace("|", "\\|")
    fence = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _fence(code: str, language: str) -> str:
    fence = "`" * max(3, _longest_run(code) + 1)
    return f"{fence}{language}\n{code.rstrip()}\n{fence}"


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backticks, which a fence must exceed."""
    return max((len(run) for run in re.findall("`+", text)), default=0)
