"""A diagnosis: on the terminal what a tired engineer has to know, else all that was found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuadvisor.domain.finding import Finding
from gpuadvisor.domain.severity import Severity
from gpuadvisor.reports import figures
from gpuadvisor.reports.diagnosis import finding as finding_wording
from gpuadvisor.reports.diagnosis import wording
from gpuadvisor.reports.diagnosis.report import MOST_AT_TOP, DiagnosisReport
from gpuadvisor.reports.document import (
    Block,
    Bullets,
    Cell,
    Code,
    Column,
    Content,
    Document,
    Folded,
    Item,
    Paragraph,
    Section,
    Table,
    Terms,
)
from gpuadvisor.reports.profile.ranks import ranks_lines, ranks_section
from gpuadvisor.reports.render_markdown import markdown
from gpuadvisor.reports.render_text import LABEL, Line, print_lines

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    Severity.CRITICAL: "bold red",
    Severity.WARNING: "bold yellow",
    Severity.NOTICE: "bold cyan",
    Severity.INFO: "bold",
}
MOST_REMARKS = 3
"""Remarks shown on the terminal where there is nothing to fix."""
_MARGIN = 3
_LONGEST = 1000
"""Characters of a sentence: a rule may put a kernel's endless name into it."""


@dataclass(frozen=True)
class _Term:
    """What is said of a finding under one name."""

    title: str
    label: str
    """The name on the terminal; without one the lines stand below those before."""
    lines: tuple[str, ...]


def diagnosis_markdown(report: DiagnosisReport) -> str:
    """Return the diagnosis as GitHub-flavoured Markdown, for an issue or a pull request."""
    name, _, ran = wording.subject(report).removeprefix(report.name).partition(": ")
    limits = wording.limits(report)
    conclusion = [Paragraph(f"{name}{ran}."), *map(Paragraph, limits)]
    conclusion += [Paragraph(wording.outcome(report), "strong")]
    conclusion += map(Paragraph, wording.account(report))
    sections = [Section("", [*conclusion, *what_to_fix(report)])]
    if report.profile is not None and report.profile.ranks is not None:
        sections.append(ranks_section(report.profile.ranks))
    notes = [each for each in report.notes if finding_wording.sentence(each) not in limits]
    if notes:
        sections.append(Section("Notes", [Bullets(notes)]))
    return markdown(Document((report.name,), sections))


def what_to_fix(report: DiagnosisReport) -> Iterator[Block]:
    """Yield the findings, those at the top open and the rest folded, and what was not measured."""
    for number, each in enumerate(report.worth_fixing[:MOST_AT_TOP], 1):
        yield _item(report, each, number)
    symptoms = [each for each in report.diagnosis.findings if each.hidden_by is not None]
    yield from _folded("More to fix", report.worth_fixing[MOST_AT_TOP:])
    yield from _folded("Symptoms of other findings", symptoms)
    yield from _folded("Good to know", report.remarks)
    missing = [
        (why, names, how)
        for how, rules in report.ways_to_measure.items()
        for why, names in wording.by_reason(rules).items()
    ]
    if missing:
        columns = (
            Column("What is missing", lambda row: row[0][:_LONGEST]),
            Column("Rules", lambda row: Code(", ".join(row[1])), left=True),
            Column("How to measure it", lambda row: Code(row[2]), left=True),
        )
        title = f"What {len(report.not_measured)} rules could not look at"
        yield Folded(title, [Table(missing, columns, "words")])
    for rule, why in report.diagnosis.failed:
        yield Paragraph(f"The rule {rule} failed: {why}")


def _item(report: DiagnosisReport, finding: Finding, number: int) -> Item:
    rows: list[tuple[str, Content]] = []
    for term in _terms(report, finding):
        if term.lines and isinstance(term.lines[0], Code):
            rows.append((term.title, Cell(term.lines[0], term.lines[1:])))
        elif term.lines:
            rows.append((term.title, "; ".join(term.lines)[:_LONGEST]))
    rows.append(("Why", Code(f"gpuadvisor explain {finding.rule}")))
    summary = finding_wording.sentence(finding.summary)[:_LONGEST]
    return Item(number, str(finding.severity), summary, Terms(rows))


def _terms(report: DiagnosisReport, finding: Finding) -> Iterator[_Term]:
    """Yield what is said of a finding; a term without lines says nothing."""
    worth = finding_wording.worth(finding, report.diagnosis, wording.is_of_kernel(report, finding))
    command, others = wording.trial(report, finding)
    trial = (Code(command), *([f"then {others}"] if others else [])) if command else ()
    places = finding_wording.where(finding), finding_wording.comes_from(finding)
    yield _Term("Where", "where", tuple(filter(None, places)))
    yield _Term("Evidence", "evidence", tuple(map(finding_wording.figure, finding.evidence)))
    yield _Term("Worth", "worth", (worth,) if worth else ())
    yield _Term(
        "How it is estimated", "", (how,) if (how := finding_wording.method(finding)) else ()
    )
    yield _Term("What to do", "do", (finding.advice,))
    yield _Term("Try it", "try", trial)


def _folded(title: str, found: Sequence[Finding]) -> Iterator[Folded]:
    if not found:
        return
    columns = [
        Column("Rule", "rule", Code),
        Column("What", "summary", lambda words: words[:_LONGEST], left=True),
        Column("Where", lambda each: finding_wording.where(each)[:_LONGEST], left=True),
    ]
    if any(each.hidden_by for each in found):
        columns.append(Column("Symptom of", lambda each: Code(each.hidden_by or ""), left=True))
    yield Folded(f"{title}: {len(found)}", [Table(found, columns, "words")])


# -- on the terminal -----------------------------------------------------------------------------


def print_diagnosis(console: Console, report: DiagnosisReport, everything: bool = False) -> None:
    """Print it, in colour and wrapped on a terminal, a line each where it is piped."""
    print_lines(console, diagnosis_lines(report, everything))


def diagnosis_lines(report: DiagnosisReport, everything: bool = False) -> Iterator[Line]:
    """Yield what is to be said of a run; all of it where that is asked for."""
    yield Line(wording.subject(report), "bold")
    yield from (Line(each.replace("`", "")) for each in wording.limits(report))
    yield Line(wording.outcome(report))
    yield from (Line(each.replace("`", "")) for each in wording.account(report))
    at_top = report.worth_fixing if everything else report.worth_fixing[:MOST_AT_TOP]
    for number, finding in enumerate(at_top, 1):
        yield Line("")
        yield from _finding_lines(report, finding, f"{number}.")
    yield from _rest(report, everything, is_empty=not at_top)
    if report.profile is not None and report.profile.ranks is not None:
        yield from ranks_lines(report.profile.ranks)
    yield from _not_measured(report, everything)
    for rule, why in report.diagnosis.failed:
        yield Line(f"The rule {rule} failed: {why}", "red")
    if at_top:
        yield Line("")
        yield Line(f"Why, and how it is estimated: gpuadvisor explain {at_top[0].rule}")


def _finding_lines(report: DiagnosisReport, finding: Finding, number: str) -> Iterator[Line]:
    yield Line(f"{number:<{_MARGIN}}{finding.severity}: {finding.rule}", STYLES[finding.severity])
    yield Line(finding_wording.sentence(finding.summary), margin=_MARGIN)
    is_worth = False
    for term in _terms(report, finding):
        if term.label:
            for line in term.lines[:1]:
                yield Line(line, "", term.label, _MARGIN, is_command=isinstance(line, Code))
            yield from (Line(line, margin=_MARGIN + LABEL) for line in term.lines[1:])
        elif is_worth:
            yield from (Line(line, "dim", margin=_MARGIN + LABEL) for line in term.lines)
        is_worth = term.label == "worth" and bool(term.lines)


def _rest(report: DiagnosisReport, everything: bool, is_empty: bool) -> Iterator[Line]:
    """Yield symptoms and remarks, or how many there are of them."""
    if everything:
        symptoms = [(f", of {cause}", each) for cause, found in report.hidden.items()
                    for each in found]  # fmt: skip
        yield from _group("Symptoms of other findings", symptoms)
    if everything or is_empty:
        shown = report.remarks if everything else report.remarks[:MOST_REMARKS]
        yield from _group("Good to know", [("", each) for each in shown])
    if everything:
        return
    words = wording.more(report)
    if words and not (is_empty and len(report.remarks) <= MOST_REMARKS and not report.hidden):
        yield Line("")
        yield Line(f"{words}; --all shows them.")


def _group(title: str, found: Sequence[tuple[str, Finding]]) -> Iterator[Line]:
    """Yield findings on a line each, with what stands behind the rule's name."""
    if found:
        yield Line("")
        yield Line(f"{title}:", "bold")
    for cause, each in found:
        shares = finding_wording.shares_of_kernel(each)
        origin = "" if finding_wording.has_line(each) else finding_wording.comes_from(each)
        about = "; ".join(filter(None, (finding_wording.where(each), origin, shares)))
        words = f"{each.rule}{cause}: {each.summary} ({about})"
        yield Line(words, margin=_MARGIN)


def _not_measured(report: DiagnosisReport, everything: bool) -> Iterator[Line]:
    if not report.diagnosis.not_measured:
        return
    count = figures.count(len(report.diagnosis.not_measured), "rule")
    yield Line("")
    yield Line(f"Not measured, so not known ({count} could not look):", "bold")
    for how, rules in report.ways_to_measure.items():
        if everything:
            yield Line(f"{how}:", margin=_MARGIN)
            for why, names in wording.by_reason(rules).items():
                words = f"{why} ({figures.count(len(names), 'rule')}): {', '.join(names)}"
                yield Line(words, margin=2 * _MARGIN)
        else:
            yield Line(f"{how}: {wording.rules(rules)}", margin=_MARGIN)
