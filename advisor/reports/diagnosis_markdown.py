"""A diagnosis as Markdown, to be pasted into an issue or a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.finding import Finding
from gpuadvisor.reports import diagnosis_wording as wording
from gpuadvisor.reports.diagnosis_report import MOST_AT_TOP, DiagnosisReport
from gpuadvisor.reports.markdown_parts import code, details, table, text


def diagnosis_markdown(report: DiagnosisReport) -> str:
    """Return the diagnosis as GitHub-flavoured Markdown."""
    name, _, ran = wording.subject(report).removeprefix(report.name).partition(": ")
    parts = [
        f"### {code(report.name)}\n\n{text(name + ran)}.\n\n**{text(wording.outcome(report))}**",
        *what_to_fix(report),
        *(f"**Note** {text(note)}" for note in report.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def what_to_fix(report: DiagnosisReport, level: str = "####") -> list[str]:
    """Return the findings, the first ones open, and what was not measured."""
    found, others = report.worth_fixing[:MOST_AT_TOP], report.worth_fixing[MOST_AT_TOP:]
    symptoms = [each for each in report.diagnosis.findings if each.hidden_by is not None]
    failed = [f"The rule {code(rule)} failed: {text(why)}." for rule, why in _failed(report)]
    return [
        *(_finding(report, level, number, each) for number, each in enumerate(found, 1)),
        _folded("More to fix", others),
        _folded("Symptoms of what is above", symptoms),
        _folded("Good to know", report.remarks),
        _not_measured(report),
        *failed,
    ]


def _finding(report: DiagnosisReport, level: str, number: int, finding: Finding) -> str:
    evidence = "; ".join(map(wording.figure, finding.evidence))
    worth = wording.worth(finding, report.diagnosis, wording.is_of_kernel(report, finding))
    command, others = wording.trial(report, finding)
    then = f", then {others}" if others else ""
    rows = [
        ("Where", text(wording.where(finding))),
        ("Evidence", text(evidence)),
        ("Worth", text(worth)),
        ("How it is estimated", text(finding.method)),
        ("What to do", text(finding.advice)),
        ("Try it", code(command) + text(then) if command else ""),
        ("Why", code(f"gpuadvisor explain {finding.rule}")),
    ]
    title = f"{number}. {text(wording.sentence(finding.summary))} ({finding.severity})"
    return f"{level} {title}\n\n" + table(("", ""), [row for row in rows if row[1]], right=False)


def _folded(title: str, found: Sequence[Finding]) -> str:
    rows = [
        (code(each.rule), text(each.summary), text(wording.where(each)),
         code(each.hidden_by) if each.hidden_by else "")
        for each in found
    ]  # fmt: skip
    header: tuple[str, ...] = ("Rule", "What", "Where", "Symptom of")
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]  # type: ignore[misc]
    return details(title, table(header, rows, right=False)) if rows else ""


def _not_measured(report: DiagnosisReport) -> str:
    rows = [
        (code(each.rule), text(each.why), code(wording.way(report, how)))
        for how, rules in report.ways_to_measure.items()
        for each in rules
    ]
    if not rows:
        return ""
    title = f"What {len(rows)} rules could not look at"
    return details(title, table(("Rule", "What is missing", "How to measure it"), rows, False))


def _failed(report: DiagnosisReport) -> Sequence[tuple[str, str]]:
    return report.diagnosis.failed
