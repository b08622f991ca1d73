"""Writing the raw rows of one day."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpuadvisor.domain.telemetry import HOST, Frame, GpuProcess
from gpuadvisor.storage.sqlite_file import connect, explained
from gpuadvisor.storage.telemetry import schema
from gpuadvisor.storage.telemetry.schema import (
    GPU_FAST,
    GPU_SAMPLES,
    HOST_ID,
    HOST_SAMPLES,
    PROCESS_COLUMNS,
    PROGRAM_COLUMNS,
    Row,
    Table,
    process_row,
    program_row,
    values_of,
)

FAST_KEPT_S = 900.0
"""Seconds for which fast polls are kept: ten a second of eight GPUs are 630 MB a day, 7 MB so."""


class DayFile:
    """One day's file, open for the one that writes it."""

    def __init__(self, path: Path) -> None:
        """Open the file, created if need be; StoreError where it cannot be."""
        self.path = path
        with explained(path):
            self.connection = connect(path)
            try:
                schema.prepare(self.connection, path, is_index=False)
                self._programs = self._known_programs()
            except BaseException:
                self.connection.close()
                raise

    def write(self, frames: Iterable[Frame], ids: Mapping[str, int]) -> None:
        """Write all frames or none; those that an earlier attempt has written are kept."""
        with explained(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                self._write(frames, ids)
                self.connection.execute("COMMIT")
            except BaseException:
                self._programs = {}  # those of this attempt are not in the file
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def tend(self, now_s: float) -> None:
        """Remove fast polls that are old enough, and empty the write-ahead log."""
        with explained(self.path):
            self.connection.execute(
                f"DELETE FROM {GPU_FAST.name} WHERE ts < ?", (now_s - FAST_KEPT_S,)
            )
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Close the file; what was written is safe before as well."""
        self.connection.close()

    def _write(self, frames: Iterable[Frame], ids: Mapping[str, int]) -> None:
        rows: dict[str, list[Row]] = {
            GPU_SAMPLES.name: [],
            GPU_FAST.name: [],
            HOST_SAMPLES.name: [],
        }
        for frame in frames:
            gpus = GPU_SAMPLES if frame.full else GPU_FAST
            for device, sample in frame.samples.items():
                number = HOST_ID if device == HOST else ids[device]
                table = HOST_SAMPLES if device == HOST else gpus
                row = (frame.time_s, number, *values_of(table.metrics, sample.values))
                rows[table.name].append(row)
            if frame.processes is not None:
                self._list(frame.time_s, frame.processes, ids)
        for table in schema.DAY_TABLES:
            self._insert(table, rows[table.name])

    def _insert(self, table: Table, rows: Sequence[Row]) -> None:
        if not rows:
            return
        columns = ", ".join(column.name for column in table.columns)
        marks = ", ".join("?" * (2 + len(table.columns)))
        insert = f"INSERT OR IGNORE INTO {table.name} (ts, gpu, {columns}) VALUES ({marks})"
        if self.connection.executemany(insert, rows).rowcount < len(rows):
            select = f"SELECT ts, gpu, {columns} FROM {table.name} WHERE ts = ? AND gpu = ?"
            for row in rows:
                self._insert_beside(select, insert, row)

    def _insert_beside(self, select: str, insert: str, row: Row) -> None:
        """Write a row whose key another may have, as a clock that was set back comes by again."""
        while found := self.connection.execute(select, row[:2]).fetchone():
            if found == row:
                return
            row = (math.nextafter(row[0], math.inf), *row[1:])
        self.connection.execute(insert, row)

    def _list(self, time_s: float, processes: Iterable[GpuProcess], ids: Mapping[str, int]) -> None:
        self.connection.execute("INSERT OR IGNORE INTO listings VALUES (?)", (time_s,))
        self.connection.executemany(
            f"INSERT OR REPLACE INTO processes (ts, program, {', '.join(PROCESS_COLUMNS)})"
            f" VALUES (?, ?{', ?' * len(PROCESS_COLUMNS)})",
            [
                (time_s, self._program(process, ids[process.gpu]), *process_row(process))
                for process in processes
            ],
        )

    def _program(self, process: GpuProcess, gpu: int) -> int:
        row = program_row(process, gpu)
        if row not in self._programs:
            self._programs |= self._known_programs(process.pid)
        if row not in self._programs:
            added = self.connection.execute(
                f"INSERT INTO programs (gpu, {', '.join(PROGRAM_COLUMNS)})"
                f" VALUES (?{', ?' * len(PROGRAM_COLUMNS)})",
                row,
            )
            self._programs[row] = int(added.lastrowid or 0)
        return self._programs[row]

    def _known_programs(self, pid: int | None = None) -> dict[Row, int]:
        where = "" if pid is None else f" WHERE pid = {int(pid)}"
        query = f"SELECT id, gpu, {', '.join(PROGRAM_COLUMNS)} FROM programs{where}"
        return {tuple(row[1:]): row[0] for row in self.connection.execute(query)}
