"""The uses of GPUs that jobs are made of: `jobs.db`, which outlives raw rows and its owner alone
reads.

Another user asks the daemon, over the socket that processes are asked over, too
(`telemetry.listed_processes`).
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpuadvisor.domain.jobs import QUANTITIES, Amounts, JobProfile, Loss, Unclaimed, Use
from gpuadvisor.storage.home import PRIVATE_FILE
from gpuadvisor.storage.telemetry.files import reading, rows
from gpuadvisor.storage.telemetry.listed_processes import Question, asked
from gpuadvisor.storage.telemetry.schema import (
    PROCESS_COLUMNS,
    PROGRAM,
    PROGRAM_COLUMNS,
    FileTables,
    Row,
    columns_in,
    process_of,
)
from gpuadvisor.storage.telemetry.written import WrittenFile

JOBS = "jobs.db"
EVER_S = 1e11
"""A Unix time after all others, which JSON can say: some thousand years from now."""
ROWS = 4096
"""Uses of one answer, at most an hour's more: some 2 MB in the daemon, for a moment."""
FOLDED = "folded until"
_HEAD = ("hour_s", "gpu", "program", "unclaimed", "first_s", "last_s", "memory_max_bytes")
_USE = (*_HEAD, *QUANTITIES)
_STATEMENTS = (
    "CREATE TABLE IF NOT EXISTS programs (id INTEGER PRIMARY KEY, gpu TEXT NOT NULL, "
    + ", ".join(f"{name} {kind}" for name, kind in PROGRAM_COLUMNS.items())
    + "){strict}",
    # A program of 0 is nobody's, and `unclaimed` says why.
    "CREATE TABLE IF NOT EXISTS uses (hour_s REAL NOT NULL, gpu TEXT NOT NULL,"
    " program INTEGER NOT NULL, unclaimed TEXT NOT NULL, first_s REAL NOT NULL,"
    " last_s REAL NOT NULL, memory_max_bytes INTEGER NOT NULL, "
    + ", ".join(f"{name} REAL NOT NULL" for name in QUANTITIES)
    + ", PRIMARY KEY (hour_s, gpu, program, unclaimed)) WITHOUT ROWID{and_strict}",
    "CREATE TABLE IF NOT EXISTS causes (hour_s REAL NOT NULL, gpu TEXT NOT NULL,"
    " program INTEGER NOT NULL, cause TEXT NOT NULL, seconds REAL NOT NULL, lost_s REAL NOT NULL,"
    " held_s REAL NOT NULL, PRIMARY KEY (hour_s, gpu, program, cause)) WITHOUT ROWID{and_strict}",
    "CREATE TABLE IF NOT EXISTS moments (name TEXT PRIMARY KEY, time_s REAL NOT NULL){strict}",
    # What was said of a job's profile, or why it has none; `findings` is a JSON array of texts.
    "CREATE TABLE IF NOT EXISTS profiles (pid INTEGER NOT NULL, user TEXT NOT NULL,"
    " time_s REAL NOT NULL, name TEXT, findings TEXT NOT NULL, problem TEXT,"
    " PRIMARY KEY (pid, time_s)){strict}",
)
OF_JOBS: FileTables = ((), _STATEMENTS)
_ADD_USE = (
    f"INSERT INTO uses ({', '.join(_USE)}) VALUES ({', '.join('?' * len(_USE))})"
    " ON CONFLICT (hour_s, gpu, program, unclaimed) DO UPDATE SET"
    " first_s = MIN(first_s, excluded.first_s), last_s = MAX(last_s, excluded.last_s),"
    " memory_max_bytes = MAX(memory_max_bytes, excluded.memory_max_bytes), "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in QUANTITIES)
)
_ADD_CAUSE = (
    "INSERT INTO causes VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (hour_s, gpu, program, cause) DO UPDATE SET"
    " seconds = seconds + excluded.seconds, lost_s = lost_s + excluded.lost_s,"
    " held_s = held_s + excluded.held_s"
)


class JobsFile(WrittenFile):
    """`jobs.db` as the one that writes it has it open."""

    content = OF_JOBS
    mode = PRIVATE_FILE

    def _load(self) -> None:
        self.connection.execute("PRAGMA secure_delete = ON")  # as of command lines of processes
        self._programs = self._known_programs()

    def moment(self, name: str) -> float | None:
        """Return a Unix time that was noted, such as FOLDED."""
        return _moment(self.connection, name)

    def add(self, uses: Iterable[Use], until_s: float) -> None:
        """Add uses to those of their hours, and note until when all is there: both, or neither.

        Where the clock was set back since, that stays as it was: what was before is there.
        """
        try:
            with self.transaction() as connection:
                for use in uses:
                    program = 0 if use.process is None else self._program(use)
                    key = (use.hour_s, use.gpu, program)
                    amounts = [getattr(use.amounts, name) for name in QUANTITIES]
                    head = (*key, str(use.unclaimed or ""), use.first_s, use.last_s)
                    connection.execute(_ADD_USE, (*head, use.memory_max_bytes, *amounts))
                    for name, loss in use.causes.items():
                        found = (loss.seconds, loss.lost_s, loss.held_s)
                        connection.execute(_ADD_CAUSE, (*key, name, *found))
                _note(connection, FOLDED, max(until_s, _moment(connection, FOLDED) or until_s))
        except BaseException:
            self._programs = {}  # those of this attempt are not in the file
            raise

    def note_profile(self, made: JobProfile) -> None:
        """Keep what became of a job's profile, in place of what was noted at its begin."""
        row = (made.pid, made.user, made.time_s, made.name, json.dumps(made.findings), made.problem)
        with self.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO profiles VALUES (?, ?, ?, ?, ?, ?)", row)

    def forget(self, before_s: float) -> None:
        """Remove the uses of hours that began before this Unix time, and profiles of that time."""
        with self.transaction() as connection:
            connection.execute("DELETE FROM profiles WHERE time_s < ?", (before_s,))
            for table in ("uses", "causes"):
                connection.execute(f"DELETE FROM {table} WHERE hour_s < ?", (before_s,))
            connection.execute("DELETE FROM programs WHERE id NOT IN (SELECT program FROM uses)")
        self._programs = {}

    def _program(self, use: Use) -> int:
        assert use.process is not None
        row = (use.gpu, *PROGRAM(use.process))
        if row not in self._programs:
            self._programs = self._known_programs()
        if row not in self._programs:
            marks = ", ".join("?" * len(row))
            added = self.connection.execute(
                f"INSERT INTO programs (gpu, {', '.join(PROGRAM_COLUMNS)}) VALUES ({marks})", row
            )
            self._programs[row] = int(added.lastrowid or 0)
        return self._programs[row]

    def _known_programs(self) -> dict[Row, int]:
        query = f"SELECT id, gpu, {', '.join(PROGRAM_COLUMNS)} FROM programs"
        return {tuple(row[1:]): row[0] for row in self.connection.execute(query)}


def _moment(connection: sqlite3.Connection, name: str) -> float | None:
    found = rows(connection, "SELECT time_s FROM moments WHERE name = ?", (name,))
    return float(found[0][0]) if found else None


def _note(connection: sqlite3.Connection, name: str, time_s: float) -> None:
    connection.execute("INSERT OR REPLACE INTO moments VALUES (?, ?)", (name, time_s))


class JobsAnswer(msgspec.Struct, frozen=True):
    """Uses of a span, as far as they fit; see `processes.Answer`."""

    until_s: float = 0.0
    """The Unix time before which all hours are there."""
    programs: dict[int, tuple[Any, ...]] = {}
    uses: list[tuple[Any, ...]] = []
    """The columns of `uses`."""
    causes: list[tuple[Any, ...]] = []
    folded_s: float = 0.0
    """The Unix time before which telemetry was made into uses."""
    withheld: str | None = None
    problem: str | None = None
    is_busy: bool = False


def hidden_use(row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a use of an answer as what others' jobs took, of whom nothing is told."""
    hour_s, gpu, _, _, _, _, _, *amounts = row
    return (hour_s, gpu, 0, str(Unclaimed.OTHERS), hour_s, hour_s, 0, *amounts)


def stored_uses(folder: Path, since_s: float, until_s: float) -> JobsAnswer:
    """Return the uses of hours that began in the span, from the file; StoreError where it fails."""
    with reading(folder / JOBS) as connection:
        if connection is None:
            return JobsAnswer(until_s)
        connection.execute("BEGIN")
        folded_s = _moment(connection, FOLDED) or 0.0
        where, span = "WHERE hour_s >= ? AND hour_s < ?", (since_s, until_s)
        more = f"SELECT hour_s FROM uses {where} ORDER BY hour_s LIMIT 1 OFFSET {ROWS}"
        if beyond := rows(connection, more, span):
            first = rows(connection, f"SELECT MIN(hour_s) FROM uses {where}", span)[0][0]
            until_s = max(beyond[0][0], first + 1.0)  # an hour at least
            span = (since_s, until_s)
        programs = rows(
            connection,
            f"SELECT id, gpu, {', '.join(PROGRAM_COLUMNS)} FROM programs"
            f" WHERE id IN (SELECT program FROM uses {where})",
            span,
        )
        found = rows(connection, f"SELECT {', '.join(_USE)} FROM uses {where}", span)
        causes = rows(connection, f"SELECT * FROM causes {where}", span)
        return JobsAnswer(until_s, {row[0]: row[1:] for row in programs}, found, causes, folded_s)


def stored_profiles(folder: Path) -> list[JobProfile]:
    """Return what became of the profiles of jobs, the oldest first; none where the file is another
    user's, as are the profiles. StoreError where it fails."""
    path = folder / JOBS
    if path.exists() and not os.access(path, os.R_OK):
        return []
    with reading(path) as connection:
        if connection is None or not columns_in(connection, "profiles"):
            return []
        query = "SELECT pid, user, time_s, name, findings, problem FROM profiles ORDER BY time_s"
        return [
            JobProfile(pid, user, time_s, name, tuple(json.loads(findings)), problem)
            for pid, user, time_s, name, findings, problem in rows(connection, query)
        ]


class JobsReader:
    """Reads uses, of the daemon where their file is closed to this user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.withheld: str | None = None
        """What could not be had and why, in one sentence; None where all could."""
        self.folded_s = 0.0
        """Unix time before which telemetry was made into uses, after `read`."""

    @property
    def is_closed(self) -> bool:
        """Whether the file is another user's."""
        path = self._folder / JOBS
        return path.exists() and not os.access(path, os.R_OK)

    def read(self, since_s: float, until_s: float) -> Iterator[Use]:
        """Yield the uses of hours that began in the span; StoreError where a file fails."""
        is_closed, until_s = self.is_closed, min(until_s, EVER_S)
        while since_s < until_s:
            if is_closed:
                question = Question(since_s, until_s, "jobs")
                found = asked(self._folder, self._folder / JOBS, question, JobsAnswer, "Jobs are")
            else:
                found = stored_uses(self._folder, since_s, until_s)
            self.withheld = found.problem or found.withheld or self.withheld
            self.folded_s = max(self.folded_s, found.folded_s)
            yield from _uses(found)
            if found.problem or found.until_s <= since_s:
                return
            since_s = found.until_s


def _uses(answer: JobsAnswer) -> Iterator[Use]:
    causes: dict[tuple[Any, ...], dict[str, Loss]] = {}
    for hour_s, gpu, program, cause, *loss in answer.causes:
        causes.setdefault((hour_s, gpu, program), {})[cause] = Loss(*loss)
    nothing = (None,) * len(PROCESS_COLUMNS)
    for hour_s, gpu, program, unclaimed, first_s, last_s, memory, *amounts in answer.uses:
        words: Sequence[Any] | None = answer.programs.get(program)
        yield Use(
            hour_s,
            gpu,
            None if words is None else process_of(words[0], (*words[1:], *nothing)),
            Unclaimed(unclaimed) if unclaimed else None,
            first_s,
            last_s,
            memory,
            Amounts(*amounts),
            causes.get((hour_s, gpu, program), {}),
        )
