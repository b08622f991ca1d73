"""Annotations of GitHub Actions: `::error`, `::warning` and `::notice`.

One a metric that did not pass, else one of the gate as a whole. They are written by themselves
where GITHUB_ACTIONS is set.
Format: GitHub, Workflow commands for GitHub Actions; escapes as in actions/toolkit, command.ts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
        title = title.replace(":", "%3A").replace(",", "%2C")
        yield f"::{level} title={title}::{_escaped(plain(f'{case.why}.'))}"


def _escaped(words: str) -> str:
    """Return one line so that the runner gives it back as it is."""
    return words.replace("%", "%25")
