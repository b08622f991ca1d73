"""A metric over time as a chart needs it: thinned to its columns, from rows that are fine enough.

Roll-ups are thinned in SQL, since a day of eight GPUs has 11,520 minutes and 691,200 sweeps. Single
sweeps are looked at for two hours at most.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuadvisor.domain.accumulators import MISSED_READINGS, PATIENCE_S
from gpuadvisor.domain.metrics import BY_NAME, HOST_METRICS, Kind, Metric, SamplingInterval
from gpuadvisor.domain.telemetry import Number, State
from gpuadvisor.domain.timeline import (
    HOUR_S,
    MINUTE_S,
    Grid,
    Thinning,
    Timeline,
    TimelineRequest,
    grid,
    increase,
)
from gpuadvisor.storage.telemetry.files import device_names, reading, rows, times
from gpuadvisor.storage.telemetry.schema import (
    GPU_FAST,
    GPU_TABLES,
    HOST_TABLES,
    INDEX,
    Table,
    present,
)
from gpuadvisor.storage.telemetry.tables import files_of

LONGEST_RAW_S = 2 * HOUR_S
"""Longest chart of single sweeps: of eight GPUs they are 57,600, which take 0.1 s."""
_FULL_S = SamplingInterval.NORMAL.period_s
"""Time from one full sweep to the next."""


class _Chain(NamedTuple):
    """Tables to read: the first, and from where it ends, as the rest is not rolled up yet, the
    next."""

    tables: tuple[Table, ...]
    at_least_s: float


def timelines(
    folder: Path, wanted: TimelineRequest, devices: Sequence[str], now_s: float
) -> dict[str, Timeline]:
    """Return what is wanted, of these devices at this time.

    A column is as long as the coarsest row that had to be looked at. StoreError where a file fails.
    """
    known = BY_NAME[wanted.metric]
    chain = _chain(folder, known, wanted)
    at_least_s = max(chain.at_least_s, wanted.at_least_s)
    chosen = grid(wanted.since_s, wanted.until_s, wanted.columns, now_s, at_least_s)
    made = {device: Thinning(known, chosen) for device in devices}
    begin_s, end_s, row_s = chosen.begin_s, chosen.end_s, 0.0
    for table in chain.tables:
        if begin_s >= end_s:
            break
        if not table.period_s:
            _add_readings(folder, table, known, made, chosen, begin_s)
            break
        last_s = _last(folder, table, begin_s, end_s)  # first: what is rolled up meanwhile is
        if last_s is not None:  # among the next table's rows as well
            until = min(last_s + table.period_s, end_s)
            _add_rows(folder, table, known, made, chosen, begin_s, until)
            begin_s, row_s = until, max(row_s, table.period_s)
    if row_s:
        _take_away_unknown(folder, wanted.metric, made, chosen, begin_s)
    return {
        device: Timeline(wanted.metric, chosen.begin_s, chosen.step_s, thinning.columns(), row_s)
        for device, thinning in made.items()
    }


def _chain(folder: Path, metric: Metric, wanted: TimelineRequest) -> _Chain:
    """Return the finest tables that do not take too long, but coarser ones where they alone still
    have the span's beginning."""
    raw, minutes, hours = HOST_TABLES if metric in HOST_METRICS else GPU_TABLES
    since_s, until_s = wanted.since_s, wanted.until_s
    step_s = grid(since_s, until_s, wanted.columns, until_s, wanted.at_least_s).step_s
    if step_s < MINUTE_S and until_s - since_s <= LONGEST_RAW_S:
        finer_s = min(_firsts(folder, raw, since_s, until_s), default=math.inf)
        if not _has(folder, minutes, since_s, min(finer_s // MINUTE_S * MINUTE_S, until_s)):
            return _Chain((raw,), 0.0)
    if step_s < HOUR_S or step_s % HOUR_S:
        finer_s = min(
            (*_firsts(folder, minutes, since_s, until_s), *_firsts(folder, raw, since_s, until_s)),
            default=math.inf,
        )
        if not _has(folder, hours, since_s, min(finer_s // HOUR_S * HOUR_S, until_s)):
            return _Chain((minutes, raw), MINUTE_S)
    return _Chain((hours, minutes, raw), HOUR_S)


def _firsts(folder: Path, table: Table, since_s: float, until_s: float) -> list[float]:
    """Return the time of the table's first row in the span, if any."""
    span = "WHERE ts >= ? AND ts < ?"
    for path in files_of(folder, table, since_s, until_s):
        with reading(path) as connection:
            if found := times(connection, "MIN", (table.name,), span, (since_s, until_s)):
                return found
    return []


def _has(folder: Path, table: Table, since_s: float, until_s: float) -> bool:
    """Say whether the table has rows of whole periods in the span."""
    begin_s = since_s // table.period_s * table.period_s
    return until_s > begin_s and bool(_firsts(folder, table, begin_s, until_s))


def _last(folder: Path, table: Table, since_s: float, until_s: float) -> float | None:
    with reading(folder / INDEX) as connection:
        span = "WHERE ts >= ? AND ts < ?"
        found = times(connection, "MAX", (table.name,), span, (since_s, until_s))
    return found[0] if found else None


def _numbers(
    connection: sqlite3.Connection, devices: Mapping[str, Thinning]
) -> tuple[dict[int, str], str]:
    """Return the devices by their numbers in this file, and the SQL that chooses them."""
    names = device_names(connection)
    found = {number: name for number, name in names.items() if name in devices}
    return found, f"gpu IN ({', '.join(map(str, found))})"


# -- single sweeps ---------------------------------------------------------------------------------


def _add_readings(
    folder: Path,
    table: Table,
    metric: Metric,
    devices: Mapping[str, Thinning],
    chosen: Grid,
    from_s: float,
) -> None:
    patience_s = PATIENCE_S[metric.name]
    span = (from_s - patience_s, chosen.end_s + patience_s)
    fast = (GPU_FAST,) if metric in GPU_FAST.metrics else ()
    found: dict[str, tuple[list[float], list[Number]]] = {name: ([], []) for name in devices}
    for path in files_of(folder, table, *span):
        with reading(path) as connection:
            if connection is None:
                continue
            connection.execute("BEGIN")  # else a frame that is written meanwhile is read in part
            numbers, which = _numbers(connection, devices)
            queries = [
                f"SELECT gpu, ts, {metric.name} FROM {each.name} WHERE ts >= ? AND ts < ?"
                f" AND {which} AND {metric.name} IS NOT NULL"
                for each in (table, *fast)
                if metric.name in present(connection, each)
            ]
            if not queries:
                continue
            query = f"{' UNION ALL '.join(queries)} ORDER BY 2"
            for number, time_s, value in rows(connection, query, span * len(queries)):
                moments, values = found[numbers[number]]
                moments.append(time_s)
                values.append(value)
    for name, (moments, values) in found.items():
        devices[name].add_readings(moments, values, from_s)


# -- minutes and hours -----------------------------------------------------------------------------


def _add_rows(
    folder: Path,
    table: Table,
    metric: Metric,
    devices: Mapping[str, Thinning],
    chosen: Grid,
    since_s: float,
    until_s: float,
) -> None:
    with reading(folder / INDEX) as connection:
        if connection is None or metric.name not in present(connection, table):
            return
        numbers, which = _numbers(connection, devices)
        where = f"FROM {table.name} WHERE ts >= ? AND ts < ? AND {which}"
        # Every poll that is not missing took its second; one that is late does not make a gap.
        enough = table.period_s - MISSED_READINGS * _FULL_S
        known = (
            f"CASE WHEN polls * {_FULL_S} >= {enough} THEN {table.period_s}"
            f" ELSE polls * {_FULL_S} END"
        )
        at = f"CAST((ts - {chosen.begin_s!r}) / {chosen.step_s!r} AS INTEGER)"
        span = (since_s, until_s)
        if metric.kind is Kind.COUNTER:
            query = f"SELECT gpu, {at}, ts, first_{metric.name}, {metric.name}, {known} {where}"
            found = rows(connection, f"{query} ORDER BY ts", span)
            _add_counters(table.period_s, found, numbers, devices)
            return
        low, high = (
            (f"min_{metric.name}", f"max_{metric.name}")
            if metric.kind is Kind.GAUGE
            else (metric.name, metric.name)
        )
        by_flags = f", {metric.name}" if metric.kind is Kind.BITMASK else ""
        query = (
            f"SELECT gpu, {at}, SUM({known}), MIN({low}), MAX({high}),"
            f" SUM({metric.name} * polls), SUM(polls * ({metric.name} IS NOT NULL))"
            f" {where} GROUP BY 1, 2{by_flags}"
        )
        for number, place, known_s, *part in rows(connection, query, span):
            devices[numbers[number]].add_rows(place, known_s, part if part[0] is not None else None)


def _add_counters(
    period_s: float,
    found: Sequence[tuple[int, int, float, Number, Number | None, float]],
    numbers: Mapping[int, str],
    devices: Mapping[str, Thinning],
) -> None:
    """Add what counters grew by in each row, and since the row before where none is missing."""
    last: dict[int, tuple[float, Number]] = {}
    for number, place, begin_s, first, value, known_s in found:
        part = None
        if value is not None:
            grown = increase(first, value)
            end_s, before = last.get(number, (-math.inf, 0))
            if end_s == begin_s:
                grown += increase(before, first)
            last[number] = (begin_s + period_s, value)
            part = (grown, grown, grown, 1)
        devices[numbers[number]].add_rows(place, known_s, part)


def _take_away_unknown(
    folder: Path, metric: str, devices: Mapping[str, Thinning], chosen: Grid, until_s: float
) -> None:
    """Take away when the metric was stale, lost or not allowed: the rows' polls do not tell, as
    other metrics may have been read."""
    patience_s = PATIENCE_S[metric]
    with reading(folder / INDEX) as connection:
        numbers, which = _numbers(connection, devices) if connection else ({}, "")
        began_s: dict[int, float] = {}
        spans: dict[int, list[tuple[float, float]]] = {number: [] for number in numbers}
        query = (
            f"SELECT gpu, ts, state, since_s FROM states WHERE {which} AND metric = ? AND ts < ?"
            " ORDER BY id"
        )
        changes = rows(connection, query, (metric, until_s)) if numbers else []
    for number, time_s, state, since_s in changes:
        if state != State.OK:
            began_s.setdefault(number, since_s)
        elif number in began_s:
            spans[number].append((began_s.pop(number), time_s))
    for number, since_s in began_s.items():
        spans[number].append((since_s, until_s))
    for number, found in spans.items():
        devices[numbers[number]].add_unknown(
            (since_s, end_s)
            for since_s, end_s in found
            if end_s - since_s > patience_s and end_s > chosen.begin_s and since_s < chosen.end_s
        )
