"""Which events are told to whom, when, and how often. How they are sent is in `notices.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuadvisor.daemon.configuration import AlertRule
from gpuadvisor.daemon.notices import Notice, Senders
from gpuadvisor.domain.telemetry import Event, Gpu, Severity

_RANK = {severity: rank for rank, severity in enumerate(Severity)}
Subject = tuple[str, str | None, str]
"""Kind, GPU and key: what is not told again too soon."""
Identity = tuple[str, str | None, str, float]


@dataclass
class _Lasting:
    """An event that lasts, as one rule sees it."""

    event: Event
    told: bool = False
    """Whether its beginning was told, so that its end is as well."""
    settled: bool = False
    """Whether it was told, or kept back because it was told not long ago."""


class Alerts:
    """All rules. Times are Unix seconds, of events and of `now_s` alike."""

    def __init__(self, rules: Sequence[AlertRule], senders: Senders) -> None:
        self._senders = senders
        self._rules = [_Rule(rule) for rule in rules]

    def reconfigure(self, rules: Sequence[AlertRule]) -> None:
        """Take other rules; those that stay as they are remember what they told."""
        known = {each.rule: each for each in self._rules}
        self._rules = [known.get(rule) or _Rule(rule) for rule in rules]
        self._senders.keep(rules)

    def observe(self, events: Iterable[Event], gpus: Sequence[Gpu], now_s: float) -> None:
        """Take in what began or ended, and tell what is due; called about once a second."""
        events = list(events)
        for rule in self._rules:
            for notice in rule.due(events, gpus, now_s):
                self._senders.send(rule.rule, notice)


class _Rule:
    """One rule, and what it has told."""

    def __init__(self, rule: AlertRule) -> None:
        self.rule = rule
        self._lasting: dict[Identity, _Lasting] = {}
        self._told_s: dict[Subject, float] = {}

    def due(self, events: Iterable[Event], gpus: Sequence[Gpu], now_s: float) -> list[Notice]:
        notices: list[Notice] = []
        for event in events:
            if self._concerns(event, gpus):
                notices += self._take(event, gpus, now_s)
        for lasting in self._lasting.values():
            # A clock that was set back must not keep it waiting for hours.
            lasted_s = abs(now_s - lasting.event.began_s)
            if not lasting.settled and lasted_s >= self.rule.for_s:
                lasting.settled = True
                lasting.told = self._may_tell(lasting.event, now_s)
                if lasting.told:
                    notices.append(self._notice("firing", lasting.event, gpus))
        return notices

    def _take(self, event: Event, gpus: Sequence[Gpu], now_s: float) -> list[Notice]:
        if event.ended_s is None:
            self._lasting.setdefault(event.identity, _Lasting(event))
            return []
        lasting = self._lasting.pop(event.identity, None)
        if lasting is None:  # it never lasted, such as an Xid error, so `for` cannot hold it back
            told = self._may_tell(event, now_s)
            return [self._notice("firing", event, gpus)] if told else []
        if lasting.told and self.rule.recovered:
            return [self._notice("recovered", event, gpus)]
        return []

    def _may_tell(self, event: Event, now_s: float) -> bool:
        subject = (event.kind, event.gpu, event.key)
        last_s = self._told_s.get(subject)
        if last_s is not None and abs(now_s - last_s) < self.rule.again_after_s:
            return False
        self._told_s[subject] = now_s
        return True

    def _concerns(self, event: Event, gpus: Sequence[Gpu]) -> bool:
        rule = self.rule
        if rule.kinds and event.kind not in rule.kinds:
            return False
        if _RANK[event.severity] < _RANK[rule.severity]:
            return False
        if not rule.gpus:
            return True
        return event.gpu in rule.gpus or str(_index(event, gpus)) in rule.gpus

    def _notice(self, status: str, event: Event, gpus: Sequence[Gpu]) -> Notice:
        return Notice(self.rule.name, status, event, _index(event, gpus))


def _index(event: Event, gpus: Sequence[Gpu]) -> int | None:
    return next((gpu.index for gpu in gpus if gpu.uuid == event.gpu), None)
