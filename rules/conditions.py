"""All conditions of the machine over the frames of one source: what begins and what ends.

Each file of `health` names in `EVENTS` the classes that make events of its condition. One with a
`RULE` and without `EVENTS` is asked every few seconds about the last minute, and its findings
become events of the kind `finding`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.domain.telemetry_window import RollingWindow
from gpuadvisor.rules.alert_states import Condition, GpuCondition, Message
from gpuadvisor.rules.gpus import scope
from gpuadvisor.rules.registry import load_events, load_rules_without_events, rules_with_events

if TYPE_CHECKING:
    from gpuadvisor.domain.finding import Diagnosis, Finding

LOG = logging.getLogger(__name__)

EVERY_S = 10.0
"""Time between two looks at the rules, each of which takes some 1 ms for 8 GPUs: what is of a
minute need not be known sooner."""


class Conditions:
    """All conditions, over the frames of one source in their order."""

    def __init__(self) -> None:
        self.latest = Latest()
        conditions: list[Condition] = [*load_events(), Findings()]
        self._conditions = sorted(conditions, key=lambda each: each.kinds)
        self._open: dict[tuple[str, str | None, str, float], Event] = {}

    @property
    def open(self) -> list[Event]:
        """What lasts now, oldest first."""
        return sorted(self._open.values(), key=lambda event: event.began_s)

    def observe(self, frame: Frame) -> list[Event]:
        """Take in a frame; return what began or ended, with the collector's own events."""
        self.latest.add(frame)
        events = list(frame.events)
        for condition in tuple(self._conditions):
            try:
                events += list(condition.observe(frame, self.latest))
            except Exception:  # it is left out, as the others must go on
                name = type(condition).__name__
                LOG.exception("the condition %s failed and is left out: report this as a bug", name)
                self._conditions.remove(condition)
        for event in events:
            if event.ended_s is None:
                self._open[event.identity] = event
            else:
                self._open.pop(event.identity, None)
        return events

    def close(self, time_s: float) -> list[Event]:
        """End what still lasts, as nobody looks any more."""
        ended = [replace(event, ended_s=max(time_s, event.began_s)) for event in self.open]
        self._open.clear()
        return ended


class Findings(GpuCondition):
    """The events of findings about the last minute; the key is the rule's name.

    One begins when a rule has spoken for ten seconds, and ends when it was silent for half a
    minute. What has events of its own is left to them: these are sooner.
    """

    kind = "finding"
    begin_after_s = 10.0
    end_after_s = 30.0
    """Half of the window: a share near a threshold comes and goes with single samples."""

    def __init__(self) -> None:
        super().__init__()
        self._window = RollingWindow()
        self._asked_s: float | None = None

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        self._window.add(frame)
        yield from self.forget(frame)
        if frame.problem is not None:
            self.states.pause(frame.time_s)
            return
        if not frame.full:
            return
        if self._asked_s is None:  # the first look is not worth its time: nothing lasted so far
            self._asked_s = frame.time_s
        if 0 <= frame.time_s - self._asked_s < EVERY_S:
            return
        self._asked_s = frame.time_s
        diagnosis = self.diagnosis()
        if diagnosis is None:
            return
        spoken = _by_gpu(diagnosis, latest)
        unknown = {each.rule for each in diagnosis.not_measured}
        for gpu, rule in sorted(self.states.known | spoken.keys(), key=repr):
            finding = spoken.get((gpu, rule))
            holds = True if finding else None if rule in unknown else False
            message = partial(_message, finding)
            yield from self.states.update(frame.time_s, holds, message, gpu, rule)

    def diagnosis(self) -> Diagnosis | None:
        """Return what rules without events say of the last minute; None before the first frame."""
        from gpuadvisor.rules.engine import diagnose
        from gpuadvisor.rules.evidence import Evidence

        window = self._window.window()
        if window is None:
            return None
        return diagnose(Evidence(telemetry=window), load_rules_without_events())


def _by_gpu(diagnosis: Diagnosis, latest: Latest) -> dict[tuple[str | None, str], Finding]:
    """Return the findings without events of their own, by the GPU's UUID and the rule."""
    uuids = {scope(gpu): gpu.uuid for gpu in latest.gpus}
    told = rules_with_events()
    return {
        (uuids[finding.scope], finding.rule): finding
        for finding in diagnosis.shown
        if finding.rule not in told and finding.scope in uuids
    }


def _message(finding: Finding | None) -> Message:
    assert finding is not None  # only what holds begins
    worth = finding.improvement_pct
    costs = (
        ""
        if worth is None or worth.high < 1
        else f", which may cost up to {worth.high:.0f} % of its time at work"
    )
    figures = {each.metric: each.value for each in finding.evidence}
    # What a finding tells costs time, however much; what breaks something has events of its own.
    is_warning = finding.severity.rank >= Severity.WARNING.rank
    return Message(
        f"{finding.summary}{costs}. {finding.advice}",
        Severity.WARNING if is_warning else Severity.INFO,
        figures if worth is None else {**figures, "improvement_pct": worth.middle},
    )
