"""Nothing was measured for a while, or the clock was set back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.domain.telemetry_window import SET_BACK_S
from gpuadvisor.printable import duration

LONGEST_S = 5.0
"""Whole frames come every second, and every sampler that hangs is noticed after two."""


class Gap:
    """The event of a time without full frames, seen when it is over.

    A clock that was set back by more than `SET_BACK_S` is an event without length.
    """

    kind: ClassVar[str] = "gap"
    kinds = (kind,)

    def __init__(self) -> None:
        self._last_s: float | None = None

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if not frame.full:
            return
        last_s, self._last_s = self._last_s, frame.time_s
        if last_s is None or any(event.kind == self.kind for event in frame.events):
            return  # a damaged recording says so itself
        passed_s = frame.time_s - last_s
        if passed_s > LONGEST_S:
            yield Event(
                self.kind,
                last_s,
                f"Nothing was measured for {duration(passed_s)}: the machine slept, its clock was"
                " set, or gpuadvisor was held up.",
                Severity.WARNING,
                ended_s=frame.time_s,
                data={"seconds": passed_s},
            )
        elif passed_s < -SET_BACK_S:
            yield Event(
                self.kind,
                frame.time_s,
                f"The clock was set back by {duration(-passed_s)}: times before and after overlap.",
                Severity.WARNING,
                ended_s=frame.time_s,
                key="clock",
                data={"seconds": passed_s},
            )


EVENTS = (Gap,)
