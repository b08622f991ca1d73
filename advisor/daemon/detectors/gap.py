"""Time in which nothing was measured, and clocks that were set back.

A gap is an event without a present: it is seen when it is over, after more than five seconds
without a whole frame. A clock that was set back by more than a second is one without length.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import duration
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Event, Frame, Severity

LONGEST_S = 5.0
"""Whole frames come every second, and every sampler that hangs is noticed after two."""
SET_BACK_S = 1.0
"""NTP moves clocks by less at a time, or slews them."""


class Detector:
    """Watches the times of whole frames."""

    def __init__(self) -> None:
        self._last_s: float | None = None

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if not frame.whole:
            return
        last_s, self._last_s = self._last_s, frame.time_s
        if last_s is None:
            return
        passed_s = frame.time_s - last_s
        if passed_s > LONGEST_S:
            yield Event(
                "gap",
                last_s,
                f"Nothing was measured for {duration(passed_s)}: the machine slept, its clock was"
                " set, or gpuadvisor was held up.",
                Severity.WARNING,
                ended_s=frame.time_s,
                data={"seconds": passed_s},
            )
        elif passed_s < -SET_BACK_S:
            yield Event(
                "gap",
                frame.time_s,
                f"The clock was set back by {duration(-passed_s)}: times before and after overlap.",
                Severity.WARNING,
                ended_s=frame.time_s,
                key="clock",
                data={"seconds": passed_s},
            )
