"""A diagnosis for machines. Every field is explained in docs/json.md."""

from __future__ import annotations

from typing import Any

from gpuadvisor.domain.finding import Diagnosis, Figure, Finding, Span
from gpuadvisor.reports import strict_json
from gpuadvisor.reports.diagnosis_report import DiagnosisReport

VERSION = 1
"""Version of the JSON: grows when a field goes or changes its meaning, not when one is added."""

Json = dict[str, Any]


def diagnosis_json_text(report: DiagnosisReport) -> str:
    """Return the diagnosis as indented JSON."""
    return strict_json.text(diagnosis_json(report))


def diagnosis_json(report: DiagnosisReport) -> Json:
    """Return what the rules say of a run, and which run that was."""
    return {
        "version": VERSION,
        "kind": "diagnosis",
        "profile": report.stored,
        "file": report.file or None,
        "script": list(report.script) or None,
        "source": report.source,
        **said(report.diagnosis),
        "notes": list(report.notes),
    }


def said(diagnosis: Diagnosis) -> Json:
    """Return what the rules say."""
    return {
        "run_ms": diagnosis.run_ms,
        "together_pct": _span(diagnosis.together_pct),
        "findings": [finding(each) for each in diagnosis.findings],
        "not_measured": [
            {"rule": each.rule, "why": each.why, "how": each.how} for each in diagnosis.not_measured
        ],
        "failed": [{"rule": rule, "error": words} for rule, words in diagnosis.failed],
    }


def finding(found: Finding) -> Json:
    """Return one finding."""
    return {
        "rule": found.rule,
        "category": str(found.category),
        "severity": str(found.severity),
        "scope": str(found.scope),
        "scope_kind": str(found.scope.kind),
        "summary": found.summary,
        "evidence": [_figure(each) for each in found.evidence],
        "improvement_pct": _span(found.improvement_pct),
        "saving_ms": found.saving_ms,
        "method": found.method,
        "advice": found.advice,
        "knobs": list(found.knobs),
        "source": found.source,
        "hidden_by": found.hidden_by,
    }


def _figure(each: Figure) -> Json:
    return {
        "metric": each.metric,
        "value": each.value,
        "unit": each.unit,
        "threshold": each.threshold,
    }


def _span(span: Span | None) -> Json | None:
    return None if span is None else {"low": span.low, "high": span.high}
