"""The state of a machine at a moment, from the finest rows that are still there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpuadvisor.domain.accumulators import Latest, Reading
from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS, Kind, Metric, SamplingInterval
from gpuadvisor.domain.moment import (
    LOOK_BACK_S,
    NOT_LISTED_THEN,
    PROCESSES_LOOK_BACK_S,
    SILENT_THEN,
    Moment,
    events_at,
    looked_at,
    readings_of,
)
from gpuadvisor.domain.telemetry import HOST, Event, Frame, Gpu, GpuProcess, Number, State
from gpuadvisor.storage.telemetry.files import day_paths, device_names, reading, rows, times
from gpuadvisor.storage.telemetry.schema import (
    DAY_NAMES,
    GPU_TABLES,
    HOST_TABLES,
    INDEX,
    Table,
    present,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

    from gpuadvisor.storage.telemetry.reader import TelemetryReader

POLL_S = SamplingInterval.NORMAL.period_s
"""Seconds for which a poll stands."""
GONE = (
    "The processes of that time are not kept any more: lists of processes and single readings go"
    " after the time that `retention.raw` in the daemon's configuration sets, 48 h unless set."
)
_NAMES = {True: [m.name for m in HOST_METRICS], False: [m.name for m in GPU_METRICS]}


def moment(reader: TelemetryReader, time_s: float) -> Moment:
    """Return what was known at a Unix time; StoreError where a file fails."""
    after_s = math.nextafter(time_s, math.inf)
    gpus = reader.all_gpus()
    lasting = events_at(reader.events(*looked_at(time_s)), time_s)
    latest = Latest()
    for frame in reader.follow(time_s - LOOK_BACK_S, with_processes=False).read(after_s):
        latest.add(frame)
    if latest.time_s:
        is_silent = latest.problem is not None
        processes, listed_s, why = (
            (None, None, SILENT_THEN) if is_silent else _processes(reader, time_s)
        )
        listed = latest.gpus or gpus
        devices = {device: _NAMES[device == HOST] for device in latest.devices}
        return Moment(
            time_s,
            listed,
            readings_of(latest, devices, time_s),
            processes=processes,
            listed_s=listed_s,
            why_no_processes=why,
            unlisted=tuple(gpu.uuid for gpu in listed if not latest.lists(gpu.uuid)),
            events=lasting,
            problem=latest.problem,
        ).without_what_was_before()
    return _of_row(reader, gpus, time_s, lasting)


def _processes(
    reader: TelemetryReader, time_s: float
) -> tuple[tuple[GpuProcess, ...] | None, float | None, str | None]:
    """Return the list before the moment, when it was made, and why it is not whole, if so."""
    since_s, after_s = time_s - PROCESSES_LOOK_BACK_S, math.nextafter(time_s, math.inf)
    listed: list[float] = []
    for path in day_paths(reader.folder, since_s, after_s):
        with reading(path) as connection:
            span = "WHERE ts >= ? AND ts < ?"
            listed += times(connection, "MAX", ("listings",), span, (since_s, after_s))
    if not listed:
        return None, None, NOT_LISTED_THEN
    found: Frame | None = None
    for frame in reader.frames(max(listed), math.nextafter(max(listed), math.inf)):
        found = frame
    processes = None if found is None else found.processes
    why = reader.withheld
    if processes is None and why is None:
        why = "The file with the processes of that day is gone."
    return processes, max(listed), why


def _of_row(
    reader: TelemetryReader, gpus: tuple[Gpu, ...], time_s: float, events: tuple[Event, ...]
) -> Moment:
    """Return the moment from the minute, or the hour, that has it in it.

    Only where the finer rows of that time are gone: else the time was a gap, or before the first
    reading of all, and what was read before or after it in the same hour is nothing of the moment.
    """
    if _is_before_all(reader, time_s, DAY_NAMES):
        for place in (1, 2):
            tables = GPU_TABLES[place], HOST_TABLES[place]
            if found := _rows(reader, tables, time_s):
                if not _polls_gone(reader, place, time_s):
                    break
                row_s = tables[0].period_s
                measured_s = min(_polls(reader, tables, time_s) * POLL_S, row_s)
                return Moment(
                    time_s,
                    gpus,
                    *found,
                    row_s,
                    why_no_processes=GONE,
                    events=events_at(reader.events(*looked_at(time_s, row_s)), time_s, row_s),
                    measured_s=measured_s,
                )
            if not _is_before_all(reader, time_s, (GPU_TABLES[1].name, HOST_TABLES[1].name)):
                break
    return Moment(time_s, gpus, why_no_processes="Nothing was measured then.", events=events)


def _polls(reader: TelemetryReader, tables: Sequence[Table], time_s: float) -> int:
    """Return how often was read what the row with that time stands for: the most of any device."""
    found = [0]
    with reading(reader.folder / INDEX) as connection:
        for table in tables:
            begin_s = time_s // table.period_s * table.period_s
            query = f"SELECT MAX(polls) FROM {table.name} WHERE ts = ?"
            if connection is not None and present(connection, table):
                found += [polls or 0 for (polls,) in rows(connection, query, (begin_s,))]
    return max(found)


def _polls_gone(reader: TelemetryReader, place: int, time_s: float) -> int:
    """Return how many of a row's polls are not among the finer rows of its time any more.

    Where all of them still are, and none is of the moment, it was not measured.
    """
    tables = GPU_TABLES[place], HOST_TABLES[place]
    begin_s = time_s // tables[0].period_s * tables[0].period_s
    span = (begin_s, begin_s + tables[0].period_s)
    is_raw = place == 1
    paths = day_paths(reader.folder, *span) if is_raw else [reader.folder / INDEX]
    left: Counter[str] = Counter()
    for path in paths:
        with reading(path) as connection:
            for table in (GPU_TABLES[place - 1], HOST_TABLES[place - 1]):
                if connection is None or not present(connection, table):
                    continue
                names = device_names(connection)
                count = "COUNT(*)" if is_raw else "SUM(polls)"
                query = (
                    f"SELECT gpu, {count} FROM {table.name} WHERE ts >= ? AND ts < ? GROUP BY gpu"
                )
                for gpu, polls in rows(connection, query, span):
                    left[names[gpu]] += polls
    return _polls(reader, tables, time_s) - max(left.values(), default=0)


def _is_before_all(reader: TelemetryReader, time_s: float, tables: Sequence[str]) -> bool:
    """Say whether the time is before all rows of these tables."""
    is_raw = tuple(tables) == DAY_NAMES
    paths = day_paths(reader.folder) if is_raw else [reader.folder / INDEX]
    for path in paths:
        with reading(path) as connection:
            if any(first <= time_s for first in times(connection, "MIN", tables)):
                return False
    return True


def _rows(
    reader: TelemetryReader, tables: Sequence[Table], time_s: float
) -> tuple[dict[str, dict[str, Reading]], dict[str, dict[str, tuple[Number, Number]]]] | None:
    """Return the readings and their ranges by device and metric of the rows that have the time."""
    readings: dict[str, dict[str, Reading]] = {}
    ranges: dict[str, dict[str, tuple[Number, Number]]] = {}
    with reading(reader.folder / INDEX) as connection:
        names = device_names(connection)
        for table in tables:
            begin_s = time_s // table.period_s * table.period_s
            for number, metric, row in _known(connection, table, begin_s):
                device, found = names[number], Reading(row[metric.name], State.OK, begin_s)
                readings.setdefault(device, {})[metric.name] = found
                if metric.kind is Kind.GAUGE:
                    low, high = row[f"min_{metric.name}"], row[f"max_{metric.name}"]
                    ranges.setdefault(device, {})[metric.name] = (low, high)
    return (readings, ranges) if readings else None


def _known(
    connection: Connection | None, table: Table, begin_s: float
) -> Iterator[tuple[int, Metric, dict[str, Number]]]:
    """Yield the device's number, a metric that it has in a row of that time, and the row."""
    stored = present(connection, table) if connection else set()
    columns = [column.name for column in table.columns if column.name in stored]
    query = f"SELECT gpu, {', '.join(columns)} FROM {table.name} WHERE ts = ?"
    for number, *values in rows(connection if columns else None, query, (begin_s,)):
        row = dict(zip(columns, values, strict=True))
        for metric in table.metrics:
            if row.get(metric.name) is not None:
                yield number, metric, row
