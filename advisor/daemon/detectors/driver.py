"""A driver of which nothing can be read: absent, replaced under us, or not answering.

Begins with the first frame that has a problem and ends with the first whole one that has none; a
problem that turns into another one is another event. A driver that has just been started says
nothing yet, which is neither.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import Episodes, Wording
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import STARTING, Event, Frame, Severity


class Detector:
    """Watches the problem of whole frames."""

    def __init__(self) -> None:
        self._episodes = Episodes("driver")
        self._problem: str | None = None

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if not frame.whole or frame.problem == STARTING:
            return
        problem, before = frame.problem, self._problem
        self._problem = problem

        def wording() -> Wording:
            return Wording(problem or "", Severity.ERROR)

        if problem is None or (before is not None and before != problem):
            yield from self._episodes.see(frame.time_s, False, wording)
        if problem is not None:
            yield from self._episodes.see(frame.time_s, True, wording)
