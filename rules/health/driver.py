"""Nothing can be read of any GPU: the driver is absent, was replaced under us, or hangs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import SLOW, STARTING, Event, Frame
from gpuadvisor.rules.alert_states import AlertStates, Message


class Driver:
    """The event of full frames that name a problem; ends with the first one that names none.

    It is one event, whatever the problem turns into meanwhile: that is its new message. A driver
    that has just been started says nothing yet, which is neither, as is one that is as slow as it
    was.
    """

    kind: ClassVar[str] = "driver"
    kinds = (kind,)

    def __init__(self) -> None:
        self._states = AlertStates(self.kind)

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if not frame.full or frame.problem in (STARTING, SLOW):
            return
        if frame.problem is None and not self._states.known:
            return  # all is well, and was: nearly always
        message = Message(frame.problem or "", Severity.ERROR)
        yield from self._states.update(frame.time_s, frame.problem is not None, lambda: message)
        yield from self._states.reword(message.text)


EVENTS = (Driver,)
