"""What was on another machine, as its daemon's endpoint tells: a `Past` over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any
from urllib.parse import quote

import msgspec

from gpuadvisor.daemon.endpoint.answer import LATEST_S
from gpuadvisor.daemon.endpoint.client import RemoteError, fetched, harmless, stranger
from gpuadvisor.daemon.endpoint.hosts import Host
from gpuadvisor.daemon.endpoint.past_answer import PATH, VERSION, Answer, Question
from gpuadvisor.domain.moment import Moment
from gpuadvisor.domain.severity import EVENT_SEVERITIES
from gpuadvisor.domain.telemetry import Event, Gpu
from gpuadvisor.domain.timeline import Timeline, TimelineRequest
from gpuadvisor.printable import brief, printable


class RemotePast:
    """Asks for each answer anew, in at most some seconds; RemoteError where there is none."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def span(self) -> tuple[float, float] | None:
        """Return the Unix times between which something is known; None where nothing is."""
        found: tuple[float, float] | None
        found = self._ask(Question("span"), tuple[float, float] | None)
        return found

    def all_gpus(self) -> tuple[Gpu, ...]:
        """Return every GPU of which something is known."""
        found: tuple[Gpu, ...] = self._ask(Question("all_gpus"), tuple[Gpu, ...])
        return found

    def timelines(self, wanted: TimelineRequest) -> dict[str, Timeline]:
        """Return a metric by the device's name."""
        found: dict[str, Timeline]
        found = self._ask(Question("timelines", *astuple(wanted)), dict[str, Timeline])
        for each in found.values():
            _check(self._host, each.metric == wanted.metric and each.step_s > 0)
            _check(self._host, _is_date(each.begin_s) and _is_date(each.end_s))
        _check(self._host, found.keys() >= set(wanted.devices or ()))
        return found

    def moment(self, time_s: float) -> Moment:
        """Return what was known at a Unix time."""
        found: Moment = self._ask(Question("moment", since_s=time_s), Moment)
        self._check_events(found.events)
        for readings in found.readings.values():
            for each in readings.values():
                _check(self._host, _is_date(each.since_s))
                _check(self._host, each.value is not None or not each.is_ok)
        _check(self._host, _is_date(found.time_s))
        return found

    def events(
        self, since_s: float, until_s: float | None = None, limit: int | None = None
    ) -> list[Event]:
        """Return the events that began or lasted in the span, the oldest first."""
        asked = Question("events", since_s=since_s, until_s=until_s, limit=limit)
        found: list[Event] = self._ask(asked, list[Event])
        self._check_events(found)
        return found

    def _check_events(self, events: Sequence[Event]) -> None:
        for each in events:
            _check(self._host, _is_date(each.began_s))
            _check(self._host, each.ended_s is None or _is_date(each.ended_s))
            _check(self._host, each.severity in EVENT_SEVERITIES)

    def _ask(self, question: Question, kind: Any) -> Any:
        host = self._host
        query = quote(msgspec.json.encode(question))
        body = fetched(host, f"{PATH}?q={query}")
        try:
            answer = msgspec.json.decode(body, type=Answer)
            if answer.problem is not None:
                raise RemoteError(f"{host.name}: {printable(answer.problem)}")
            if answer.version <= VERSION:
                return msgspec.convert(harmless(answer.found), kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise stranger(host, brief(str(error))) from None
        raise RemoteError(f"{host.name} tells its past as this gpuadvisor cannot read: update it.")


def _is_date(time_s: float) -> bool:
    return 0 <= time_s <= LATEST_S


def _check(host: Host, is_right: bool) -> None:
    if not is_right:
        raise stranger(host, "a past that cannot be")
