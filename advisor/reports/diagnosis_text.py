"""A diagnosis on the terminal: what a tired engineer has to know, the most expensive first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuadvisor.domain.finding import Finding
from gpuadvisor.domain.severity import Severity
from gpuadvisor.printable import printable
from gpuadvisor.reports import diagnosis_wording as wording
from gpuadvisor.reports import figures
from gpuadvisor.reports.diagnosis_report import MOST_AT_TOP, DiagnosisReport

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    Severity.CRITICAL: "bold red",
    Severity.WARNING: "bold yellow",
    Severity.NOTICE: "bold cyan",
    Severity.INFO: "bold",
}
_MARGIN = 3
_LABEL = 10
MOST_REMARKS = 3
"""That are shown where there is nothing to fix."""
NARROWEST = 40


@dataclass(frozen=True)
class Line:
    """One line, or several with the same margin where it is long."""

    text: str
    style: str = ""
    label: str = ""
    """Stands before the text, which is indented by it."""
    margin: int = 0
    is_command: bool = False
    """Stays on one line, whatever the width, so that it can be copied."""

    @property
    def head(self) -> str:
        """What stands before the text on its first line."""
        return " " * self.margin + (f"{self.label:<{_LABEL}}" if self.label else "")


def print_diagnosis(console: Console, report: DiagnosisReport, everything: bool = False) -> None:
    """Print it, in colour and wrapped on a terminal, a line each where it is piped."""
    from rich.text import Text

    for line in diagnosis_lines(report, everything):
        width = console.width if console.is_terminal else 0
        for row in wrapped(line, width):
            console.print(Text(row, line.style), soft_wrap=True)


def wrapped(line: Line, width: int) -> list[str]:
    """Return a line in rows of at most `width` characters, as it is for 0."""
    head, words = line.head, _one_line(line.text)
    if not width or not words or line.is_command:
        return [f"{head}{words}".rstrip()]
    gap = " " * (len(head) if line.label or line.margin else 2)
    rows = textwrap.wrap(
        words,
        max(width, NARROWEST),
        initial_indent=head,
        subsequent_indent=gap,
        break_on_hyphens=False,
    )
    return rows or [head.rstrip()]


def diagnosis_lines(report: DiagnosisReport, everything: bool = False) -> Iterator[Line]:
    """Yield what is to be said of a run; all of it where that is asked for."""
    yield Line(wording.subject(report), "bold")
    yield Line(wording.outcome(report))
    at_top = report.worth_fixing if everything else report.worth_fixing[:MOST_AT_TOP]
    for number, finding in enumerate(at_top, 1):
        yield Line("")
        yield from _finding(report, finding, f"{number}.")
    yield from _rest(report, everything, is_empty=not at_top)
    yield from _not_measured(report, everything)
    yield from (Line(f"The rule {rule} failed: {why}", "red") for rule, why in _failed(report))
    if at_top:
        yield Line("")
        yield Line(f"Why, and how it is estimated: gpuadvisor explain {at_top[0].rule}")


def _finding(report: DiagnosisReport, finding: Finding, number: str) -> Iterator[Line]:
    yield Line(f"{number:<{_MARGIN}}{wording.heading(finding)}", STYLES[finding.severity])
    yield Line(wording.sentence(finding.summary), margin=_MARGIN)
    yield _labelled("where", wording.where(finding))
    yield from _column("evidence", map(wording.figure, finding.evidence))
    of_kernel = wording.is_of_kernel(report, finding)
    if words := wording.worth(finding, report.diagnosis, of_kernel):
        yield _labelled("worth", words)
        if finding.method:
            yield Line(finding.method, "dim", margin=_MARGIN + _LABEL)
    yield _labelled("do", finding.advice)
    command, others = wording.trial(report, finding)
    if command:
        yield replace(_labelled("try", command), is_command=True)
    if others:
        yield Line(f"then {others}", margin=_MARGIN + _LABEL)


def _column(label: str, rows: Iterable[str]) -> Iterator[Line]:
    for place, row in enumerate(rows):
        yield _labelled(label, row) if not place else Line(row, margin=_MARGIN + _LABEL)


def _labelled(label: str, text: str) -> Line:
    return Line(text, label=label, margin=_MARGIN)


def _rest(report: DiagnosisReport, everything: bool, is_empty: bool) -> Iterator[Line]:
    """Yield symptoms and remarks, or how many there are of them."""
    if everything:
        yield from _group("Symptoms of what is above", _symptoms(report))
        yield from _group("Good to know", _remarks(report.remarks))
        return
    if is_empty:
        yield from _group("Good to know", _remarks(report.remarks[:MOST_REMARKS]))
    words = wording.more(report)
    if words and not (is_empty and len(report.remarks) <= MOST_REMARKS and not report.hidden):
        yield Line("")
        yield Line(f"{words}; --all shows them.")


def _symptoms(report: DiagnosisReport) -> Iterator[Line]:
    for cause, found in report.hidden.items():
        for each in found:
            words = f"{each.rule}, of {cause}: {each.summary} ({wording.where(each)})"
            yield Line(words, margin=_MARGIN)


def _remarks(found: Iterable[Finding]) -> Iterator[Line]:
    for each in found:
        yield Line(f"{each.rule}: {each.summary} ({wording.where(each)})", margin=_MARGIN)


def _group(title: str, lines: Iterable[Line]) -> Iterator[Line]:
    listed = list(lines)
    if listed:
        yield Line("")
        yield Line(f"{title}:", "bold")
        yield from listed


def _not_measured(report: DiagnosisReport, everything: bool) -> Iterator[Line]:
    if not report.diagnosis.not_measured:
        return
    count = figures.count(len(report.diagnosis.not_measured), "rule")
    yield Line("")
    yield Line(f"Not measured, so not known ({count} could not look):", "bold")
    for way, rules in report.ways_to_measure.items():
        how = wording.way(report, way)
        if everything:
            yield Line(f"{how}:", margin=_MARGIN)
            yield from (Line(f"{e.rule}: {e.why}", margin=2 * _MARGIN) for e in rules)
        else:
            yield Line(f"{how}: {wording.rules(rules)}", margin=_MARGIN)


def _failed(report: DiagnosisReport) -> Iterable[tuple[str, str]]:
    return report.diagnosis.failed


def _one_line(text: str) -> str:
    """Return one line without control characters, which a trace from anyone may hold."""
    line = " ".join(text.split()) if "\n" in text else text
    return printable(line)
