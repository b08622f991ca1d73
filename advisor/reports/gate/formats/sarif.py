"""SARIF 2.1.0, for code scanning: what failed or stayed open, at the script; what is slower, at
its place; and what rules find in the new version only.

Where nothing could be compared, it says so as a notification of a run that did not succeed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuadvisor import version
from gpuadvisor.reports.diagnosis.sarif import LEVELS as FINDING_LEVELS
from gpuadvisor.reports.diagnosis.sarif import Json, sarif_text, uri_of
from gpuadvisor.reports.gate.explanation import cause_sentence
from gpuadvisor.reports.gate.outcome import Case, Outcome, cases, plain

FILE = "gpuadvisor-gate.sarif"
LEVELS = {"fail": "error", "inconclusive": "warning"}


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the document."""
    results: list[Json] = []
    rules: dict[str, Json] = {}
    for outcome in outcomes:
        for case in cases(outcome):
            if case.ending in LEVELS:
                rules.setdefault(f"gate_{case.key}", _rule(case.key, case.title))
                results.append(_result(outcome, case))
        for rule, result in _explained(outcome):
            rules.setdefault(rule["id"], rule)
            results.append(result)
    for result in results:
        result["ruleIndex"] = list(rules).index(result["ruleId"])
    stopped = [
        {"level": "error", "message": {"text": plain(f"{each.name}: {each.why}.")}}
        for each in outcomes
        if each.found is None
    ]
    run: Json = {"executionSuccessful": not stopped, "toolExecutionNotifications": stopped}
    return sarif_text(version.__version__, list(rules.values()), results, invocations=[run])


def _explained(outcome: Outcome) -> Iterator[tuple[Json, Json]]:
    """Yield rule and result of what is slower at a known place, and of what is found there now."""
    explanation = outcome.found.explanation if outcome.found else None
    if explanation is None:
        return
    slower = "A function or kernel takes longer than in the version that was compared with."
    for cause in explanation.causes:
        if cause.source and cause.more_ms > 0:
            words = f"{outcome.name}: {cause_sentence(cause, explanation)}."
            key = f"{cause.source.partition(':')[0]}:{cause.name}"
            yield (
                _described("gate_cause", slower, slower),
                _at(outcome, "gate_cause", "warning", words, cause.source, key),
            )
    for finding in explanation.findings:
        if finding.source:
            words = f"{outcome.name}, new: {finding.summary.rstrip('.')}. {finding.advice}"
            title = f"{finding.rule.replace('_', ' ').capitalize()}."
            level, key = FINDING_LEVELS[finding.severity], f"{finding.rule}:{finding.scope}"
            yield (
                _described(finding.rule, title, finding.method),
                _at(outcome, finding.rule, level, words, finding.source, key),
            )


def _at(outcome: Outcome, rule: str, level: str, words: str, source: str, key: str) -> Json:
    file, _, line = source.rpartition(":")
    if not line.isdecimal():
        file, line = source, "1"
    region = {"startLine": max(int(line), 1)}
    place = {"artifactLocation": {"uri": uri_of(file)}, "region": region}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": plain(words)},
        "partialFingerprints": {"benchmark/v1": f"{plain(outcome.name)}:{plain(key)}"},
        "locations": [{"physicalLocation": place}],
    }


def _rule(key: str, title: str) -> Json:
    text = f"{title} is compared between two versions of a script, in pairs of runs."
    return _described(f"gate_{key}", f"{title} got worse.", text)


def _described(name: str, title: str, text: str) -> Json:
    return {
        "id": name,
        "name": name,
        "shortDescription": {"text": title},
        "help": {"text": text, "markdown": text},
        "properties": {"tags": ["performance"]},
    }


def _result(outcome: Outcome, case: Case) -> Json:
    result: Json = {
        "ruleId": f"gate_{case.key}",
        "level": LEVELS[case.ending],
        "message": {"text": plain(f"{outcome.name}: {case.why}.")},
        # One alert for each benchmark and metric, whatever figures its sentence names.
        "partialFingerprints": {"benchmark/v1": f"{plain(outcome.name)}:{case.key}"},
    }
    if outcome.script:
        place = {"artifactLocation": {"uri": uri_of(outcome.script)}, "region": {"startLine": 1}}
        result["locations"] = [{"physicalLocation": place}]
    return result
