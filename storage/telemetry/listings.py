"""Processes on GPUs as a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuadvisor.storage.telemetry import days
from gpuadvisor.storage.telemetry.charts import Rows
from gpuadvisor.storage.telemetry.read_only import device_names, reading, rows

COLUMNS = {
    "pid": "INTEGER",
    "kind": "TEXT",
    "name": "TEXT",
    "user": "TEXT",
    "command": "TEXT",
    "container": "TEXT",
    "is_host_pid": "INTEGER",
    "parent_pid": "INTEGER",
    "started_s": "REAL",
    "memory_bytes": "INTEGER",
    "sm_utilization_pct": "REAL",
    "cpu_pct": "REAL",
    "host_memory_bytes": "INTEGER",
}
CHUNK_S = 3600.0
"""Read at a time, so that no transaction stays open while the rows are used."""


def processes(folder: Path, since_s: float, until_s: float) -> Rows:
    """Return each process that was listed then, a row for each listing."""
    columns, types = ("time_s", "gpu", *COLUMNS), ("REAL", "TEXT", *COLUMNS.values())
    return Rows("raw", columns, types, _rows(folder, since_s, until_s))


def _rows(folder: Path, since_s: float, until_s: float) -> Iterator[tuple[Any, ...]]:
    query = (
        f"SELECT ts, gpu, {', '.join(COLUMNS)} FROM processes"
        " JOIN programs ON programs.id = program WHERE ts >= ? AND ts < ? ORDER BY ts, gpu, pid"
    )
    for path in days.files(folder, since_s, until_s):
        begin_s = max(since_s, days.begin_of_file(path))
        day_end_s = min(until_s, days.begin_of_file(path) + days.DAY_S)
        while begin_s < day_end_s:
            end_s = min(begin_s + CHUNK_S, day_end_s)
            with reading(path) as connection:
                found = rows(connection, query, (begin_s, end_s))
            names = device_names(folder)  # after the rows: it has all of their GPUs
            yield from ((time_s, names.get(gpu), *each) for time_s, gpu, *each in found)
            begin_s = end_s
