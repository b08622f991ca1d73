"""Tables of telemetry, read in chunks of columns while they are used."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.telemetry.files import (
    DAY_S,
    PROCESSES,
    begin_of_path,
    day_paths,
    device_names,
    reading,
)
from gpuadvisor.storage.telemetry.listed_processes import ProcessReader
from gpuadvisor.storage.telemetry.schema import (
    INDEX,
    PROCESS_COLUMNS,
    PROGRAM_COLUMNS,
    Table,
    present,
)

CHUNK_VALUES = 1_000_000
"""Values read at once, so that no transaction stays open while they are used: 32 MB at most, which
are 5,000 rows of a minute with all metrics."""
WORTH_COUNTING = 4
"""Metrics from which on it is looked first which of them any row has."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table, in which only those columns are that any of the rows has."""

    names: Sequence[str]
    """Names of the columns after time and GPU."""
    rows: Sequence[tuple[Any, ...]]
    """The time (Unix, in seconds), what stands for the GPU, and the values of `names`."""
    devices: Mapping[Any, str]
    """UUIDs of GPUs, and HOST, by what stands for them: their number in the file, or itself."""


@dataclass(frozen=True)
class Rows:
    """A table of telemetry, which is read while it is used, once."""

    resolution: str
    """`raw`, `minute` or `hour`."""
    columns: tuple[str, ...]
    """`time_s`, `gpu` (its UUID), and metrics or their statistics."""
    types: tuple[str, ...]
    """SQL's names of the columns' types: REAL, TEXT, INTEGER. All but the first may be NULL."""
    chunks: Iterator[Chunk]

    @property
    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The rows one by one, with all columns."""
        for chunk in self.chunks:
            known = {name: place for place, name in enumerate(chunk.names, 2)}
            places = [known.get(name) for name in self.columns[2:]]
            for row in chunk.rows:
                values = (None if place is None else row[place] for place in places)
                yield (row[0], chunk.devices[row[1]], *values)


def files_of(folder: Path, table: Table, since_s: float, until_s: float) -> list[Path]:
    """Return the files that may have rows of this table in the span, the oldest first."""
    return [folder / INDEX] if table.period_s else day_paths(folder, since_s, until_s)


def chunks_of(
    folder: Path,
    table: Table,
    names: Sequence[str],
    gpus: Sequence[str] | None,
    since_s: float,
    until_s: float,
) -> Iterator[Chunk]:
    """Yield the rows of a span with these columns, in order of time and GPU."""
    which = ""
    if gpus is not None:
        marks = ", ".join("?" * len(gpus))
        which = f" AND gpu IN (SELECT id FROM gpus WHERE uuid IN ({marks}))"
    most = max(CHUNK_VALUES // (len(names) + 2), 1)
    for path in files_of(folder, table, since_s, until_s):
        with reading(path) as connection:
            if connection is None:
                continue
            begin_s = since_s
            while (end_s := _chunk_end(connection, table, begin_s, until_s, most)) is not None:
                span = (begin_s, end_s, *(gpus or ()))
                if (found := _chunk(connection, table, names, which, span)).rows:
                    yield found
                begin_s = end_s


def _chunk(
    connection: sqlite3.Connection,
    table: Table,
    names: Sequence[str],
    which: str,
    values: Sequence[Any],
) -> Chunk:
    """Return the rows of a span. A metric that no row has, as most of a GPU's, costs nothing."""
    where = f"FROM {table.name} WHERE ts >= ? AND ts < ?{which}"
    connection.execute("BEGIN")  # else a row may come between the two queries
    try:
        there = present(connection, table)
        known = [name for name in names if name in there]
        metrics = [metric.name for metric in table.metrics if metric.name in known]
        if len(metrics) > WORTH_COUNTING:
            counted = ", ".join(f"COUNT({name})" for name in metrics)
            counts = connection.execute(f"SELECT {counted} {where}", values).fetchone()
            empty = {
                column.name
                for metric, count in zip(metrics, counts, strict=True)
                if not count
                for column in table.columns_of(BY_NAME[metric])
            }
            known = [name for name in known if name not in empty]
        selected = ", ".join(("ts", "gpu", *known))
        found = connection.execute(f"SELECT {selected} {where} ORDER BY ts, gpu", values).fetchall()
        return Chunk(known, found, device_names(connection))
    finally:
        connection.execute("COMMIT")


def _chunk_end(
    connection: sqlite3.Connection, table: Table, begin_s: float, until_s: float, most: int
) -> float | None:
    """Return the time before which to read next, some `most` rows; None where none is left."""
    span = (begin_s, until_s)
    where = f"FROM {table.name} WHERE ts >= ? AND ts < ?"
    if connection.execute(f"SELECT 1 {where} LIMIT 1", span).fetchone() is None:
        return None
    row = connection.execute(
        f"SELECT ts {where} ORDER BY ts LIMIT 1 OFFSET {most}", span
    ).fetchone()
    return until_s if row is None else max(float(row[0]), _after(connection, table, begin_s))


def _after(connection: sqlite3.Connection, table: Table, begin_s: float) -> float:
    """Return the second time from `begin_s` on, so that every chunk has at least one."""
    rows = connection.execute(
        f"SELECT DISTINCT ts FROM {table.name} WHERE ts >= ? ORDER BY ts LIMIT 2", (begin_s,)
    ).fetchall()
    return float(rows[-1][0])


_PROCESS_COLUMNS = (*PROGRAM_COLUMNS, *PROCESS_COLUMNS)


def process_chunks(
    folder: Path, processes: ProcessReader, since_s: float, until_s: float
) -> Iterator[Chunk]:
    """Yield the listed processes in order of time; StoreError where they cannot be had."""
    for path in day_paths(folder, since_s, until_s, PROCESSES):
        begin_s = begin_of_path(path)
        span = (max(since_s, begin_s), min(until_s, begin_s + DAY_S))
        for answer in processes.read(*span):
            if answer.problem:
                raise StoreError(answer.problem)
            programs = answer.programs
            found = [(ts, programs[n][0], *programs[n][1:], *rest) for ts, n, *rest in answer.rows]
            if found:
                devices = {program[0]: program[0] for program in programs.values()}
                yield Chunk(_PROCESS_COLUMNS, found, devices)
