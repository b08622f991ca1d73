"""Nothing can be read of any GPU: the driver is absent, was replaced under us, or hangs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import STARTING, Event, Frame
from gpuadvisor.rules.alert_states import AlertStates, Message


class Driver:
    """The event of a problem that full frames name; ends with the first one that names none.

    A problem that turns into another one is another event. A driver that has just been started
    says nothing yet, which is neither.
    """

    kind: ClassVar[str] = "driver"

    def __init__(self) -> None:
        self._states = AlertStates(self.kind)
        self._problem: str | None = None

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if not frame.full or frame.problem == STARTING:
            return
        message = partial(Message, frame.problem or "", Severity.ERROR)
        if frame.problem != self._problem:
            yield from self._states.update(frame.time_s, False, message)
        if frame.problem is not None:
            yield from self._states.update(frame.time_s, True, message)
        self._problem = frame.problem


EVENTS = (Driver,)
