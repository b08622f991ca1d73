"""A metric over time, and tables, from the rows that are just fine enough; processes as a table."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpuadvisor.domain.metrics import BY_NAME, HOST_METRICS, Kind, Metric
from gpuadvisor.domain.telemetry import Number
from gpuadvisor.storage.telemetry.files import (
    DAY_S,
    begin_of_path,
    day_paths,
    device_names,
    reading,
    rows,
)
from gpuadvisor.storage.telemetry.schema import (
    GPU_HOURS,
    GPU_MINUTES,
    GPU_SAMPLES,
    HOST_HOURS,
    HOST_ID,
    HOST_MINUTES,
    HOST_SAMPLES,
    HOUR_S,
    INDEX,
    MINUTE_S,
    PROCESS_COLUMNS,
    PROGRAM_COLUMNS,
    Table,
    plain_column,
    present,
    rolled_columns,
)

Resolution = Literal["raw", "minute", "hour", "auto"]
AUTO_RAW_S = 2 * HOUR_S
"""Longest table of raw rows by `auto`: two hours of eight GPUs are 58,000 of them."""
AUTO_MINUTES_S = 7 * 86400.0
"""Longest table of minutes by `auto`; longer ones are of hours."""
_PROCESS_COLUMNS = PROGRAM_COLUMNS | PROCESS_COLUMNS
PROCESS_CHUNK_S = 3600.0
"""Time whose processes are read at once, so that no transaction stays open while they are used."""


class Point(NamedTuple):
    """A metric in a span of time."""

    time_s: float
    """When the span began, Unix time."""
    mean: float
    """Mean of a gauge; the last value of a counter."""
    min: Number
    """Least value of a gauge; the first value of a counter."""
    max: Number


@dataclass(frozen=True)
class Rows:
    """A table of telemetry, whose rows are read while they are used."""

    resolution: str
    """`raw`, `minute` or `hour`."""
    columns: tuple[str, ...]
    """`time_s`, `gpu` (its UUID), and metrics or their statistics."""
    types: tuple[str, ...]
    """SQL's names of the columns' types: REAL, TEXT, INTEGER. All but the first may be NULL."""
    rows: Iterator[tuple[Any, ...]]


def chart(
    folder: Path,
    metric: str,
    gpus: Sequence[str] | None,
    since_s: float,
    until_s: float,
    points: int,
) -> Mapping[str, list[Point]]:
    """Return the metric by the GPU's UUID; see TelemetryReader.chart."""
    known = BY_NAME[metric]
    is_host = known in HOST_METRICS
    raw, minutes, hours = _tables(is_host)
    step_s = (until_s - since_s) / points
    chains = [(raw,), (minutes, raw), (hours, minutes, raw)]  # what is not rolled up yet is finer
    if step_s >= MINUTE_S:
        chains = chains[1:] if step_s < HOUR_S else [chains[2], chains[1]]
    names = device_names(folder)
    wanted = [n for n, uuid in names.items() if n != HOST_ID and (gpus is None or uuid in gpus)]
    chosen = _Selection(known, [HOST_ID] if is_host else wanted, step_s)
    for chain in chains:
        if spans := _along(folder, chain, chosen, since_s, until_s):
            break
    found: dict[str, list[Point]] = {names[number]: [] for number in chosen.gpus}
    add = {number: found[names[number]].append for number in chosen.gpus}
    for number, time_s, total, weight, low, high in spans:
        add[number](Point(time_s, total / weight, low, high))
    return found


class _Selection(NamedTuple):
    metric: Metric
    gpus: Sequence[int]
    step_s: float


_Span = tuple[int, float, float, float, Number, Number]
"""GPU, begin, the sum of weighted means, the weights, the least and the greatest."""


def _along(
    folder: Path, chain: Sequence[Table], chosen: _Selection, since_s: float, until_s: float
) -> list[_Span]:
    """Read the first table, and from where it ends the next one of the chain."""
    spans: list[_Span] = []
    for table in chain:
        end_s = until_s
        if table.period_s:  # first: of what is rolled up meanwhile, the next table has all
            query = f"SELECT MAX(ts) FROM {table.name} WHERE ts >= ? AND ts < ?"
            with reading(folder / INDEX) as connection:
                ((last_s,),) = rows(connection, query, (since_s, until_s)) or ((None,),)
            if last_s is None:
                return []
            end_s = min(last_s + table.period_s, until_s)
        for path in _files(folder, table, since_s, end_s):
            with reading(path) as connection:
                if connection and chosen.metric.name in present(connection, table):
                    found = _spans(connection, table, chosen, since_s, end_s)
                    spans = _together(spans, found) if spans else found
        since_s = end_s
    return spans


def _spans(
    connection: sqlite3.Connection,
    table: Table,
    chosen: _Selection,
    since_s: float,
    until_s: float,
) -> list[_Span]:
    """Return a table's rows of one metric, in order of time and joined to steps."""
    mean, low, high = _expressions(table, chosen.metric)
    weight = "polls" if table.period_s else "1"
    step_s = max(chosen.step_s, table.period_s)
    at, total, grouping = "ts", f"{mean} * {weight}", "ORDER BY ts"
    if step_s > table.period_s:
        at = f"CAST(ts / {step_s!r} AS INTEGER) * {step_s!r}"
        total, weight, low, high = f"SUM({total})", f"SUM({weight})", f"MIN({low})", f"MAX({high})"
        grouping = "GROUP BY 1, 2 ORDER BY 2"
    marks = ", ".join("?" * len(chosen.gpus))
    query = (
        f"SELECT gpu, {at}, {total}, {weight}, {low}, {high} FROM {table.name} WHERE ts >= ?"
        f" AND ts < ? AND gpu IN ({marks}) AND {chosen.metric.name} IS NOT NULL {grouping}"
    )
    return rows(connection, query, (since_s, until_s, *chosen.gpus))


def _together(earlier: list[_Span], later: list[_Span]) -> list[_Span]:
    """Return all spans, joining those that two tables, or two days, have parts of."""
    parts = {span[:2]: span for span in later}
    first_s = min((span[1] for span in later), default=0.0)
    for place, span in enumerate(earlier):
        if span[1] >= first_s and (other := parts.pop(span[:2], None)):
            low, high = min(span[4], other[4]), max(span[5], other[5])
            earlier[place] = (*span[:2], span[2] + other[2], span[3] + other[3], low, high)
    return earlier + list(parts.values())


def _expressions(table: Table, metric: Metric) -> tuple[str, str, str]:
    name = metric.name
    if table.period_s and metric.kind is Kind.GAUGE:
        return name, f"min_{name}", f"max_{name}"
    if table.period_s and metric.kind is Kind.COUNTER:
        return name, f"first_{name}", name
    return name, name, name


def table(
    folder: Path,
    since_s: float,
    until_s: float,
    resolution: Resolution,
    host: bool,
    gpus: Sequence[str] | None,
    metrics: Sequence[str] | None,
) -> Rows:
    """Return rows in order of time; see TelemetryReader.table."""
    if resolution == "auto":
        span_s = min(until_s, time.time()) - max(since_s, _oldest_s(folder, since_s, until_s))
        resolution = (
            "raw" if span_s <= AUTO_RAW_S else "minute" if span_s <= AUTO_MINUTES_S else "hour"
        )
    raw, minutes, hours = _tables(host)
    chosen = {"raw": raw, "minute": minutes, "hour": hours}[resolution]
    wanted = [m for m in chosen.metrics if metrics is None or m.name in metrics]
    columns = [
        column
        for metric in wanted
        for column in (rolled_columns(metric) if chosen.period_s else [plain_column(metric)])
    ]
    names = [column.name for column in columns]
    return Rows(
        resolution,
        ("time_s", "gpu", *names),
        ("REAL", "TEXT", *(column.type for column in columns)),
        _rows(folder, chosen, names, gpus, since_s, until_s),
    )


def _rows(
    folder: Path,
    table: Table,
    columns: Sequence[str],
    gpus: Sequence[str] | None,
    since_s: float,
    until_s: float,
) -> Iterator[tuple[Any, ...]]:
    for path in _files(folder, table, since_s, until_s):
        with reading(path) as connection:
            if connection is None:
                continue
            known = present(connection, table)
            selected = ", ".join(name if name in known else f"NULL AS {name}" for name in columns)
            begin_s = since_s
            while (end_s := _chunk_end(connection, table, begin_s, until_s)) is not None:
                found = connection.execute(
                    f"SELECT ts, gpu, {selected} FROM {table.name} WHERE ts >= ? AND ts < ?"
                    " ORDER BY ts, gpu",
                    (begin_s, end_s),
                ).fetchall()
                names = device_names(folder)  # after the rows: it has all of their GPUs
                for time_s, gpu, *values in found:
                    device = names.get(gpu)  # None: the index was made anew
                    if device and (gpus is None or device in gpus):
                        yield (time_s, device, *values)
                begin_s = end_s


CHUNK_ROWS = 5000
"""Rows read at once, so that no transaction stays open while they are used."""


def _chunk_end(
    connection: sqlite3.Connection, table: Table, begin_s: float, until_s: float
) -> float | None:
    """Return the time before which to read next; None where no row is left."""
    span = (begin_s, until_s)
    where = f"FROM {table.name} WHERE ts >= ? AND ts < ?"
    if connection.execute(f"SELECT 1 {where} LIMIT 1", span).fetchone() is None:
        return None
    row = connection.execute(
        f"SELECT ts {where} ORDER BY ts LIMIT 1 OFFSET {CHUNK_ROWS}", span
    ).fetchone()
    return until_s if row is None else max(float(row[0]), _after(connection, table, begin_s))


def _after(connection: sqlite3.Connection, table: Table, begin_s: float) -> float:
    """Return the second time from `begin_s` on, so that every chunk has at least one."""
    rows = connection.execute(
        f"SELECT DISTINCT ts FROM {table.name} WHERE ts >= ? ORDER BY ts LIMIT 2", (begin_s,)
    ).fetchall()
    return float(rows[-1][0])


def _tables(host: bool) -> tuple[Table, Table, Table]:
    if host:
        return HOST_SAMPLES, HOST_MINUTES, HOST_HOURS
    return GPU_SAMPLES, GPU_MINUTES, GPU_HOURS


def _files(folder: Path, table: Table, since_s: float, until_s: float) -> list[Path]:
    return [folder / INDEX] if table.period_s else day_paths(folder, since_s, until_s)


def _oldest_s(folder: Path, since_s: float, until_s: float) -> float:
    """Return the time of the first row in the span, raw or not; `until_s` where there is none."""
    found = [until_s]
    for table in (*_tables(host=False), *_tables(host=True)):
        query = f"SELECT MIN(ts) FROM {table.name} WHERE ts >= ?"
        for path in _files(folder, table, since_s, until_s)[:1]:
            with reading(path) as connection:
                times = [row[0] for row in rows(connection, query, (since_s,))]
            found += [float(each) for each in times if each is not None]
    return min(found)


# -- processes -----------------------------------------------------------------------------------


def processes(folder: Path, since_s: float, until_s: float) -> Rows:
    """Return each process that was listed in the span, a row for each listing."""
    types = [declared.partition(" ")[0] for declared in _PROCESS_COLUMNS.values()]
    return Rows(
        "raw",
        ("time_s", "gpu", *_PROCESS_COLUMNS),
        ("REAL", "TEXT", *types),
        _process_rows(folder, since_s, until_s),
    )


def _process_rows(folder: Path, since_s: float, until_s: float) -> Iterator[tuple[Any, ...]]:
    query = (
        f"SELECT ts, gpu, {', '.join(_PROCESS_COLUMNS)} FROM processes"
        " JOIN programs ON programs.id = program WHERE ts >= ? AND ts < ? ORDER BY ts, gpu, pid"
    )
    for path in day_paths(folder, since_s, until_s):
        begin_s = max(since_s, begin_of_path(path))
        day_end_s = min(until_s, begin_of_path(path) + DAY_S)
        while begin_s < day_end_s:
            end_s = min(begin_s + PROCESS_CHUNK_S, day_end_s)
            with reading(path) as connection:
                found = rows(connection, query, (begin_s, end_s))
            names = device_names(folder)  # after the rows: it has all of their GPUs
            yield from ((time_s, names.get(gpu), *each) for time_s, gpu, *each in found)
            begin_s = end_s
