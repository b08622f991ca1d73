"""The daemon's knowledge of this moment, for threads that answer others while it goes on."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.rules.alert_states import UNSEEN
from gpuadvisor.rules.conditions import Conditions


class Figures:
    """Written by the daemon's loop alone; others read while they hold `lock`, for milliseconds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._conditions = Conditions()
        self.frames = 0
        self.waiting = 0
        """The number of frames that the store does not have yet."""
        self.began: Counter[str] = Counter()
        """The number of events since the start, by kind."""
        self.xids: Counter[tuple[str, int]] = Counter()
        """The number of Xid errors since the start, by the GPU's UUID and the error's number."""
        self.last_xid: dict[str, int] = {}
        """The number of the newest Xid error of each GPU (UUID) that had one since the start."""

    @property
    def latest(self) -> Latest:
        return self._conditions.latest

    @property
    def open(self) -> list[Event]:
        return self._conditions.open

    def observe(self, frame: Frame) -> list[Event]:
        """Take in a frame; return the events that began or ended with it."""
        with self.lock:
            self.frames += 1
            before = {event.identity for event in self.open}
            events = self._conditions.observe(frame)
            self._count(event for event in events if event.identity not in before)
            return events

    def note(self, events: Iterable[Event]) -> None:
        """Count events of the daemon itself."""
        with self.lock:
            self._count(events)

    def close(self, time_s: float) -> list[Event]:
        """End the events that last, of which nobody sees whether they are over; return them."""
        with self.lock:
            ended = self._conditions.close(time_s)
        return [replace(event, data={**event.data, UNSEEN: 1}) for event in ended]

    def _count(self, events: Iterable[Event]) -> None:
        for event in events:
            self.began[event.kind] += 1
            if event.kind == "xid" and event.gpu is not None:
                number = int(event.data["xid"])
                self.xids[event.gpu, number] += 1
                self.last_xid[event.gpu] = number
