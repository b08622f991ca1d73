"""The telemetry files: their tables, made from the metrics that are known, and their rows.

`index.db` has what is kept for long: roll-ups, events, states. `samples-YYYYMMDD.db` has the raw
rows of one day (UTC), so that the oldest go by removing a file, which also works on a full disk;
`processes-YYYYMMDD.db` has the processes that were listed on it, which are not for everybody.
They are not in gpuadvisor.db: each file has one writer, and a study and the daemon never wait for
each other. Each file names the GPUs of its rows, by numbers that mean nothing in another file, so
that any of them can be moved away and the others still say what they say.

A new metric is a new column, added when the writer opens a file. What changes in another way is a
new `VERSION`. Until the first release a file of another version is refused and left as it is; from
the first release on, old files are migrated, never lost.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from gpuadvisor.domain.metrics import (
    BY_NAME,
    GPU_METRICS,
    HOST_METRICS,
    Kind,
    Metric,
    SamplingInterval,
)
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, GpuProcess, Number
from gpuadvisor.domain.timeline import HOUR_S, MINUTE_S
from gpuadvisor.storage.sqlite_file import check_version, strict

Row = tuple[Any, ...]
_LARGEST = 2**63
"""One more than the largest integer of SQLite."""
_REAL = frozenset(name for name, metric in BY_NAME.items() if not metric.whole)
"""Metrics whose columns hold floats."""

INDEX = "index.db"
HOST_ID = 0
"""The machine's number in the column that holds a GPU's; every file numbers its GPUs itself."""

VERSION = 4
"""Version of the schema, in `PRAGMA user_version` of a file with these tables."""


@dataclass(frozen=True)
class Column:
    """A column that holds a metric, or a statistic of one."""

    name: str
    type: str


@dataclass(frozen=True)
class Table:
    """A table of metrics: a row for each time and GPU. The machine is `HOST_ID`."""

    name: str
    metrics: tuple[Metric, ...]
    period_s: float
    """Length of what a row sums up, from its `ts` on, in seconds; 0 where each poll is a row."""

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns after the key, and after `polls` in a roll-up."""
        return tuple(column for metric in self.metrics for column in self.columns_of(metric))

    def columns_of(self, metric: Metric) -> tuple[Column, ...]:
        """Return the columns that the table has for a metric: in raw rows one of its values.

        Of a gauge, a roll-up has the mean under its own name, and the least, the greatest and the
        95th percentile; of a counter the last value and the first; of a bitmask all bits that were
        set.
        """
        name, kind = metric.name, "INTEGER" if metric.whole else "REAL"
        if self.period_s and metric.kind is Kind.GAUGE:
            parts = tuple(Column(f"{part}_{name}", kind) for part in ("min", "max", "p95"))
            return (Column(name, "REAL"), *parts)
        if self.period_s and metric.kind is Kind.COUNTER:
            return (Column(name, kind), Column(f"first_{name}", kind))
        return (Column(name, kind),)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the metrics."""
        return tuple(metric.name for metric in self.metrics)

    @cached_property
    def insert(self) -> str:
        """The SQL that adds a raw row, unless its key is there."""
        names = ", ".join(["ts", "gpu", *self.names])
        marks = ", ".join("?" * (2 + len(self.names)))
        return f"INSERT OR IGNORE INTO {self.name} ({names}) VALUES ({marks})"

    @property
    def statement(self) -> str:
        """The SQL that creates the table.

        Keys begin with the time, which needs a sixth of the write-ahead log that GPU first needs.
        """
        rows = ["ts REAL NOT NULL", "gpu INTEGER NOT NULL"]
        rows += ["polls INTEGER NOT NULL"] if self.period_s else []
        rows += [f"{column.name} {column.type}" for column in self.columns]
        body = ", ".join([*rows, "PRIMARY KEY (ts, gpu)"])
        return f"CREATE TABLE IF NOT EXISTS {self.name} ({body}) WITHOUT ROWID{{and_strict}}"


_FAST = tuple(metric for metric in GPU_METRICS if metric.interval is SamplingInterval.FAST)

GPU_SAMPLES = Table("gpu_samples", GPU_METRICS, 0.0)
GPU_FAST = Table("gpu_fast", _FAST, 0.0)
"""Polls of the fast metrics between two full ones, kept for some minutes only."""
HOST_SAMPLES = Table("host_samples", HOST_METRICS, 0.0)
GPU_MINUTES = Table("gpu_minutes", GPU_METRICS, MINUTE_S)
HOST_MINUTES = Table("host_minutes", HOST_METRICS, MINUTE_S)
GPU_HOURS = Table("gpu_hours", GPU_METRICS, HOUR_S)
HOST_HOURS = Table("host_hours", HOST_METRICS, HOUR_S)

GPU_TABLES = (GPU_SAMPLES, GPU_MINUTES, GPU_HOURS)
HOST_TABLES = (HOST_SAMPLES, HOST_MINUTES, HOST_HOURS)
"""Raw rows, minutes and hours."""
DAY_TABLES = (GPU_SAMPLES, GPU_FAST, HOST_SAMPLES)
DAY_NAMES = tuple(table.name for table in DAY_TABLES)
INDEX_TABLES = (GPU_MINUTES, HOST_MINUTES, GPU_HOURS, HOST_HOURS)

CommandLines = Literal["full", "script", "program", "hash", "none"]
"""What is stored of a process's command line: all of it, up to its script, its first word, a hash
by which equal ones are known, or nothing."""
PROGRAM_COLUMNS = {
    "pid": "INTEGER NOT NULL",
    "kind": "TEXT NOT NULL",
    "name": "TEXT",
    "user": "TEXT",
    "command": "TEXT",
    "container": "TEXT",
    "is_host_pid": "INTEGER NOT NULL",
    "parent_pid": "INTEGER",
    "started_s": "REAL",
    "by_gpuadvisor": "INTEGER",
}
"""Fields of a `GpuProcess` that stay the same while it lives, and their types in `programs`."""
PROCESS_COLUMNS = {
    "memory_bytes": "INTEGER",
    "sm_utilization_pct": "REAL",
    "cpu_pct": "REAL",
    "host_memory_bytes": "INTEGER",
    "children_cpu_pct": "REAL",
}
"""Fields of a `GpuProcess` that change while it lives, and their types in `processes`."""
PROGRAM, PROCESS = attrgetter(*PROGRAM_COLUMNS), attrgetter(*PROCESS_COLUMNS)
"""Return the values of a `GpuProcess` for these columns."""


def _declared(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


_GPUS = (
    "CREATE TABLE IF NOT EXISTS gpus (id INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE,"
    " place INTEGER, number INTEGER NOT NULL, name TEXT NOT NULL, memory_total_bytes INTEGER,"
    " pci_bus_id TEXT, compute_capability TEXT, parent_uuid TEXT){strict}"
)
_DAY_STATEMENTS = (
    _GPUS,
    # When processes were listed and how many: a file of processes may be closed, or gone.
    "CREATE TABLE IF NOT EXISTS listings (ts REAL PRIMARY KEY, processes INTEGER NOT NULL){strict}",
)
_PROCESS_STATEMENTS = (
    # A program's words are long and always the same, its numbers short and new in every listing.
    "CREATE TABLE IF NOT EXISTS programs (id INTEGER PRIMARY KEY, gpu TEXT NOT NULL,"
    f" {_declared(PROGRAM_COLUMNS)}){{strict}}",
    "CREATE INDEX IF NOT EXISTS programs_by_pid ON programs (pid)",
    "CREATE TABLE IF NOT EXISTS processes (ts REAL NOT NULL, program INTEGER NOT NULL,"
    f" {_declared(PROCESS_COLUMNS)}, PRIMARY KEY (ts, program)) WITHOUT ROWID{{and_strict}}",
)
_INDEX_STATEMENTS = (
    _GPUS,
    "CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, kind TEXT NOT NULL,"
    " gpu TEXT NOT NULL, key TEXT NOT NULL, began_s REAL NOT NULL, ended_s REAL,"
    " severity TEXT NOT NULL, message TEXT NOT NULL, data TEXT NOT NULL,"
    " collected INTEGER NOT NULL, changed INTEGER NOT NULL,"
    " UNIQUE (kind, gpu, key, began_s)){strict}",
    "CREATE INDEX IF NOT EXISTS events_by_time ON events (began_s)",
    "CREATE INDEX IF NOT EXISTS events_by_change ON events (changed)",
    "CREATE INDEX IF NOT EXISTS open_events ON events (began_s) WHERE ended_s IS NULL",
    "CREATE TABLE IF NOT EXISTS states (id INTEGER PRIMARY KEY, ts REAL NOT NULL,"
    " gpu INTEGER NOT NULL, metric TEXT NOT NULL, state TEXT NOT NULL, since_s REAL NOT NULL,"
    " reason TEXT NOT NULL){strict}",
    "CREATE INDEX IF NOT EXISTS states_of_metric ON states (gpu, metric, id)",
    "CREATE TABLE IF NOT EXISTS problems (id INTEGER PRIMARY KEY, ts REAL NOT NULL,"
    " problem TEXT){strict}",
)


FileTables = tuple[tuple[Table, ...], tuple[str, ...]]
"""The tables of metrics in a file, and the statements that create its others."""
OF_INDEX: FileTables = (INDEX_TABLES, _INDEX_STATEMENTS)
OF_DAY: FileTables = (DAY_TABLES, _DAY_STATEMENTS)
OF_PROCESSES: FileTables = ((), _PROCESS_STATEMENTS)
_GROWN = {"programs": PROGRAM_COLUMNS, "processes": PROCESS_COLUMNS}
"""Tables that got columns since they were first written; all of those may be NULL."""


def prepare(connection: sqlite3.Connection, path: Path, content: FileTables) -> None:
    """Give a file its tables and columns, all or none; StoreError for another version."""
    tables, others = content
    options = {"strict": strict(), "and_strict": f",{strict()}" if strict() else ""}
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        is_prepared(connection, path)
        for statement in (*(table.statement for table in tables), *others):
            connection.execute(statement.format_map(options))
        for table in tables:
            known = present(connection, table)
            for column in table.columns:
                if column.name not in known:
                    added = f"ALTER TABLE {table.name} ADD COLUMN {column.name} {column.type}"
                    connection.execute(added)
        for name, declared in _GROWN.items():
            there = columns_in(connection, name)
            for new in declared.keys() - there if there else ():
                connection.execute(f"ALTER TABLE {name} ADD COLUMN {new} {declared[new]}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def is_prepared(connection: sqlite3.Connection, path: Path) -> bool:
    """Say whether the file has its tables; StoreError where they are of another version."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    check_version(path, version, VERSION)
    return version > 0


def present(connection: sqlite3.Connection, table: Table) -> set[str]:
    """Return the columns that the file's table has; an older file lacks newer metrics."""
    return columns_in(connection, table.name)


def columns_in(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table by its name; none where the file has no such table."""
    return {str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})")}


def raw_values(
    connection: sqlite3.Connection, table: Table, condition: str = ""
) -> tuple[list[str], str]:
    """Return the metrics that this file's table has, and the query for ts, gpu and them.

    The query needs the begin and the end of a span, and what the condition asks for.
    """
    known = present(connection, table)
    metrics = [metric.name for metric in table.metrics if metric.name in known]
    return metrics, (
        f"SELECT ts, gpu, {', '.join(metrics)} FROM {table.name}"
        f" WHERE ts >= ? AND ts < ? {condition} ORDER BY ts"
    )


# -- rows ----------------------------------------------------------------------------------------


def fitted(frame: Frame) -> Frame:
    """Return the frame with values that their columns can hold, and nearly always as it is.

    What is unknown, or larger than any real value, is left out.
    """
    if all(_is_fit(sample.values) for sample in frame.samples.values()):
        return frame
    samples = {
        device: replace(
            sample,
            values={
                name: fit
                for name, value in sample.values.items()
                if (metric := BY_NAME.get(name)) and (fit := _fitting(metric, value)) is not None
            },
        )
        for device, sample in frame.samples.items()
    }
    return replace(frame, samples=samples)


def _is_fit(values: Mapping[str, Number]) -> bool:
    for name, value in values.items():
        if value.__class__ is not int:
            if name not in _REAL:
                return False
        elif not -_LARGEST < value < _LARGEST or name not in BY_NAME:
            return False
    return True  # a whole number fits REAL, too: SQLite makes it one


def _fitting(metric: Metric, value: Number) -> Number | None:
    if not metric.whole:
        return float(value)
    return int(value) if abs(value) < _LARGEST else None


GPU_COLUMNS = (
    "uuid, place, number, name, memory_total_bytes, pci_bus_id, compute_capability, parent_uuid"
)
ALL_GPUS = f"SELECT {GPU_COLUMNS} FROM gpus"
"""The query for every GPU of which the file has rows, present or not."""
LISTED_GPUS = f"SELECT {GPU_COLUMNS} FROM gpus WHERE place IS NOT NULL ORDER BY place"
"""The query for the GPUs that the writer saw last, in the driver's order."""

INSTANCES = "SELECT uuid, parent_uuid FROM gpus WHERE parent_uuid IS NOT NULL"
"""The query for the MIG instances, present or not, with the GPU that each is a part of."""


def gpu_row(gpu: Gpu, place: int | None) -> Row:
    """Return the columns of GPU_COLUMNS. `place` is that in the list; None: not present."""
    capability = gpu.compute_capability and ".".join(map(str, gpu.compute_capability))
    return (
        gpu.uuid, place, gpu.index, gpu.name, gpu.memory_total_bytes, gpu.pci_bus_id, capability,
        gpu.parent_uuid,
    )  # fmt: skip


def gpu_of(row: Sequence[Any]) -> Gpu:
    """Return the GPU of a row of GPU_COLUMNS."""
    uuid, _, number, name, memory, bus_id, capability, parent = row
    major, _, minor = (capability or "").partition(".")
    return Gpu(
        uuid, number, name, memory, bus_id, (int(major), int(minor)) if capability else None, parent
    )


EVENT_COLUMNS = "kind, gpu, key, began_s, ended_s, severity, message, data"


def event_row(event: Event) -> Row:
    """Return the columns of EVENT_COLUMNS; no GPU is an empty text, as NULLs are all different."""
    return (
        event.kind, event.gpu or "", event.key, event.began_s, event.ended_s, str(event.severity),
        event.message, json.dumps(dict(event.data)),
    )  # fmt: skip


def event_of(row: Sequence[Any]) -> Event:
    """Return the event of a row of EVENT_COLUMNS."""
    kind, gpu, key, began_s, ended_s, severity, message, data = row
    return Event(
        kind, began_s, message, Severity(severity), gpu or None, ended_s, key, json.loads(data)
    )


def process_of(gpu: str, row: Sequence[Any]) -> GpuProcess:
    """Return the process of a row of PROGRAM_COLUMNS and PROCESS_COLUMNS."""
    fields = dict(zip((*PROGRAM_COLUMNS, *PROCESS_COLUMNS), row, strict=True))
    advised = fields["by_gpuadvisor"]
    fields["is_host_pid"] = bool(fields["is_host_pid"])
    fields["by_gpuadvisor"] = None if advised is None else bool(advised)
    return GpuProcess(gpu, **fields)
