"""The driver reported an Xid error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.alert_states import Condition
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, scope
from gpuadvisor.rules.requirements import TELEMETRY
from gpuadvisor.rules.rule import Rule, RuleResult

KIND = "xid"
"""The kind of the events that say so."""
EVENTS: tuple[type[Condition], ...] = ()
"""None of its own: the collector reports these errors as they come."""
CATALOGUE_URL = "https://docs.nvidia.com/deploy/xid-errors/"

RULE = Rule(Category.HEALTH, needs=(TELEMETRY,))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find the errors of each GPU, one claim for each number."""
    events = evidence.telemetry.events if evidence.telemetry is not None else ()
    for window in gpus_of_run(evidence):
        ours = [each for each in events if each.kind == KIND and each.gpu == window.gpu.uuid]
        for number, count in sorted(Counter(each.key for each in ours).items()):
            last = next(each for each in reversed(ours) if each.key == number)
            is_error = last.severity is Severity.ERROR
            times = "" if count == 1 else f" {count} times"
            yield RuleResult(
                f"{called(window.gpu)} had Xid error {number}{times}",
                (Figure("xid", number), Figure("errors", count, "", 1)),
                f"{last.message.rstrip('.')}. All numbers: {CATALOGUE_URL}.",
                scope=scope(window.gpu),
                severity=Severity.CRITICAL if is_error else last.severity,
            )
