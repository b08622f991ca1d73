"""Writing what is kept for long: GPUs, states, events, roll-ups."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpuadvisor.domain.telemetry import HOST, Event, Frame, Gpu, State, Unavailable
from gpuadvisor.storage.sqlite_file import connect, explained
from gpuadvisor.storage.telemetry import schema
from gpuadvisor.storage.telemetry.rollups import Rolled
from gpuadvisor.storage.telemetry.schema import (
    EVENT_COLUMNS,
    GPU_COLUMNS,
    HOST_ID,
    Row,
    Table,
    event_row,
    gpu_row,
)

RolledRow = tuple[Table, float, int, int, Rolled]
"""A row of a roll-up: table, begin, GPU's number, number of polls, statistics."""

_OK = str(State.OK)
_UNKNOWN_NAME = "unknown GPU"


class IndexFile:
    """index.db, open for the one that writes it."""

    def __init__(self, path: Path) -> None:
        """Open the file, created if need be; StoreError where it cannot be."""
        self.path = path
        with explained(path):
            self.connection = connect(path)
            try:
                schema.prepare(self.connection, path, is_index=True)
                self._load()
            except BaseException:
                self.connection.close()
                raise

    def _load(self) -> None:
        rows = self.connection.execute("SELECT uuid, id FROM gpus").fetchall()
        self.ids: dict[str, int] = dict(rows)
        """A GPU's number by its UUID."""
        self._gpus: tuple[Gpu, ...] | None = None
        self._unavailable: dict[str, Mapping[str, Unavailable]] = self._last_unavailable()
        problem = self.connection.execute(
            "SELECT problem FROM problems ORDER BY id DESC LIMIT 1"
        ).fetchone()
        self._problem: str | None = problem[0] if problem else None

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all that the block does, or nothing; StoreError where it cannot be written."""
        with explained(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    def note_gpus(self, frames: Sequence[Frame]) -> None:
        """Give every GPU in the frames its number."""
        lists = [frame.gpus for frame in frames if frame.gpus not in (None, self._gpus)]
        named = {
            uuid
            for frame in frames
            for uuid in (*frame.samples, *(each.gpu for each in frame.processes or ()))
        }
        told = {gpu.uuid: gpu for gpus in lists for gpu in gpus or ()}
        unknown = named - self.ids.keys() - told.keys() - {HOST}
        if not lists and not unknown:
            return
        listed = lists[-1] if lists else self._gpus
        places = {gpu.uuid: place for place, gpu in enumerate(listed or ())}
        rows = [gpu_row(gpu, places.get(gpu.uuid)) for gpu in told.values()]
        rows += [(u, None, -1, _UNKNOWN_NAME, *[None] * 4) for u in sorted(unknown)]
        with self.transaction() as connection:
            if lists:
                connection.execute("UPDATE gpus SET place = NULL")
            connection.executemany(_upsert("gpus", GPU_COLUMNS, "uuid"), rows)
            ids = dict(connection.execute("SELECT uuid, id FROM gpus").fetchall())
        self._gpus, self.ids = listed, ids

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

    def close(self) -> None:
        """Close the file; what was written is safe before as well."""
        self.connection.close()

    def _write_event(self, event: Event, collected: bool) -> None:
        """Write a new event or what has become of it; `changed` counts every change."""
        columns = f"{EVENT_COLUMNS}, collected, changed"
        next_change = "(SELECT COALESCE(MAX(changed), 0) + 1 FROM events)"
        self.connection.execute(
            f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, {next_change})"
            " ON CONFLICT (kind, gpu, key, began_s) DO UPDATE SET ended_s = excluded.ended_s,"
            " severity = excluded.severity, message = excluded.message, data = excluded.data,"
            " collected = MAX(collected, excluded.collected), changed = excluded.changed",
            (*event_row(event), int(collected)),
        )

    def _write_rolled(
        self, table: Table, begin_s: float, gpu: int, polls: int, rolled: Rolled
    ) -> None:
        """Write a roll-up, but never over one of more polls, some of which are gone meanwhile."""
        names = [column.name for column in table.columns]
        columns = ", ".join(["ts", "gpu", "polls", *names])
        self.connection.execute(
            f"{_upsert(table.name, columns, 'ts, gpu')} WHERE excluded.polls >= polls",
            (begin_s, gpu, polls, *(rolled.get(name) for name in names)),
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
                number = HOST_ID if device == HOST else self.ids[device]
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
        names = {number: uuid for uuid, number in self.ids.items()} | {HOST_ID: HOST}
        found: dict[str, dict[str, Unavailable]] = {}
        for gpu, metric, state, since_s, reason in self.connection.execute(LAST_STATES):
            if state != _OK and gpu in names:
                absence = Unavailable(State(state), since_s, reason)
                found.setdefault(names[gpu], {})[metric] = absence
        return dict(found)


LAST_STATES = (
    "SELECT gpu, metric, state, since_s, reason FROM states"
    " WHERE id IN (SELECT MAX(id) FROM states GROUP BY gpu, metric)"
)


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
    updates = ", ".join(
        f"{name} = excluded.{name}" for name in names if name not in key.split(", ")
    )
    return (
        f"INSERT INTO {table} ({columns}) VALUES ({marks})"
        f" ON CONFLICT ({key}) DO UPDATE SET {updates}"
    )
