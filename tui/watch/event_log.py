"""What happened lately, and its lines: the worst first, and what is alike in one line."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from gpuadvisor.daemon.sources import RECENT_S
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event
from gpuadvisor.tui.watch import cells

KEPT_EVENTS = 200
WIDE = 60
"""Characters from which on a message has room beside what comes before it."""
LEAST_MESSAGE = 30
"""Characters beside that below which it stands below it, as on a narrow page. [own]"""
INDENT = "  "
UUID_END = 8
"""Characters of the UUID of a GPU that is not listed any more."""
ALIKE_S = 60.0
"""Events of several GPUs that began within so many seconds are told in one line, where only their
numbers differ. [own]"""
MOST_NUMBERS = 4
"""Numbers that such a line names one by one; of more it has the least and the greatest. [own]"""
NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Told(NamedTuple):
    """What a line tells: an event, or several that are alike, on as many GPUs."""

    where: str
    events: Sequence[Event]
    message: str


class EventLog:
    """The newest events; one that comes again is the same event, with its end."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str | None, str, float], Event] = {}
        self.changes = 0
        """How often an event has come, or come again."""

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events[event.identity] = event
            self.changes += 1
        while len(self._events) > KEPT_EVENTS:
            oldest = min(self._events.values(), key=lambda e: (e.ended_s is None, e.began_s))
            del self._events[oldest.identity]

    def recent(self, now_s: float) -> list[Event]:
        """Return what lasts and what ended in the day before a Unix time, the oldest first."""
        since_s = now_s - RECENT_S
        return [e for e in reversed(self.newest()) if e.ended_s is None or e.ended_s >= since_s]

    def is_open(self, event: Event) -> bool:
        """Return whether an event lasts, by what has come of it."""
        known = self._events.get(event.identity)
        return known is not None and known.ended_s is None

    def open(self, gpu: str | None) -> list[Event]:
        """Return what lasts on a GPU, the worst first."""
        lasting = [e for e in self._events.values() if e.gpu == gpu and e.ended_s is None]
        return sorted(lasting, key=lambda event: (-event.severity.rank, event.began_s))

    def newest(self) -> list[Event]:
        """Return the events, the one that began last first; of those at one time, the worst."""
        return sorted(
            self._events.values(),  # in the same order in every process
            key=lambda event: (
                -event.began_s,
                -event.severity.rank,
                event.gpu or "",
                event.kind,
                event.key,
            ),
        )

    def told(self, labels: Mapping[str, str], now_s: float) -> list[Told]:
        """Return what is recent: errors first, then warnings; of each the newest first."""
        groups: list[list[Event]] = []
        newest: dict[object, list[Event]] = {}
        for event in sorted(self.recent(now_s), key=lambda e: (-e.severity.rank, -e.began_s)):
            form = NUMBER.sub("#", _without_gpu(event, labels))
            like = (event.kind, event.key, event.severity, form, event.ended_s is None)
            group = newest.get(like)
            if (
                group is not None
                and group[0].began_s - event.began_s <= ALIKE_S
                and None not in (event.gpu, group[0].gpu)
                and all(event.gpu != each.gpu for each in group)
            ):
                group.append(event)
            else:
                newest[like] = [event]
                groups.append(newest[like])
        return [_told(group, labels) for group in groups]

    def lines(
        self,
        labels: Mapping[str, str],
        width: int,
        now_s: float,
        *,
        most: int | None = None,
        height: int | None = None,
        is_seen: Callable[[Event], bool] = lambda _: True,
    ) -> list[tuple[str, Severity]]:
        """Return what is recent as lines of `width` characters, `most` of it and no more than
        `height` lines; where that is not all, the last line counts the rest. `is_seen` tells of an
        event without an end whether it is known to last."""
        told = self.told(labels, now_s)
        shown = told[:most]
        made = [
            [(text, each.events[0].severity) for text in _wrapped(each, width, now_s, is_seen)]
            for each in shown
        ]
        left = len(told) - len(shown)
        while made and height is not None and sum(map(len, made)) + bool(left) > height:
            if len(made) == 1 and height > bool(left):
                made[0] = made[0][: height - bool(left)]  # its beginning is more than nothing
                break
            made.pop()
            left += 1
        lines = [line for block in made for line in block]
        if left and (height is None or len(lines) < height):
            lines.append((f"and {left} more: page 3", Severity.INFO))
        return lines


def _without_gpu(event: Event, labels: Mapping[str, str]) -> str:
    """Return the message without the name of its GPU, where it begins with it."""
    label = labels.get(event.gpu or "")
    return event.message if label is None else event.message.removeprefix(f"GPU {label} ")


def _told(group: Sequence[Event], labels: Mapping[str, str]) -> Told:
    first = group[0]
    if len(group) == 1:
        where = "host"
        if first.gpu is not None:
            where = f"GPU {labels[first.gpu]}" if first.gpu in labels else first.gpu[-UUID_END:]
        return Told(where, group, first.message)
    places = {gpu: place for place, gpu in enumerate(labels)}
    group = sorted(group, key=lambda event: places.get(event.gpu or "", len(places)))
    names = [labels.get(event.gpu or "", (event.gpu or "")[-UUID_END:]) for event in group]
    texts = [_without_gpu(event, labels) for event in group]
    columns = iter(list(zip(*(NUMBER.findall(text) for text in texts), strict=True)))
    message = NUMBER.sub(lambda _: _numbers(next(columns)), texts[0])
    return Told(f"GPU {cells.several(names)}", group, f"each {message}")


def _numbers(found: Sequence[str]) -> str:
    """Return the numbers of several events at one place: one where they are the same."""
    if len(set(found)) == 1:
        return found[0]
    if len(found) <= MOST_NUMBERS:
        return "/".join(found)
    return f"{min(found, key=float)} to {max(found, key=float)}"


def _when(time_s: float, now_s: float) -> str:
    """Return a time of today, or one of another day with that."""
    began, now = datetime.fromtimestamp(time_s), datetime.fromtimestamp(now_s)
    return began.strftime("%H:%M:%S" if began.date() == now.date() else "%a %H:%M")


def _wrapped(told: Told, width: int, now_s: float, is_seen: Callable[[Event], bool]) -> list[str]:
    event = told.events[0]
    when = _when(event.began_s, now_s)
    head = f"{when} {event.severity:<7} {told.where:<7}"
    lasted_s = sorted(e.ended_s - e.began_s for e in told.events if e.ended_s is not None)
    if lasted_s:
        ages = dict.fromkeys(cells.age(each) for each in (lasted_s[0], lasted_s[-1]))
        how_long = f"({' to '.join(ages)})" if lasted_s[-1] else ""
    else:
        how_long = "(lasts)" if is_seen(event) else "(lasted when it was read last)"
    message = f"{told.message} {how_long}".rstrip()
    if width >= WIDE and width - len(head) > LEAST_MESSAGE:
        room = textwrap.wrap(message, max(width - len(head) - 1, 1)) or [""]
        rest = [" " * (len(head) + 1) + line for line in room[1:]]
        return [f"{head} {room[0]}".rstrip(), *rest]
    narrow = max(width, len(INDENT) + 1)
    head_line = cells.fit([head.rstrip(), when], narrow)
    return [
        head_line,
        *textwrap.wrap(message, narrow, initial_indent=INDENT, subsequent_indent=INDENT),
    ]
