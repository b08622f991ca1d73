"""Roll-ups: a minute of polls, and an hour of minutes, in one row for each GPU.

The writer rolls up what it polls, and from the rows in the store what an earlier writer left.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import ceil, fsum
from operator import or_
from pathlib import Path
from typing import Any

from gpuadvisor.domain.accumulators import Accumulator
from gpuadvisor.domain.metrics import BY_NAME, Kind, Metric
from gpuadvisor.domain.telemetry import Frame, Number, Sample
from gpuadvisor.domain.timeline import HOUR_S, MINUTE_S
from gpuadvisor.storage.telemetry.files import day_path, day_paths, device_names, reading, times
from gpuadvisor.storage.telemetry.schema import (
    DAY_NAMES,
    DAY_TABLES,
    GPU_MINUTES,
    GPU_TABLES,
    HOST_MINUTES,
    HOST_TABLES,
    Table,
    raw_values,
)

Rolled = dict[str, Number | None]
"""A row's statistics by column."""

RolledRow = tuple[Table, float, str, int, Rolled]
"""A row of a roll-up: table, begin, GPU's UUID or HOST, number of polls, statistics."""

NEVER = 0.0


class _Polls:
    """The polls of one device: what each read, summed up at the end of the minute at once."""

    def __init__(self) -> None:
        self.read: list[Mapping[str, Number]] = []

    def add(self, frame: Frame, sample: Sample) -> None:
        """Take in one poll, whose values are `fitted`."""
        self.read.append(sample.values)

    def rolled(self) -> Rolled:
        """Return the statistics."""
        values: defaultdict[str, list[Number]] = defaultdict(list)
        for read in self.read:
            for name, value in read.items():
                values[name].append(value)
        return _of_values(values)


class Minute(Accumulator[_Polls]):
    """All polls of one minute, to be rolled up."""

    def __init__(self, begin_s: float) -> None:
        super().__init__(_Polls)
        self.begin_s = begin_s
        self.is_raw_complete = True
        """Whether all raw rows of the minute were stored, too."""

    def rows(self) -> dict[str, tuple[int, Rolled]]:
        """Return the number of polls and the statistics of every device."""
        return {device: (len(polls.read), polls.rolled()) for device, polls in self.devices.items()}


def minute_of(time_s: float) -> float:
    """Return when the minute of this Unix time began."""
    return time_s // MINUTE_S * MINUTE_S


def _percentile_95(ordered: Sequence[Number]) -> Number:
    """Return the least of the sorted values that 95 % of them do not exceed (nearest rank)."""
    return ordered[ceil(0.95 * len(ordered)) - 1]


def _of_values(values: Mapping[str, Sequence[Number]]) -> Rolled:
    rolled: Rolled = {}
    for name, all_values in values.items():
        rolled.update(_of_metric(BY_NAME[name], all_values))
    return rolled


def _of_metric(metric: Metric, values: Sequence[Number]) -> Rolled:
    name = metric.name
    if metric.kind is Kind.COUNTER:
        return {name: values[-1], f"first_{name}": values[0]}
    if metric.kind is Kind.BITMASK:
        return {name: reduce(or_, map(int, values))}
    ordered = sorted(values)
    return {
        name: fsum(values) / len(values),
        f"min_{name}": ordered[0],
        f"max_{name}": ordered[-1],
        f"p95_{name}": _percentile_95(ordered),
    }


def _of_minutes(metric: Metric, rows: Sequence[Mapping[str, Any]]) -> Rolled:
    name = metric.name
    if metric.kind is Kind.COUNTER:
        return {name: rows[-1][name], f"first_{name}": rows[0][f"first_{name}"]}
    if metric.kind is Kind.BITMASK:
        return {name: reduce(or_, (row[name] for row in rows))}
    weight = sum(row["polls"] for row in rows)
    return {
        name: fsum(row[name] * row["polls"] for row in rows) / weight,
        f"min_{name}": min(row[f"min_{name}"] for row in rows),
        f"max_{name}": max(row[f"max_{name}"] for row in rows),
    }


# -- from the store --------------------------------------------------------------------------------


def last_minute(index: sqlite3.Connection) -> float:
    """Return the begin of the last minute that is rolled up; NEVER where none is."""
    return max(times(index, "MAX", (GPU_MINUTES.name, HOST_MINUTES.name)), default=NEVER)


def hours_to_roll(index: sqlite3.Connection) -> set[float]:
    """Return the hours that have minutes, and are not rolled up or may have got more since."""
    found = set[float]()
    for _, minutes, hours in (GPU_TABLES, HOST_TABLES):
        last_s = max(times(index, "MAX", (hours.name,)), default=NEVER)
        rows = index.execute(
            f"SELECT DISTINCT CAST(ts / {HOUR_S} AS INTEGER) * {HOUR_S} FROM {minutes.name}"
            " WHERE ts >= ?",
            (last_s,),
        )
        found.update(row[0] for row in rows)
    return found


def next_minute(folder: Path, since_s: float, before_s: float) -> float | None:
    """Return the first minute from `since_s` on that has raw rows; None from `before_s` on."""
    for path in day_paths(folder, since_s, before_s):
        with reading(path) as connection:
            found = times(connection, "MIN", DAY_NAMES, "WHERE ts >= ?", (since_s,))
        if found:
            begin_s = minute_of(min(found))
            return begin_s if begin_s < before_s else None
    return None


def stored_minute(folder: Path, begin_s: float) -> Minute | None:
    """Return a minute with all its raw rows; None where there are none."""
    made, is_empty = Minute(begin_s), True
    with reading(day_path(folder, begin_s)) as connection:
        names = device_names(connection)
        for table in DAY_TABLES if connection else ():
            assert connection is not None
            metrics, query = raw_values(connection, table)
            for _, gpu, *values in connection.execute(query, (begin_s, begin_s + MINUTE_S)):
                is_empty = False
                known = zip(metrics, values, strict=True)
                made.device(names[gpu]).read.append({n: v for n, v in known if v is not None})
    return None if is_empty else made


def stored_hour(index: sqlite3.Connection, folder: Path, begin_s: float) -> Iterator[RolledRow]:
    """Yield an hour's rows, one for each device that has minutes in it."""
    names = device_names(index)
    for raw, minutes, hours in (GPU_TABLES, HOST_TABLES):
        by_device: dict[int, list[dict[str, Any]]] = {}
        cursor = index.execute(
            f"SELECT * FROM {minutes.name} WHERE ts >= ? AND ts < ? ORDER BY ts",
            (begin_s, begin_s + HOUR_S),
        )
        columns = [column[0] for column in cursor.description]
        for row in cursor:
            named = dict(zip(columns, row, strict=True))
            by_device.setdefault(named["gpu"], []).append(named)
        for gpu, rows in by_device.items():
            seconds = _seconds(folder, raw, names[gpu], begin_s)
            polls = sum(row["polls"] for row in rows)
            yield (hours, begin_s, names[gpu], polls, _of_hour(hours.metrics, rows, seconds))


def _of_hour(
    metrics: Iterable[Metric],
    minutes: Sequence[Mapping[str, Any]],
    seconds: Mapping[str, Sequence[Number]],
) -> Rolled:
    """Return the statistics of an hour.

    `minutes` are the rows of one device in their order; means are weighted with their polls.
    `seconds` are the values of the full frames by metric, for the 95th percentile: it cannot be
    had from minutes, and where the raw rows are gone it stays unknown.
    """
    rolled: Rolled = {}
    for metric in metrics:
        known = [row for row in minutes if row[metric.name] is not None]
        if known:
            rolled.update(_of_minutes(metric, known))
            if metric.kind is Kind.GAUGE and seconds.get(metric.name):
                rolled[f"p95_{metric.name}"] = _percentile_95(sorted(seconds[metric.name]))
    return rolled


def _seconds(
    folder: Path, table: Table, device: str, begin_s: float
) -> dict[str, Sequence[Number]]:
    """Return an hour's values of full frames, by the name of the gauge."""
    gauges = {metric.name for metric in table.metrics if metric.kind is Kind.GAUGE}
    with reading(day_path(folder, begin_s)) as connection:
        if connection is None:
            return {}
        numbers = [n for n, name in device_names(connection).items() if name == device]
        metrics, query = raw_values(connection, table, "AND gpu = ?")
        rows = [
            row
            for number in numbers
            for row in connection.execute(query, (begin_s, begin_s + HOUR_S, number))
        ]
    columns = zip(*rows, strict=True)
    next(columns, None), next(columns, None)  # the key
    return {
        name: [value for value in values if value is not None]
        for name, values in zip(metrics, columns, strict=False)
        if name in gauges
    }
