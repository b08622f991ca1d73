"""Columns from the fields of records, and where the rows of a batch go."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpuadvisor.collectors.kineto.clock import Clock
from gpuadvisor.collectors.kineto.decoding import AnyEvent, Arguments
from gpuadvisor.collectors.kineto.texts import BoundedTexts
from gpuadvisor.domain.profile import NO_TEXT, TABLES, UNKNOWN, Sink

Column: TypeAlias = npt.NDArray[Any]

_TEXTS = ("shapes", "types", "stack", "type")
_NUMBER = re.compile(r"-?\d{1,18}")
_NO_RECORDS: Sequence[Any] = ()


@dataclass(frozen=True)
class Rows:
    """Events that become rows of one table, at least one."""

    events: Sequence[AnyEvent]
    records: Sequence[Any]
    """Their `args`."""
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
        self.clock = Clock()
        self.rows = dict.fromkeys(TABLES, 0)
        self.measured: set[str] = set()
        """`table.column` of those that some row knows."""
        self.unfit = 0
        """Events left out because a field of theirs is missing or wrong."""

    def fit(
        self, events: Sequence[AnyEvent], arguments: Arguments[Any] | None = None
    ) -> Rows | None:
        """Return the events that can be used, None where none can; the others are counted."""
        count, records = len(events), _NO_RECORDS
        if arguments is not None:
            events, records = arguments.of(events)
        usable, begin, duration = self.clock.measure(events)
        if len(usable) < len(events) and arguments is not None:
            usable, records = arguments.of(usable)
        self.unfit += count - len(usable)
        return Rows(usable, records, begin, duration) if usable else None

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
