"""The driver reported an Xid error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.alert_states import Condition
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, of_each_gpu
from gpuadvisor.rules.requirements import TELEMETRY
from gpuadvisor.rules.rule import Rule, RuleResult

KIND = "xid"
"""The kind of the events that say so."""
EVENTS: tuple[type[Condition], ...] = ()
"""None of its own: the collector reports these errors as they come."""
CATALOGUE_URL = "https://docs.nvidia.com/deploy/xid-errors/"

RULE = Rule(Category.HEALTH, needs=(TELEMETRY,))


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find the errors of each GPU, one claim for each number."""
    events = evidence.telemetry.events if evidence.telemetry is not None else ()
    ours = [each for each in events if each.kind == KIND and each.gpu == window.gpu.uuid]
    last = {each.key: each for each in ours}
    for number, count in sorted(Counter(each.key for each in ours).items()):
        times = "" if count == 1 else f" {count} times"
        severity = last[number].severity
        yield RuleResult(
            f"{called(window.gpu)} had Xid error {number}{times}",
            (Figure("xid", number), Figure("errors", count, "", 1)),
            f"{last[number].message.rstrip('.')}. All numbers: {CATALOGUE_URL}.",
            severity=Severity.CRITICAL if severity is Severity.ERROR else severity,
        )
