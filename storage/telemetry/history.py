"""Minutes and hours that an earlier writer left, rolled up from the rows in the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuadvisor.domain.metrics import Kind
from gpuadvisor.domain.telemetry import Number
from gpuadvisor.storage.telemetry import rollups
from gpuadvisor.storage.telemetry.files import day_path, day_paths, device_names, reading
from gpuadvisor.storage.telemetry.index_file import RolledRow
from gpuadvisor.storage.telemetry.rollups import Minute, minute_of
from gpuadvisor.storage.telemetry.schema import (
    DAY_TABLES,
    GPU_HOURS,
    GPU_MINUTES,
    GPU_SAMPLES,
    HOST_HOURS,
    HOST_MINUTES,
    HOST_SAMPLES,
    HOUR_S,
    MINUTE_S,
    Table,
    present,
)

NEVER = 0.0


def last_minute(index: sqlite3.Connection) -> float:
    """Return the begin of the last minute that is rolled up; NEVER where none is."""
    tables = (GPU_MINUTES, HOST_MINUTES)
    found = [index.execute(f"SELECT MAX(ts) FROM {table.name}").fetchone()[0] for table in tables]
    return max((each for each in found if each is not None), default=NEVER)


def hours_to_roll(index: sqlite3.Connection) -> set[float]:
    """Return the hours that have minutes, and are not rolled up or may have got more since."""
    found = set[float]()
    for minutes, hours in ((GPU_MINUTES, GPU_HOURS), (HOST_MINUTES, HOST_HOURS)):
        last = index.execute(f"SELECT MAX(ts) FROM {hours.name}").fetchone()[0]
        rows = index.execute(
            f"SELECT DISTINCT CAST(ts / {HOUR_S} AS INTEGER) * {HOUR_S} FROM {minutes.name}"
            " WHERE ts >= ?",
            (NEVER if last is None else last,),
        )
        found.update(row[0] for row in rows)
    return found


def next_minute(folder: Path, since_s: float, before_s: float) -> float | None:
    """Return the first minute from `since_s` on that has raw rows; None from `before_s` on."""
    for path in day_paths(folder, since_s, before_s):
        with reading(path) as connection:
            if connection is None:
                continue
            found = [
                connection.execute(
                    f"SELECT MIN(ts) FROM {table.name} WHERE ts >= ?", (since_s,)
                ).fetchone()[0]
                for table in DAY_TABLES
            ]
        times = [minute_of(each) for each in found if each is not None]
        if times:
            return min(times) if min(times) < before_s else None
    return None


def minute(folder: Path, begin_s: float) -> Minute | None:
    """Return a minute with all its raw rows; None where there are none."""
    names = device_names(folder)
    made, is_empty = Minute(begin_s), True
    with reading(day_path(folder, begin_s)) as connection:
        for table in DAY_TABLES if connection else ():
            assert connection is not None
            metrics, query = _select(connection, table)
            for _, gpu, *values in connection.execute(query, (begin_s, begin_s + MINUTE_S)):
                if gpu not in names:  # the index was made anew
                    continue
                is_empty = False
                known = zip(metrics, values, strict=True)
                made.device(names[gpu]).add_values((n, v) for n, v in known if v is not None)
    return None if is_empty else made


def hour(index: sqlite3.Connection, folder: Path, begin_s: float) -> Iterator[RolledRow]:
    """Yield an hour's rows, one for each device that has minutes in it."""
    for minutes, hours, raw in (
        (GPU_MINUTES, GPU_HOURS, GPU_SAMPLES),
        (HOST_MINUTES, HOST_HOURS, HOST_SAMPLES),
    ):
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
            seconds = _seconds(folder, raw, gpu, begin_s)
            yield (hours, begin_s, gpu, *rollups.hour(hours.metrics, rows, seconds))


def _seconds(folder: Path, table: Table, gpu: int, begin_s: float) -> dict[str, Sequence[Number]]:
    """Return an hour's values of full frames, by the name of the gauge."""
    gauges = {metric.name for metric in table.metrics if metric.kind is Kind.GAUGE}
    with reading(day_path(folder, begin_s)) as connection:
        if connection is None:
            return {}
        metrics, query = _select(connection, table, "AND gpu = ?")
        rows = connection.execute(query, (begin_s, begin_s + HOUR_S, gpu)).fetchall()
    columns = zip(*rows, strict=True)
    next(columns, None), next(columns, None)  # the key
    return {
        name: [value for value in values if value is not None]
        for name, values in zip(metrics, columns, strict=False)
        if name in gauges
    }


def _select(
    connection: sqlite3.Connection, table: Table, condition: str = ""
) -> tuple[list[str], str]:
    """Return the metrics that this file's table has, and the query for ts, gpu and them."""
    known = present(connection, table)
    metrics = [metric.name for metric in table.metrics if metric.name in known]
    return metrics, (
        f"SELECT ts, gpu, {', '.join(metrics)} FROM {table.name}"
        f" WHERE ts >= ? AND ts < ? {condition} ORDER BY ts"
    )
