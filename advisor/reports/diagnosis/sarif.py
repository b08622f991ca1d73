"""Findings with a source line as SARIF 2.1.0, which code hosts show beside the line.

Standard: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuadvisor.domain.finding import Finding, Place
from gpuadvisor.domain.severity import Severity
from gpuadvisor.reports import strict_json
from gpuadvisor.reports.diagnosis import finding as finding_wording
from gpuadvisor.reports.diagnosis import wording
from gpuadvisor.reports.diagnosis.report import DiagnosisReport
from gpuadvisor.rules.rule import Loaded

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {
    Severity.CRITICAL: "error",
    Severity.WARNING: "warning",
    Severity.NOTICE: "note",
    Severity.INFO: "none",
}
Json = dict[str, Any]


def diagnosis_sarif(
    report: DiagnosisReport, in_repository: Callable[[str], str | None] = lambda _: None
) -> str:
    """Return the document; findings without a source line, and symptoms, are not in it.

    `in_repository` returns the path from the top of the repository of a file as the profile names
    it, which is what code hosts look for; None where it is not in one.
    """
    found = [each for each in report.diagnosis.shown if place_of(each) is not None]
    used = list(dict.fromkeys(each.rule for each in found))
    rules = {rule.name: rule for rule in report.rules}
    results = [_result(report, each, used.index(each.rule), in_repository) for each in found]
    return sarif_text(report.version, [_rule(name, rules) for name in used], results)


def sarif_text(version: str, rules: Sequence[Json], results: Sequence[Json], **more: Any) -> str:
    """Return a document of one run of gpuadvisor; `more` are further properties of the run."""
    driver = {"name": "gpuadvisor", "semanticVersion": version or "0.0.0", "rules": rules}
    run = {
        "tool": {"driver": driver},
        "results": results,
        "columnKind": "unicodeCodePoints",
        **more,
    }
    return strict_json.text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}) + "\n"


def uri_of(file: str) -> str:
    """Return a file as a URI; a relative one stays so, to the root of the repository."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(str(path), errors="replace")


def place_of(finding: Finding) -> tuple[str, int] | None:
    """Return file and line of a finding."""
    file, _, line = (finding.source or "").rpartition(":")
    return (file, max(int(line), 1)) if file and line.isdecimal() else None


def _rule(name: str, rules: Mapping[str, Loaded]) -> Json:
    rule = rules.get(name)
    title = rule.title if rule is not None else name
    page = rule.page if rule is not None and rule.page else title
    return {
        "id": name,
        "name": name,
        "shortDescription": {"text": f"{title}."},
        "help": {"text": page, "markdown": page},
        "properties": {"tags": ["performance", *([str(rule.rule.category)] if rule else [])]},
    }


def _result(
    report: DiagnosisReport,
    finding: Finding,
    index: int,
    in_repository: Callable[[str], str | None],
) -> Json:
    worth = finding_wording.worth(finding, report.diagnosis, wording.is_of_kernel(report, finding))
    worth = f" Worth {worth}." if worth else ""
    file, line = place_of(finding) or ("", 1)
    uri = uri_of(in_repository(file) or file)
    physical = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
    location: Json = {"physicalLocation": physical}
    if logical := _logical(finding.place):
        location["logicalLocations"] = logical
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": f"{finding_wording.sentence(finding.summary)}{worth} {finding.advice}"},
        "locations": [location],
        "properties": {"scope": str(finding.scope), "method": finding.method},
    }


def _logical(place: Place | None) -> list[Json]:
    """Return the function and the module of a place, as far as they are known."""
    if place is None:
        return []
    named = (("function", place.function), ("module", place.module))
    return [{"fullyQualifiedName": name, "kind": kind} for kind, name in named if name]
