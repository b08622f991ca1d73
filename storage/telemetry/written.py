"""The files as the one that writes them has them open: raw rows of a day, and what is kept long."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import ClassVar

from gpuadvisor.domain.telemetry import HOST, Event, Frame, Gpu, GpuProcess, State, Unavailable
from gpuadvisor.storage.home import PRIVATE_FILE, SHARED_FILE
from gpuadvisor.storage.sqlite_file import connect, explained
from gpuadvisor.storage.telemetry import schema
from gpuadvisor.storage.telemetry.rollups import Rolled, RolledRow
from gpuadvisor.storage.telemetry.schema import (
    EVENT_COLUMNS,
    GPU_COLUMNS,
    GPU_FAST,
    GPU_SAMPLES,
    HOST_ID,
    HOST_SAMPLES,
    PROCESS_COLUMNS,
    PROGRAM_COLUMNS,
    CommandLines,
    Row,
    Table,
)

FAST_KEPT_S = 900.0
"""Seconds for which fast polls are kept: ten a second of eight GPUs are 630 MB a day, 7 MB so."""

PATIENCE_S = 5.0
"""Seconds to wait for one who has locked a file before that is said; then it is tried again."""
_OK = str(State.OK)
_UNKNOWN_NAME = "unknown GPU"


class WrittenFile:
    """A file of the store, open for the one that writes it."""

    content: ClassVar[schema.FileTables]
    mode: ClassVar[int] = SHARED_FILE
    """The permissions of a new file."""

    def __init__(self, path: Path) -> None:
        """Open the file, created if need be; StoreError where it cannot be."""
        self.path = path
        with explained(path):
            self.connection = connect(path, mode=self.mode)
            try:
                self.connection.execute(f"PRAGMA busy_timeout = {round(PATIENCE_S * 1000)}")
                schema.prepare(self.connection, path, self.content)
                self._load()
            except BaseException:
                self.connection.close()
                raise
        self._opened = _identity(path)

    def _load(self) -> None:
        """Read what the file has of an earlier writer."""

    def is_moved(self) -> bool:
        """Return whether somebody has moved or removed the file, which SQLite does not see."""
        return _identity(self.path) != self._opened

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all that the block does, or nothing; StoreError where it cannot be written."""
        with explained(self.path), self.connection:
            self.connection.execute("BEGIN IMMEDIATE")
            yield self.connection

    def empty_log(self) -> None:
        """Copy what the write-ahead log has into the file, as far as readers let it."""
        with explained(self.path):
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Close the file; what was written is safe before as well.

        It leaves the write-ahead log, without which a file can be read by those who may not write
        beside it, unless a reader has it open now.
        """
        with suppress(sqlite3.Error):
            self.connection.execute("PRAGMA busy_timeout = 0")
            self.connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        self.connection.close()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


# -- a day -----------------------------------------------------------------------------------------


class DayFile(WrittenFile):
    """One day's file with its raw rows."""

    content = schema.OF_DAY

    def _load(self) -> None:
        self._described: Sequence[Row] = ()

    def write(self, frames: Iterable[Frame], described: Sequence[Row]) -> None:
        """Write all frames or none; those that an earlier attempt has written are kept.

        The frames are `fitted`; `described` are rows of GPU_COLUMNS, of every GPU that is in them.
        """
        try:
            with self.transaction():
                if described != self._described:
                    self._describe(described)
                self._write(frames, self._ids)
        except BaseException:
            self._described = ()  # those of this attempt are not in the file
            raise

    def _describe(self, gpus: Sequence[Row]) -> None:
        self.connection.execute("UPDATE gpus SET place = NULL")
        self.connection.executemany(_upsert("gpus", GPU_COLUMNS, "uuid"), gpus)
        self._ids = _ids(self.connection)
        self._described = gpus

    def trim(self, before_s: float) -> None:
        """Remove the rows from before this Unix time."""
        with self.transaction() as connection:
            for table in (*schema.DAY_NAMES, "listings"):
                connection.execute(f"DELETE FROM {table} WHERE ts < ?", (before_s,))

    def tend(self, now_s: float) -> None:
        """Remove fast polls that are old enough, and empty the write-ahead log."""
        with explained(self.path):
            self.connection.execute(
                f"DELETE FROM {GPU_FAST.name} WHERE ts < ?", (now_s - FAST_KEPT_S,)
            )
        self.empty_log()

    def _write(self, frames: Iterable[Frame], ids: Mapping[str, int]) -> None:
        rows: dict[str, list[Row]] = {table.name: [] for table in schema.DAY_TABLES}
        for frame in frames:
            gpus = GPU_SAMPLES if frame.full else GPU_FAST
            for device, sample in frame.samples.items():
                table = HOST_SAMPLES if device == HOST else gpus
                row = (frame.time_s, ids[device], *map(sample.values.get, table.names))
                rows[table.name].append(row)
            if frame.processes is not None:
                self.connection.execute(
                    "INSERT OR REPLACE INTO listings VALUES (?, ?)",
                    (frame.time_s, len(frame.processes)),
                )
        for table in schema.DAY_TABLES:
            self._insert(table, rows[table.name])

    def _insert(self, table: Table, rows: Sequence[Row]) -> None:
        if not rows:
            return
        if self.connection.executemany(table.insert, rows).rowcount < len(rows):
            columns = ", ".join(table.names)
            select = f"SELECT ts, gpu, {columns} FROM {table.name} WHERE ts = ? AND gpu = ?"
            for row in rows:
                self._insert_beside(select, table.insert, row)

    def _insert_beside(self, select: str, insert: str, row: Row) -> None:
        """Write a row whose key another may have, as a clock that was set back comes by again."""
        while found := self.connection.execute(select, row[:2]).fetchone():
            if found == row:
                return
            row = (math.nextafter(row[0], math.inf), *row[1:])
        self.connection.execute(insert, row)


class ProcessFile(WrittenFile):
    """One day's file with the processes that were listed, which its owner alone can read."""

    content = schema.OF_PROCESSES
    mode = PRIVATE_FILE

    def _load(self) -> None:
        # What is removed, such as a command line, must not stay readable in the file.
        self.connection.execute("PRAGMA secure_delete = ON")
        self._programs = self._known_programs()

    def write(self, frames: Iterable[Frame], command_lines: CommandLines) -> None:
        """Write the processes of all frames or none; what an earlier attempt has written is kept.

        It comes before the day's other file, which says that there was a listing.
        """
        self._command_lines = command_lines
        try:
            with self.transaction() as connection:
                connection.executemany(
                    f"INSERT OR REPLACE INTO processes (ts, program, {', '.join(PROCESS_COLUMNS)})"
                    f" VALUES (?, ?{', ?' * len(PROCESS_COLUMNS)})",
                    [
                        (frame.time_s, self._program(process), *schema.PROCESS(process))
                        for frame in frames
                        for process in frame.processes or ()
                    ],
                )
        except BaseException:
            self._programs = {}  # those of this attempt are not in the file
            raise

    def trim(self, before_s: float) -> None:
        """Remove the rows from before this Unix time, and programs of which no row is left."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM processes WHERE ts < ?", (before_s,))
            connection.execute(
                "DELETE FROM programs WHERE id NOT IN (SELECT program FROM processes)"
            )
        self._programs = {}

    def tend(self, _: float) -> None:
        """Empty the write-ahead log."""
        self.empty_log()

    def _program(self, process: GpuProcess) -> int:
        if self._command_lines != "full":
            process = replace(process, command=shortened(process.command, self._command_lines))
        row = (process.gpu, *schema.PROGRAM(process))
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


def shortened(command: str | None, kept: CommandLines) -> str | None:
    """Return what is stored of a command line. A hash is of the whole, without a key: who can guess
    a command line can check the guess."""
    if command is None or kept == "none":
        return None
    words = command.split(" ")
    if kept == "program":
        return words[0]
    if kept == "hash":
        return f"sha256:{sha256(command.encode('utf-8', 'replace')).hexdigest()[:16]}"
    if kept == "script":
        ends = (place for place, word in enumerate(words) if word.endswith(".py"))
        modules = (place + 1 for place, word in enumerate(words[:-1]) if word == "-m")
        return " ".join(words[: min(chain(ends, modules), default=0) + 1])
    return command


# -- what is kept for long -------------------------------------------------------------------------


class IndexFile(WrittenFile):
    """index.db: GPUs, states, events, roll-ups."""

    content = schema.OF_INDEX

    def _load(self) -> None:
        self.ids = _ids(self.connection)
        """A GPU's number by its UUID, and the machine's by HOST."""
        self.described: list[Row] = self.connection.execute(schema.ALL_GPUS).fetchall()
        """A row of GPU_COLUMNS for each GPU."""
        self._gpus: tuple[Gpu, ...] | None = None
        self._unavailable: dict[str, Mapping[str, Unavailable]] = self._last_unavailable()
        problem = self.connection.execute(
            "SELECT problem FROM problems ORDER BY id DESC LIMIT 1"
        ).fetchone()
        self._problem: str | None = problem[0] if problem else None

    def adopt(self, gpus: Iterable[Row]) -> None:
        """Take in the GPUs (rows of GPU_COLUMNS, the newest first) that other files know."""
        unknown: dict[str, Row] = {}
        for row in gpus:
            if row[0] not in self.ids:
                unknown.setdefault(row[0], row)
        if unknown:
            with self.transaction() as connection:
                connection.executemany(_upsert("gpus", GPU_COLUMNS, "uuid"), unknown.values())
            self._load()

    def note_gpus(self, frames: Sequence[Frame]) -> None:
        """Give every GPU in the frames its number."""
        lists = [frame.gpus for frame in frames if frame.gpus not in (None, self._gpus)]
        named = {
            uuid
            for frame in frames
            for uuid in (*frame.samples, *(each.gpu for each in frame.processes or ()))
        }
        told = {gpu.uuid: gpu for gpus in lists for gpu in gpus or ()}
        unknown = named - self.ids.keys() - told.keys()
        if not lists and not unknown:
            return
        listed = lists[-1] if lists else self._gpus
        places = {gpu.uuid: place for place, gpu in enumerate(listed or ())}
        rows = [schema.gpu_row(gpu, places.get(gpu.uuid)) for gpu in told.values()]
        rows += [(u, None, -1, _UNKNOWN_NAME, *[None] * 4) for u in sorted(unknown)]
        with self.transaction() as connection:
            if lists:
                connection.execute("UPDATE gpus SET place = NULL")
            connection.executemany(_upsert("gpus", GPU_COLUMNS, "uuid"), rows)
            ids = _ids(connection)
            described = connection.execute(schema.ALL_GPUS).fetchall()
        self._gpus, self.ids, self.described = listed, ids, described

    def write(
        self, frames: Sequence[Frame], events: Sequence[Event], rolled: Sequence[RolledRow]
    ) -> None:
        """Write what is new of states, problems, events and roll-ups, in one transaction if any."""
        unavailable, changes = self._changes(frames)
        problems = self._new_problems(frames)
        if not (events or rolled or changes or problems):
            return
        collected = {event.identity for frame in frames for event in frame.events}
        with self.transaction() as connection:
            connection.executemany(
                "INSERT INTO states (ts, gpu, metric, state, since_s, reason)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                changes,
            )
            for event in events:
                self._write_event(event, event.identity in collected)
            for row in rolled:
                self._write_rolled(*row)
            connection.executemany("INSERT INTO problems (ts, problem) VALUES (?, ?)", problems)
        self._unavailable = unavailable
        self._problem = problems[-1][1] if problems else self._problem

    def _write_event(self, event: Event, collected: bool) -> None:
        """Write a new event or what has become of it; `changed` counts every change."""
        columns = f"{EVENT_COLUMNS}, collected, changed"
        next_change = "(SELECT COALESCE(MAX(changed), 0) + 1 FROM events)"
        self.connection.execute(
            f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, {next_change})"
            " ON CONFLICT (kind, gpu, key, began_s) DO UPDATE SET ended_s = excluded.ended_s,"
            " severity = excluded.severity, message = excluded.message, data = excluded.data,"
            " collected = MAX(collected, excluded.collected), changed = excluded.changed",
            (*schema.event_row(event), int(collected)),
        )

    def _write_rolled(
        self, table: Table, begin_s: float, device: str, polls: int, rolled: Rolled
    ) -> None:
        """Write a roll-up, but never over one of more polls, some of which are gone meanwhile."""
        names = [column.name for column in table.columns]
        columns = ", ".join(["ts", "gpu", "polls", *names])
        self.connection.execute(
            f"{_upsert(table.name, columns, 'ts, gpu')} WHERE excluded.polls >= polls",
            (begin_s, self.ids[device], polls, *(rolled.get(name) for name in names)),
        )

    def _changes(
        self, frames: Iterable[Frame]
    ) -> tuple[dict[str, Mapping[str, Unavailable]], list[Row]]:
        """Return what is unavailable after these frames, and a row for each changed state."""
        unavailable, changes = dict(self._unavailable), list[Row]()
        for frame in frames:
            if not frame.full:
                continue
            for device, sample in frame.samples.items():
                before = unavailable.get(device, {})
                if sample.unavailable == before:
                    continue
                number = self.ids[device]
                changes += _differences(frame.time_s, number, before, sample.unavailable)
                unavailable[device] = sample.unavailable
        return unavailable, changes

    def _new_problems(self, frames: Iterable[Frame]) -> list[tuple[float, str | None]]:
        """Return when which problem began, or ended (None)."""
        found, last = list[tuple[float, str | None]](), self._problem
        for frame in frames:
            if frame.full and frame.problem != last:
                last = frame.problem
                found.append((frame.time_s, last))
        return found

    def _last_unavailable(self) -> dict[str, Mapping[str, Unavailable]]:
        names = {number: device for device, number in self.ids.items()}
        found: dict[str, dict[str, Unavailable]] = {}
        for gpu, metric, state, since_s, reason in self.connection.execute(
            "SELECT gpu, metric, state, since_s, reason FROM states"
            " WHERE id IN (SELECT MAX(id) FROM states GROUP BY gpu, metric)"
        ):
            if state != _OK and gpu in names:
                absence = Unavailable(State(state), since_s, reason)
                found.setdefault(names[gpu], {})[metric] = absence
        return dict(found)


def _ids(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the file's number of each GPU, by its UUID, and of HOST."""
    return {HOST: HOST_ID, **dict(connection.execute("SELECT uuid, id FROM gpus"))}


def _differences(
    time_s: float, gpu: int, before: Mapping[str, Unavailable], now: Mapping[str, Unavailable]
) -> Iterator[Row]:
    for metric, absence in now.items():
        if before.get(metric) != absence:
            yield (time_s, gpu, metric, str(absence.state), absence.since_s, absence.reason)
    for metric in before.keys() - now.keys():
        yield (time_s, gpu, metric, _OK, time_s, "")


def _upsert(table: str, columns: str, key: str) -> str:
    names = columns.split(", ")
    marks = ", ".join("?" * len(names))
    changed = [name for name in names if name not in key.split(", ")]
    return (
        f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in changed)
    )
