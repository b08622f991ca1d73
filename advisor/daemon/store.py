"""The store that the daemon writes: where it is, who writes it, and what is on its way into it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.errors import StoreError

if TYPE_CHECKING:
    from gpuadvisor.daemon import configuration
    from gpuadvisor.storage.telemetry.retention import Retention

LOG = logging.getLogger(__name__)
MAX_FULL_FRAMES = 300
"""Five minutes of full frames, about 60 kB each with 8 GPUs: 18 MB of the daemon's 80."""
MAX_EVENTS = 10_000


def store_folder() -> Path:
    """Return the folder of the telemetry store, which may not exist.

    StoreError where it may not be looked into.
    """
    from gpuadvisor.storage.home import readable_folder, readable_home

    return readable_folder(readable_home() / "telemetry")


def running(folder: Path) -> int | None:
    """Return the number of the process that writes the store; None where none does."""
    from gpuadvisor.storage.telemetry.reader import TelemetryReader

    if not folder.is_dir():
        return None
    return TelemetryReader(folder).writer_process()


def kept(configured: configuration.Retention) -> Retention:
    """Return what the store keeps, as it is configured."""
    from gpuadvisor.storage.telemetry.retention import Retention

    return Retention(configured.raw_s, configured.minutes_s, configured.command_lines)


class Writer(Protocol):
    """The part of a TelemetryWriter that a backlog needs."""

    kept: Retention

    def append(self, frames: Sequence[Frame], events: Sequence[Event] = ()) -> None:
        """Store all of it or, with a StoreError, nothing."""

    def tend(self) -> None:
        """Do the upkeep that is due about once a minute."""

    def take_damaged(self) -> Mapping[str, str]:
        """Return what was set aside since the last call: a sentence for each, by file name."""

    @property
    def paused(self) -> str | None:
        """Why raw rows are not stored now; None where they are."""


class Backlog:
    """Frames and events on their way into the store."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._frames: deque[Frame] = deque()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._failure: Event | None = None
        self._pause: Event | None = None
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: Frame, events: Iterable[Event]) -> None:
        """Add a frame with its events, for `store` to write."""
        self._frames.append(frame)
        self._events.extend(events)

    def add_events(self, events: Iterable[Event]) -> None:
        """Add events that came with no frame."""
        self._events.extend(events)

    def keep(self, configured: configuration.Retention) -> None:
        """Keep from now on what is configured."""
        self._writer.kept = kept(configured)

    def store(self, time_s: float, *, tend: bool = False) -> list[Event]:
        """Write what waits; return the events about the store itself, which wait as well."""
        events: list[Event] = []
        try:
            self._writer.append(list(self._frames), list(self._events))
            self._frames.clear()
            self._events.clear()
            if tend:
                self._writer.tend()
        except StoreError as error:
            events += self._failed(time_s, str(error))
        else:
            events += self._worked(time_s)
        events += self._paused(time_s)
        events += [
            Event("store", time_s, said, Severity.ERROR, ended_s=time_s, key=f"damaged {name}")
            for name, said in self._writer.take_damaged().items()
        ]
        self._events.extend(events)
        return events

    def close(self, time_s: float) -> list[Event]:
        """Return the events about the store with their end, as the daemon ends."""
        ended = [_over(event, time_s) for event in (self._failure, self._pause) if event]
        self._failure = self._pause = None
        return ended

    def _failed(self, time_s: float, reason: str) -> list[Event]:
        # All fast frames are dropped, and the oldest full ones beyond MAX_FULL_FRAMES.
        full = [frame for frame in self._frames if frame.full]
        self._dropped += max(len(full) - MAX_FULL_FRAMES, 0)
        self._frames = deque(full[-MAX_FULL_FRAMES:])
        if self._failure is not None:
            return []
        self._failure = Event("store", time_s, reason, Severity.ERROR)
        return [self._failure]

    def _worked(self, time_s: float) -> list[Event]:
        if self._failure is None:
            return []
        lost, self._dropped = self._dropped, 0
        if lost:
            LOG.error("%s seconds of telemetry are lost, as the store failed for too long", lost)
        ended = replace(_over(self._failure, time_s), data={"seconds_lost": lost})
        self._failure = None
        return [ended]

    def _paused(self, time_s: float) -> list[Event]:
        reason, before = self._writer.paused, self._pause
        if reason is not None and before is None:
            self._pause = Event("store", time_s, reason, Severity.ERROR, key="paused")
            return [self._pause]
        if reason is None and before is not None:
            self._pause = None
            return [_over(before, time_s)]
        return []


def _over(event: Event, time_s: float) -> Event:
    return replace(event, ended_s=max(time_s, event.began_s))
