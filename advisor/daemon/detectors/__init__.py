"""Detectors: one file each, from frames to the events that people want to hear of.

A new file here, with a class `Detector`, is a new kind of event, named like the file.
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Protocol

from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Event, Frame

LOG = logging.getLogger(__name__)


class Detector(Protocol):
    """What the class `Detector` of a file here has."""

    def observe(self, frame: Frame, latest: Latest) -> Iterable[Event]:
        """Return what began, and what ended with its `ended_s`; `latest` has this frame in it."""


def _load() -> dict[str, Detector]:
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return {name: import_module(f"{__name__}.{name}").Detector() for name in names}


class Detectors:
    """All detectors, over the frames of one source in their order."""

    def __init__(self) -> None:
        self.latest = Latest()
        self._detectors = _load()
        self._open: dict[tuple[str, str | None, str, float], Event] = {}

    @property
    def open(self) -> list[Event]:
        """What lasts now, oldest first."""
        return sorted(self._open.values(), key=lambda event: event.began_s)

    def observe(self, frame: Frame) -> list[Event]:
        """Take in a frame; return what began or ended, with the collector's own events."""
        self.latest.update(frame)
        events = list(frame.events)
        for name in list(self._detectors):
            events.extend(self._ask(name, frame))
        for event in events:
            if event.ended_s is None:
                self._open[event.identity] = event
            else:
                self._open.pop(event.identity, None)
        return events

    def close(self, time_s: float) -> list[Event]:
        """End what still lasts, as nobody looks any more."""
        ended = [replace(event, ended_s=max(time_s, event.began_s)) for event in self.open]
        self._open.clear()
        return ended

    def _ask(self, name: str, frame: Frame) -> Iterator[Event]:
        """Ask one detector; one that fails is left out, as the others must go on."""
        try:
            yield from list(self._detectors[name].observe(frame, self.latest))
        except Exception:
            LOG.exception("the detector %s failed and is left out: report this as a bug", name)
            del self._detectors[name]
