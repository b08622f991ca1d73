"""What the rules about the machine say of the last minute; the key is the rule's name.

Begins when a rule has spoken for ten seconds, and ends when it was silent for half a minute. What
another detector tells of already is left to it: that one is sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpuadvisor.daemon.episodes import Episodes, Wording
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Event, Frame, Severity
from gpuadvisor.domain.telemetry_tally import RollingWindow

if TYPE_CHECKING:
    from gpuadvisor.domain.finding import Diagnosis, Finding

TOLD_BY = {
    "ecc_errors": "ecc",
    "gpu_memory_full": "memory_full",
    "hardware_slowdown": "throttling",
    "pcie_degraded": "pcie_downgrade",
    "power_capped": "throttling",
    "row_remap": "remap_pending",
    "thermal_throttling": "throttling",
    "xid": "xid",
}
"""Rules to the kind of the events that say the same."""
EVERY_S = 10.0
"""Between two looks, each of which takes some 5 ms for 8 GPUs: what is of a minute need not be
known sooner."""
BEGIN_AFTER_S = 10.0
END_AFTER_S = 30.0
"""Half of the window: a share near a threshold comes and goes with single samples."""
SEVERITIES = {
    "info": Severity.INFO,
    "notice": Severity.INFO,
    "warning": Severity.WARNING,
    "critical": Severity.WARNING,
}
"""What is told here costs time, however much; what breaks something has detectors of its own."""


class Detector:
    """Keeps the last minute, and asks the rules about it every few seconds."""

    def __init__(self) -> None:
        self._window = RollingWindow()
        self._episodes = Episodes("finding", begin_after_s=BEGIN_AFTER_S, end_after_s=END_AFTER_S)
        self._lasting: set[tuple[str, str]] = set()
        """GPUs (UUID) and rules that spoke, and were not silent for long enough since."""
        self._asked_s: float | None = None

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        self._window.add(frame)
        if frame.gpus is not None:
            yield from self._forget({gpu.uuid for gpu in frame.gpus}, frame.time_s)
        if not frame.whole or not self._is_due(frame.time_s):
            return
        self._asked_s = frame.time_s
        diagnosis = self.diagnosis()
        if diagnosis is None:
            return
        spoken = _by_gpu(diagnosis, latest)
        unknown = {each.rule for each in diagnosis.not_measured}
        for gpu, rule in sorted(self._lasting | spoken.keys()):
            finding = spoken.get((gpu, rule))
            holds = True if finding else None if rule in unknown else False
            yield from self._see(frame.time_s, gpu, rule, holds, finding)

    def diagnosis(self) -> Diagnosis | None:
        """Return all that the rules say of the last minute; None before the first frame."""
        from gpuadvisor.rules.engine import diagnose
        from gpuadvisor.rules.evidence import Evidence
        from gpuadvisor.rules.registry import load_health_rules

        window = self._window.window()
        if window is None:
            return None
        return diagnose(Evidence(telemetry=window), load_health_rules())

    def _is_due(self, time_s: float) -> bool:
        if self._asked_s is None:  # the first look is not worth its time: nothing lasted so far
            self._asked_s = time_s
        return not 0 <= time_s - self._asked_s < EVERY_S

    def _see(
        self, time_s: float, gpu: str, rule: str, holds: bool | None, finding: Finding | None
    ) -> Iterator[Event]:
        def wording() -> Wording:
            assert finding is not None  # only what holds begins
            return _wording(finding)

        yield from self._episodes.see(time_s, holds, wording, gpu, rule)
        if self._episodes.has(gpu, rule):
            self._lasting.add((gpu, rule))
        else:
            self._lasting.discard((gpu, rule))

    def _forget(self, listed: set[str], time_s: float) -> Iterator[Event]:
        for gpu in {gpu for gpu, _ in self._lasting} - listed:
            yield from self._episodes.forget(gpu, time_s)
        self._lasting = {each for each in self._lasting if each[0] in listed}


def _by_gpu(diagnosis: Diagnosis, latest: Latest) -> dict[tuple[str, str], Finding]:
    """Return what no other detector tells, by the GPU's UUID and the rule."""
    from gpuadvisor.rules.gpus import scope

    uuids = {scope(gpu): gpu.uuid for gpu in latest.gpus}
    return {
        (uuids[finding.scope], finding.rule): finding
        for finding in diagnosis.shown
        if finding.rule not in TOLD_BY and finding.scope in uuids
    }


def _wording(finding: Finding) -> Wording:
    worth = finding.improvement_pct
    costs = (
        ""
        if worth is None or worth.high < 1
        else f", which may cost up to {worth.high:.0f} % of its time at work"
    )
    figures = {each.metric: each.value for each in finding.evidence}
    return Wording(
        f"{finding.summary}{costs}. {finding.advice}",
        SEVERITIES[finding.severity],
        figures if worth is None else {**figures, "improvement_pct": worth.middle},
    )
