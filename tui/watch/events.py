"""The newest events, as lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event
from gpuadvisor.tui.watch import cells

KEPT = 200
WIDE = 60
"""From so many characters on, a message has room beside what comes before it."""
INDENT = "  "
UUID_END = 8
"""Characters of the UUID of a GPU that is not listed any more."""


@dataclass(frozen=True)
class Line:
    """A line of text, and how much what it says matters."""

    text: str
    severity: Severity


class EventLog:
    """The newest events; one that comes again is the same event, with its end."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str | None, str, float], Event] = {}

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events[event.identity] = event
        while len(self._events) > KEPT:
            del self._events[min(self._events, key=lambda identity: identity[-1])]

    def newest(self) -> list[Event]:
        """Return them, the one that began last first; of those at one time, the worst."""
        return sorted(self._events.values(), key=_place)

    def lines(self, labels: Mapping[str, str], width: int, most: int) -> Iterator[Line]:
        """Yield them as lines of `width` characters, newest first, of the `most` newest events."""
        for event in self.newest()[:most]:
            for text in _wrapped(event, labels, width):
                yield Line(text, event.severity)


def _place(event: Event) -> tuple[float, int, str, str, str]:
    """Return what events are sorted by, the same in every process."""
    return -event.began_s, -event.severity.rank, event.gpu or "", event.kind, event.key


def _wrapped(event: Event, labels: Mapping[str, str], width: int) -> list[str]:
    head = f"{cells.time_of_day(event.began_s)} {event.severity:<7} {_where(event, labels):<7}"
    message = f"{event.message} {_how_long(event)}".rstrip()
    if width >= WIDE:
        room = textwrap.wrap(message, max(width - len(head) - 1, 1)) or [""]
        rest = [" " * (len(head) + 1) + line for line in room[1:]]
        return [f"{head} {room[0]}".rstrip(), *rest]
    narrow = max(width, len(INDENT) + 1)
    head_line = cells.fit([head.rstrip(), head[: len("00:00:00")]], narrow)
    return [
        head_line,
        *textwrap.wrap(message, narrow, initial_indent=INDENT, subsequent_indent=INDENT),
    ]


def _where(event: Event, labels: Mapping[str, str]) -> str:
    if event.gpu is None:
        return "host"
    return f"GPU {labels[event.gpu]}" if event.gpu in labels else event.gpu[-UUID_END:]


def _how_long(event: Event) -> str:
    """Return how long it lasted; nothing for what has no length."""
    if event.ended_s is None:
        return "(lasts)"
    lasted_s = event.ended_s - event.began_s
    return f"({cells.age(lasted_s)})" if lasted_s > 0 else ""
