"""Columns from the fields of records, their times as whole nanoseconds, and where the rows go.

Which event is the earliest is known only at the end, so times count from the first one read, some
are negative, and `first_ns` tells how far off that was (`Header.first_ns`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import compress
from math import floor
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Raw

from gpuadvisor.collectors.kineto.events import AnyEvent, Arguments, TraceEvent, normal_json
from gpuadvisor.domain.profile import NO_TEXT, TABLES, UNKNOWN, Sink

LATEST_US = 2.0**52
"""The year 2112, counted from 1970. Later times would not fit into nanoseconds of 64 bits."""
NS_PER_US = 1000

Times: TypeAlias = npt.NDArray[np.int64]
Column: TypeAlias = npt.NDArray[Any]
_TEXTS = ("shapes", "types", "stack", "type")
_NUMBER = re.compile(r"-?\d{1,18}")
_NO_RECORDS: Sequence[Any] = ()


class TraceClock:
    """Turns times of events to nanoseconds since a moment, and keeps the first and the last."""

    def __init__(self) -> None:
        self._base_us: int | None = None
        self._first_ns: int | None = None
        self._last_ns: int | None = None

    @property
    def first_ns(self) -> int:
        """Begin of the earliest row; 0 where there is none."""
        return self._first_ns or 0

    @property
    def duration_ns(self) -> int:
        """Time from the earliest begin to the latest end."""
        return (self._last_ns or 0) - self.first_ns

    @property
    def first_absolute_ns(self) -> int | None:
        """The earliest row's time as the file counts it."""
        if self._base_us is None or self._first_ns is None:
            return None
        return self._base_us * NS_PER_US + self._first_ns

    def start(self, events: Sequence[AnyEvent]) -> None:
        """Count from the first of these that has a time, unless it does already."""
        if self._base_us is None:
            usable = (event.ts for event in events if 0 <= float(event.ts) < LATEST_US)
            self._base_us = next((floor(time) for time in usable), None)

    def measure(self, events: Sequence[AnyEvent]) -> tuple[Sequence[AnyEvent], Times, Times]:
        """Return the events whose times can be used, their begins and durations.

        Times that are missing, negative or absurd cannot.
        """
        times = np.fromiter([event.ts for event in events], np.float64, len(events))
        durations = np.fromiter([event.dur for event in events], np.float64, len(events))
        good = (times >= 0) & (times < LATEST_US) & (durations >= 0) & (durations < LATEST_US)
        if not good.all():
            events = list(compress(events, good.tolist()))
            times, durations = times[good], durations[good]
        if not len(events):
            return events, _ns(times), _ns(durations)
        begin, duration = self._nanoseconds(events, times, durations)
        first_ns, last_ns = int(begin.min()), int((begin + duration).max())
        self._first_ns = first_ns if self._first_ns is None else min(self._first_ns, first_ns)
        self._last_ns = last_ns if self._last_ns is None else max(self._last_ns, last_ns)
        return events, begin, duration

    def _nanoseconds(
        self,
        events: Sequence[AnyEvent],
        times: npt.NDArray[np.float64],
        durations: npt.NDArray[np.float64],
    ) -> tuple[Times, Times]:
        base_us = self._base_us or 0
        if isinstance(events[0], TraceEvent):
            # A difference of floats would lose nanoseconds where the times lie days apart.
            whole = np.floor(times)
            begin = (whole - base_us).astype(np.int64) * NS_PER_US + _ns(times - whole)
            return begin, _ns(durations)
        begin = np.array([_exact_ns(event.ts, base_us) for event in events], np.int64)
        return begin, np.array([_exact_ns(event.dur) for event in events], np.int64)


def _ns(times_us: npt.NDArray[np.float64]) -> Times:
    return np.rint(times_us * NS_PER_US).astype(np.int64)


def _exact_ns(time_us: Decimal | float, base_us: int = 0) -> int:
    scaled = (Decimal(time_us) - base_us) * NS_PER_US
    return int(scaled.to_integral_value(rounding=ROUND_HALF_EVEN))


@dataclass(frozen=True)
class EventRows:
    """Events that become rows of one table."""

    events: Sequence[AnyEvent]
    records: Sequence[Any]
    """The `args` of the events, decoded."""
    begin: Column
    duration: Column

    def __len__(self) -> int:
        return len(self.events)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def timed(self) -> dict[str, Column]:
        """Return begins and durations."""
        return {"begin_ns": self.begin, "duration_ns": self.duration}

    def on_host(self) -> dict[str, Column]:
        """Return times, processes and threads."""
        return {
            **self.timed(),
            "process": _identities([event.pid for event in self.events]),
            "thread": _identities([event.tid for event in self.events]),
        }


class Output:
    """Takes rows to the sink, with what all tables share, and remembers what it took."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.texts = BoundedTexts()
        self.clock = TraceClock()
        self.rows = dict.fromkeys(TABLES, 0)
        self.measured: set[str] = set()
        """`table.column` of those that some row knows."""
        self.unfit = 0
        """Events left out because a field of theirs is missing or wrong."""

    def fit(self, events: Sequence[AnyEvent], arguments: Arguments[Any] | None = None) -> EventRows:
        """Return the events that can be used, if any; the others are counted."""
        count, records = len(events), _NO_RECORDS
        if arguments is not None:
            events, records = arguments.of(events)
        usable, begin, duration = self.clock.measure(events)
        if len(usable) < len(events) and arguments is not None:
            usable, records = arguments.of(usable)
        self.unfit += count - len(usable)
        return EventRows(usable, records, begin, duration)

    def numbers(self, texts: Sequence[str]) -> Column:
        """Return the numbers of texts."""
        return np.fromiter(self.texts.numbers(texts), np.int32, len(texts))

    def add(self, table: str, columns: dict[str, Column], optional: Sequence[str] = ()) -> None:
        """Give rows to the sink; of the optional columns note whether any row knows them."""
        count = len(next(iter(columns.values())))
        if not count:
            return
        self.rows[table] += count
        for name in optional:
            if f"{table}.{name}" not in self.measured and _is_known(columns[name], name):
                self.measured.add(f"{table}.{name}")
        self._sink.add(table, columns)


def column(values: Collection[Any], dtype: str = "int64") -> Column:
    """Return values as a column."""
    return np.fromiter(values, dtype, len(values))


def _is_known(values: Column, name: str) -> bool:
    """Tell whether a column says anything."""
    if values.dtype.kind == "f":
        return not np.isnan(values).all()
    return bool((values != (NO_TEXT if name in _TEXTS else UNKNOWN)).any())


def _identities(values: list[int | str]) -> Column:
    try:
        return np.fromiter(values, np.int64, len(values))
    except (ValueError, OverflowError):
        return np.fromiter(map(whole_number, values), np.int64, len(values))


def whole_number(value: int | str) -> int:
    """Return a number, the last one of a text such as `stream 7`, or UNKNOWN."""
    if isinstance(value, int):
        return value
    found = _NUMBER.findall(value)
    return int(found[-1]) if found else UNKNOWN


# -- texts, numbered within bounds that a hostile file cannot leave --------------------------------

Key = TypeVar("Key", str, bytes)

MAX_BYTES = 256 << 20
"""Bytes of all texts together. Traces of half a GB have about 10 MB of different ones."""
OVERHEAD_BYTES = 128
"""What Python takes for a text and its place in a dictionary, about."""
MAX_TEXT = 1 << 16
"""Characters of one text; the longest names of kernels have some thousands."""


class BoundedTexts:
    """Texts by number, like `domain.profile.Texts`; once they are full, new ones are left out."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": NO_TEXT}
        self._lists: dict[bytes, int] = {b"": NO_TEXT}
        self._stacks: dict[str, int] = {"": NO_TEXT}
        self._bytes = 0
        self.left_out = 0
        """Rows whose text had no room."""

    def numbers(self, texts: Sequence[str]) -> list[int]:
        """Return the numbers of texts."""
        return _looked_up(texts, self._numbers, self._new)

    def numbers_of_json(self, values: Iterable[Raw]) -> list[int]:
        """Return the numbers of JSON values as texts, spaced as Kineto does."""
        return self._derived(list(map(bytes, values)), self._lists, normal_json)

    def numbers_of_stacks(self, stacks: Sequence[str]) -> list[int]:
        """Return the numbers of stacks, a line a frame."""
        return self._derived(stacks, self._stacks, lambda stack: stack.replace(";", "\n"))

    def all(self) -> tuple[str, ...]:
        """Return the texts by number."""
        return tuple(self._numbers)

    def _new(self, text: str) -> int:
        if len(text) > MAX_TEXT:
            return self.numbers([text[: MAX_TEXT - 1] + "…"])[0]
        if not self._has_room(len(text)):
            self.left_out += 1
            return NO_TEXT
        return self._numbers.setdefault(text, len(self._numbers))

    def _derived(
        self, keys: Sequence[Key], known: dict[Key, int], text_of: Callable[[Key], str]
    ) -> list[int]:
        """Return the numbers of the texts that are made of keys, each made once."""

        def new(key: Key) -> int:
            number = self.numbers([text_of(key)])[0]
            if self._has_room(len(key)):
                known[key] = number
            return number

        return _looked_up(keys, known, new)

    def _has_room(self, characters: int) -> bool:
        """Take room for a text; False where there is none left."""
        needed = characters + OVERHEAD_BYTES
        if self._bytes + needed > MAX_BYTES:
            return False
        self._bytes += needed
        return True


def _looked_up(
    keys: Sequence[Key], known: Mapping[Key, int], new: Callable[[Key], int]
) -> list[int]:
    """Return each key's number, asking for new ones only where there are any."""
    found = list(map(known.get, keys))
    if None not in found:
        return found  # type: ignore[return-value]  # the line above proves it
    return [
        (known[key] if key in known else new(key)) if number is None else number
        for key, number in zip(keys, found, strict=True)
    ]
