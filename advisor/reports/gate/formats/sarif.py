"""SARIF 2.1.0, for code scanning: what failed or stayed open, at the script; what is slower, at
its place; and what rules find in the new version only.

Where nothing could be compared, it says so as a notification of a run that did not succeed.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor import version
from gpuadvisor.reports.diagnosis_sarif import Json, sarif_text, uri_of
from gpuadvisor.reports.gate.outcome import Case, Outcome, cases, plain

FILE = "gpuadvisor-gate.sarif"
LEVELS = {"fail": "error", "inconclusive": "warning"}


def render(outcomes: Sequence[Outcome]) -> str:
    """Return the document."""
    told = [(outcome, case) for outcome in outcomes for case in cases(outcome)]
    shown = [(outcome, case) for outcome, case in told if case.ending in LEVELS]
    titles = {case.key: case.title for _, case in shown}
    rules = [_rule(key, title) for key, title in titles.items()]
    results = [_result(outcome, case, list(titles).index(case.key)) for outcome, case in shown]
    for each in (placed for outcome in outcomes for placed in _placed(outcome)):
        known = [rule["id"] for rule in rules]
        if each["ruleId"] not in known:
            rules.append(_rule_of(each["ruleId"], PLACED[each["ruleId"]]))
            known.append(each["ruleId"])
        results.append({**each, "ruleIndex": known.index(each["ruleId"])})
    stopped = [
        {"level": "error", "message": {"text": plain(f"{each.name}: {each.why}.")}}
        for each in outcomes
        if each.found is None
    ]
    run: Json = {"executionSuccessful": not stopped, "toolExecutionNotifications": stopped}
    return sarif_text(version.__version__, rules, results, invocations=[run])


def _rule(key: str, title: str) -> Json:
    text = f"{title} is compared between two versions of a script, in pairs of runs."
    return {
        "id": f"gate_{key}",
        "name": f"gate_{key}",
        "shortDescription": {"text": f"{title} got worse."},
        "help": {"text": text, "markdown": text},
        "properties": {"tags": ["performance"]},
    }


def _result(outcome: Outcome, case: Case, index: int) -> Json:
    result: Json = {
        "ruleId": f"gate_{case.key}",
        "ruleIndex": index,
        "level": LEVELS[case.ending],
        "message": {"text": plain(f"{outcome.name}: {case.why}.")},
        # One alert for each benchmark and metric, whatever figures its sentence names.
        "partialFingerprints": {"benchmark/v1": f"{plain(outcome.name)}:{case.key}"},
    }
    if outcome.script:
        place = {"artifactLocation": {"uri": uri_of(outcome.script)}, "region": {"startLine": 1}}
        result["locations"] = [{"physicalLocation": place}]
    return result
