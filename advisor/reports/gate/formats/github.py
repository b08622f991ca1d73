"""Annotations of GitHub Actions: `::error`, `::warning` and `::notice`.

One a metric that did not pass, else one of the gate as a whole. A time that failed names its
largest cause, and stands at its line. They are written by themselves where GITHUB_ACTIONS is set.
Format: GitHub, Workflow commands for GitHub Actions; escapes as in actions/toolkit, command.ts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from gpuadvisor.domain.explanation import EXPLAINED
from gpuadvisor.reports.gate.explanation import cause_sentence
from gpuadvisor.reports.gate.outcome import Case, Outcome, cases, plain

FILE = "-"
LEVELS = {"pass": "notice", "inconclusive": "warning", "refused": "warning"}
"""What an ending is there; of others it is an error."""


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the commands, one a line."""
    return "".join(f"{line}\n" for each in outcomes for line in _lines(each))


def _lines(outcome: Outcome) -> Iterator[str]:
    whole = [Case("gate", "Gate", outcome.ending, outcome.why)]
    for case in [each for each in cases(outcome) if each.ending != "pass"] or whole:
        level = LEVELS.get(case.ending, "error")
        ending = case.ending.capitalize()
        title = _escaped(f"gpuadvisor gate, {plain(outcome.name)}: {ending}")
        words, place = _cause(outcome) if case.key in EXPLAINED else ("", "")
        why = _escaped(plain(f"{case.why}.{words}"))
        yield f"::{level} {place}title={_of_property(title)}::{why}"


def _cause(outcome: Outcome) -> tuple[str, str]:
    """Return what most of a slow-down is, as a sentence, and its place as properties.

    Both are empty where nobody knows; a place outside of the project is none.
    """
    explanation = outcome.found.explanation if outcome.found else None
    causes = [each for each in explanation.causes if each.more_ms > 0] if explanation else []
    if explanation is None or not causes:
        return "", ""
    largest = max(causes, key=lambda each: each.more_ms)
    words = f" Why: {cause_sentence(largest, explanation)}."
    file, _, line = (largest.source or "").rpartition(":")
    if not line.isdecimal() or PurePath(file).is_absolute():
        return words, ""
    return words, f"file={_of_property(_escaped(plain(file)))},line={line},"


def _of_property(text: str) -> str:
    return text.replace(":", "%3A").replace(",", "%2C")


def _escaped(words: str) -> str:
    """Return one line so that the runner gives it back as it is."""
    return words.replace("%", "%25")
