"""Microseconds of a trace to whole nanoseconds.

Which event is the earliest is known only at the end, so times count from the first one read, some
are negative, and `first_ns` tells how far off that was (`Header.first_ns`).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import compress
from math import floor
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gpuadvisor.collectors.kineto.decoding import AnyEvent
from gpuadvisor.collectors.kineto.records import Event

LATEST_US = 2.0**52
"""The year 2112, counted from 1970. Later times would not fit into nanoseconds of 64 bits."""
NS_PER_US = 1000

Times: TypeAlias = npt.NDArray[np.int64]


class Clock:
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
        """From the earliest begin to the latest end."""
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
        self._count(int(begin.min()), int((begin + duration).max()))
        return events, begin, duration

    def _nanoseconds(
        self,
        events: Sequence[AnyEvent],
        times: npt.NDArray[np.float64],
        durations: npt.NDArray[np.float64],
    ) -> tuple[Times, Times]:
        base_us = self._base_us or 0
        if isinstance(events[0], Event):
            # A difference of floats would lose nanoseconds where the times lie days apart.
            whole = np.floor(times)
            begin = (whole - base_us).astype(np.int64) * NS_PER_US + _ns(times - whole)
            return begin, _ns(durations)
        begin = np.array([_exact_ns(event.ts, base_us) for event in events], np.int64)
        return begin, np.array([_exact_ns(event.dur) for event in events], np.int64)

    def _count(self, first_ns: int, last_ns: int) -> None:
        self._first_ns = first_ns if self._first_ns is None else min(self._first_ns, first_ns)
        self._last_ns = last_ns if self._last_ns is None else max(self._last_ns, last_ns)


def _ns(times_us: npt.NDArray[np.float64]) -> Times:
    return np.rint(times_us * NS_PER_US).astype(np.int64)


def _exact_ns(time_us: Decimal | float, base_us: int = 0) -> int:
    scaled = (Decimal(time_us) - base_us) * NS_PER_US
    return int(scaled.to_integral_value(rounding=ROUND_HALF_EVEN))
