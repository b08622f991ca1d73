"""The store that the daemon writes: where it is, who writes it, and what is on its way into it."""

from __future__ import annotations

import logging
import queue
import threading
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
BATCH = 60
"""Frames written in one go: no more than these wait beyond MAX_FULL_FRAMES."""
FINISH_S = 20.0
"""Seconds that the last write may take, of the 30 that `daemon stop` waits."""


def store_folder() -> Path:
    """Return the folder of the telemetry store, which may not exist.

    StoreError where it may not be looked into.
    """
    from gpuadvisor.storage.home import readable_folder, readable_home

    return readable_folder(readable_home() / "telemetry")


def running(folder: Path) -> int | None:
    """Return the number of the process that writes the store; None where none does."""
    from gpuadvisor.storage.telemetry.lock import writer_process

    return writer_process(folder)


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
    """Frames and events on their way into the store, which a thread of its own writes.

    A file that another program has locked, or a slow disk, holds up that thread and nobody else.
    What waits is bounded: fast frames are dropped first, then the oldest full ones.
    """

    def __init__(self, writer: Writer) -> None:
        self.waiting = 0
        """Frames of earlier calls of `store` that were not written when it was called last."""
        self._writer = writer
        self._lock = threading.Lock()
        self._wakes = queue.SimpleQueue[None]()
        self._frames: deque[Frame] = deque()
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self._new = self._writing = self._dropped = 0
        """Frames since the last call of `store`; those in the thread's hands; full ones lost."""
        self._told: list[Event] = []
        self._time_s = 0.0
        self._is_asked = self._is_tending = self._is_ending = False
        self._bug: BaseException | None = None
        # What follows is the thread's own.
        self._trouble: Event | None = None
        """What is wrong with the store, as it was told last; None while all is well."""
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)
        self._thread.start()

    def add(self, frame: Frame, events: Iterable[Event]) -> None:
        """Add a frame with its events, for `store` to have them written."""
        with self._lock:
            self._frames.append(frame)
            self._events.extend(events)
            self._new += 1
            self._prune()

    def keep(self, configured: configuration.Retention) -> None:
        """Keep from now on what is configured."""
        self._writer.kept = kept(configured)

    def store(self, time_s: float, *, tend: bool = False) -> list[Event]:
        """Have what waits written, and do not wait for it.

        Return the events about the store since the last call, which are written as well. `time_s`
        is the Unix time of events that come of it.
        """
        with self._lock:
            self.waiting = self._writing + max(len(self._frames) - self._new, 0)
            self._new = 0
            return self._ask(time_s, tend)

    def finish(self, time_s: float, events: Iterable[Event]) -> list[Event]:
        """Have all written with these last events, and wait for it; return what failed."""
        with self._lock:
            self._events.extend(events)
            self._is_ending = True
            told = self._ask(time_s, tend=True)
        self._thread.join(FINISH_S)
        if self._thread.is_alive():
            said = f"{self._writing} frames are not stored, as the disk takes too long."
            return [*told, Event("store", time_s, said, Severity.ERROR)]
        with self._lock:
            return [*told, *self._ask(time_s, tend=False)]

    def _ask(self, time_s: float, tend: bool) -> list[Event]:
        if self._bug is not None:
            raise self._bug
        self._time_s, self._is_asked = time_s, True
        self._is_tending = self._is_tending or tend
        self._wakes.put(None)
        told, self._told = self._told, []
        return told

    def _prune(self) -> None:
        if len(self._frames) <= MAX_FULL_FRAMES:
            return
        full = [frame for frame in self._frames if frame.full]
        self._dropped += max(len(full) - MAX_FULL_FRAMES, 0)
        self._frames = deque(full[-MAX_FULL_FRAMES:])

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._write_next():
                pass
        except BaseException as error:  # to be raised where it is seen
            self._bug = error

    def _write_next(self) -> bool:
        """Write what waits once it is asked for; return whether there may be more."""
        while not (self._is_asked or self._is_ending):
            self._wakes.get()
        with self._lock:
            frames = [self._frames.popleft() for _ in range(min(len(self._frames), BATCH))]
            events, self._writing = list(self._events), len(frames)
            self._events.clear()
            self._is_asked = bool(self._frames)
            tend = self._is_tending and not self._frames
            self._is_tending = self._is_tending and not tend
            time_s, is_ending = self._time_s, self._is_ending
        if is_ending and self._trouble:
            events.append(_over(self._trouble, time_s))
            self._trouble = None
        failure: str | None = None
        try:
            self._writer.append(frames, events)
            frames, events = [], []
            if tend:
                self._writer.tend()
        except StoreError as error:
            failure = str(error)
        told = self._judge(time_s, failure)
        told += [
            Event("store", time_s, said, Severity.ERROR, ended_s=time_s, key=f"damaged {name}")
            for name, said in self._writer.take_damaged().items()
        ]
        with self._lock:
            self._frames.extendleft(reversed(frames))
            self._events = deque([*events, *self._events, *told], MAX_EVENTS)
            self._told += told
            self._writing = 0
            self._is_asked = self._is_asked and failure is None  # but when it is asked again
            is_done = failure is not None or not self._frames
            self._prune()
        return not (is_ending and is_done)

    def _judge(self, time_s: float, failure: str | None) -> list[Event]:
        """Return what is new of the store's trouble: one event, whatever it turns into meanwhile.

        A disk that fills up is a warning at first and then an error, which it stays.
        """
        before, was_failing = self._trouble, self._is_failing
        self._is_failing = failure is not None
        if before and was_failing and failure is None:
            before = replace(before, data={"seconds_lost": self._lost()})
        said = failure or self._writer.paused
        if said is None:
            self._trouble = None
            return [_over(before, time_s)] if before else []
        if before is None:
            severity = Severity.ERROR if failure else Severity.WARNING
            self._trouble = Event("store", time_s, said, severity)
        elif was_failing == self._is_failing:
            return []
        else:
            self._trouble = replace(before, message=said, severity=Severity.ERROR)
        return [self._trouble]

    def _lost(self) -> int:
        with self._lock:
            lost, self._dropped = self._dropped, 0
        if lost:
            LOG.error("%s seconds of telemetry are lost, as the store failed for too long", lost)
        earlier = self._trouble.data.get("seconds_lost", 0) if self._trouble else 0
        return lost + int(earlier)


def _over(event: Event, time_s: float) -> Event:
    return replace(event, ended_s=max(time_s, event.began_s))
