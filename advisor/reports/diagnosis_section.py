"""What to fix first: the section of a profile's page that says what the rules found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuadvisor.domain.finding import Finding
from gpuadvisor.reports import diagnosis_wording as wording
from gpuadvisor.reports.diagnosis_report import MOST_AT_TOP, DiagnosisReport, of_profile
from gpuadvisor.reports.html_sections import NOTHING, section
from gpuadvisor.reports.markup import Markup, element, join
from gpuadvisor.reports.profile_parts import as_table, lead, ticked, words_table
from gpuadvisor.reports.profile_report import ProfileReport

_LONGEST = 1000
"""Characters of a sentence: a rule may put a kernel's endless name into it."""


def what_to_fix(profile: ProfileReport) -> Markup:
    """Return the findings, those at the top open and the rest folded."""
    report = of_profile(profile)
    if report is None:
        return NOTHING
    symptoms = [each for each in report.diagnosis.findings if each.hidden_by is not None]
    return section(
        "What to fix first",
        lead(wording.found(report)),
        *(_finding(report, each) for each in report.worth_fixing[:MOST_AT_TOP]),
        _folded("More to fix", report.worth_fixing[MOST_AT_TOP:]),
        _folded("Symptoms of what is above", symptoms),
        _folded("Good to know", report.remarks),
        _not_measured(report),
        *(element("p", f"The rule {rule} failed: {why}") for rule, why in report.diagnosis.failed),
    )


def _finding(report: DiagnosisReport, finding: Finding) -> Markup:
    severity = element("span", str(finding.severity))
    rows = (
        element("div", element("dt", label), element("dd", value))
        for label, value in _rows(report, finding)
        if value
    )
    return element(
        "article",
        element("h3", severity, ticked(wording.sentence(finding.summary)[:_LONGEST])),
        element("dl", *rows),
        class_=f"finding {finding.severity}",
    )


def _rows(report: DiagnosisReport, finding: Finding) -> Iterator[tuple[str, str]]:
    of_kernel = wording.is_of_kernel(report, finding)
    command, others = wording.trial(report, finding)
    yield "Where", wording.where(finding)[:_LONGEST]
    yield "Evidence", "; ".join(map(wording.figure, finding.evidence))[:_LONGEST]
    yield "Worth", wording.worth(finding, report.diagnosis, of_kernel)
    yield "Estimated", finding.method[:_LONGEST]
    yield "What to do", ticked(finding.advice[:_LONGEST])
    if command:
        yield "Try it", join([element("code", command), f", then {others}" if others else ""])
    yield "Why", element("code", f"gpuadvisor explain {finding.rule}")


def _folded(title: str, found: Sequence[Finding]) -> Markup:
    rows = [
        [
            element("code", each.rule),
            ticked(each.summary[:_LONGEST]),
            wording.where(each)[:_LONGEST],
        ]
        for each in found
    ]
    if not rows:
        return NOTHING
    return as_table(words_table(["Rule", "What", "Where"], rows), f"{title}: {len(rows)}")


def _not_measured(report: DiagnosisReport) -> Markup:
    rows = [
        [
            element("code", each.rule),
            ticked(each.why[:_LONGEST]),
            element("code", wording.way(report, how)),
        ]
        for how, rules in report.ways_to_measure.items()
        for each in rules
    ]
    if not rows:
        return NOTHING
    body = words_table(["Rule", "What is missing", "How to measure it"], rows)
    return as_table(body, f"What {len(rows)} rules could not look at")
