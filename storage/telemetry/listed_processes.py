"""Reading the processes that were listed: from their files, or of the daemon where those are closed
to this user.

The daemon is asked over a Unix socket in the store's folder: one line of JSON with the span, which
it answers with JSON as well (`daemon.process_server`).
"""

from __future__ import annotations

import math
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from gpuadvisor.storage.locks import peer_of, user_name
from gpuadvisor.storage.telemetry.files import PROCESSES, day_path, reading
from gpuadvisor.storage.telemetry.schema import PROCESS_COLUMNS, PROGRAM_COLUMNS, columns_in

SOCKET = "daemon.sock"
"""The daemon's socket in the store's folder, or a link to it."""
ROWS = 4096
"""Rows of one answer, at most a listing more: 1 MB in the daemon, which has 50. They are five
minutes of 64 processes."""
ADDRESS_BYTES = 107
"""The longest path of a socket: unix(7)."""
PATIENCE_S = 10.0
"""Seconds to wait for an answer: twice what the daemon gives a client."""
RETRY_S = 0.2
"""Pause before a daemon is asked again that has too many clients."""


class Question(msgspec.Struct, frozen=True):
    """The span that a client asks for, in Unix time, within a day (UTC)."""

    since_s: float
    until_s: float
    about: Literal["processes", "jobs"] = "processes"
    """What is asked for. Jobs may be of more than a day."""


class Answer(msgspec.Struct, frozen=True):
    """Processes of a span, as far as they fit."""

    until_s: float = 0.0
    """The Unix time before which all is there."""
    programs: dict[int, tuple[Any, ...]] = {}
    """The GPU's UUID and the values of PROGRAM_COLUMNS, by number."""
    rows: list[tuple[Any, ...]] = []
    """Time, number of the program, and the values of PROCESS_COLUMNS, in order of time."""
    withheld: str | None = None
    """One sentence on what is left out, and who sees it; None where nothing is."""
    problem: str | None = None
    """One sentence on why there is no answer."""
    is_busy: bool = False
    """Whether others are being served, and it may be asked again."""


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """Give an address for `bind` and `connect`, which take no long paths."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listed(folder: Path, since_s: float, until_s: float) -> Answer:
    """Return the processes from the day's file; StoreError where it fails."""
    with reading(day_path(folder, since_s, PROCESSES)) as connection:
        if connection is None:
            return Answer(until_s)
        connection.execute("BEGIN")
        where, span = "FROM processes WHERE ts >= ? AND ts < ?", (since_s, until_s)
        ask = connection.execute
        more = ask(f"SELECT ts {where} ORDER BY ts LIMIT 1 OFFSET {ROWS}", span).fetchone()
        if more is not None:
            first_s = ask(f"SELECT MIN(ts) {where}", span).fetchone()[0]
            until_s = max(more[0], math.nextafter(first_s, math.inf))
            span = (since_s, until_s)
        columns = _selected(connection, "processes", PROCESS_COLUMNS)
        rows = ask(f"SELECT ts, program, {columns} {where} ORDER BY ts, program", span).fetchall()
        programs = ask(
            f"SELECT id, gpu, {_selected(connection, 'programs', PROGRAM_COLUMNS)} FROM programs"
            f" WHERE id IN (SELECT program {where})",
            span,
        ).fetchall()
        return Answer(until_s, {row[0]: row[1:] for row in programs}, rows)


def _selected(connection: sqlite3.Connection, table: str, columns: Iterable[str]) -> str:
    """Return what selects these columns; NULL for each that an older gpuadvisor did not write."""
    there = columns_in(connection, table)
    return ", ".join(name if name in there else f"NULL AS {name}" for name in columns)


def serving(folder: Path) -> int | None:
    """Return the process of the daemon whose socket is in the folder; None where none listens."""
    try:
        with _connected(folder) as channel:
            return peer_of(channel).process
    except OSError:
        return None


@contextmanager
def _connected(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as channel, short_address(folder / SOCKET) as address:
        channel.settimeout(PATIENCE_S)
        channel.connect(address)
        yield channel


class ProcessReader:
    """Reads processes of a store, of the daemon where their files are closed to this user."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.withheld: str | None = None
        """What could not be had so far and why, in one sentence; None where all could."""

    def read(self, since_s: float, until_s: float) -> Iterator[Answer]:
        """Yield the processes of a span within a day, until all are there or one is a problem.

        StoreError where a file fails.
        """
        path = day_path(self._folder, since_s, PROCESSES)
        is_closed = path.exists() and not os.access(path, os.R_OK)
        while since_s < until_s:
            if is_closed:
                question = Question(since_s, until_s)
                found = asked(self._folder, path, question, Answer, "Processes on GPUs are")
            else:
                found = listed(self._folder, since_s, until_s)
            self.withheld = found.problem or found.withheld or self.withheld
            yield found
            if found.problem or found.until_s <= since_s:
                return
            since_s = found.until_s


class _Said(Protocol):
    """What every answer can say."""

    def __init__(self, *, problem: str | None) -> None: ...

    @property
    def is_busy(self) -> bool: ...


S = TypeVar("S", bound=_Said)


def asked(folder: Path, path: Path, question: Question, kind: type[S], what: str) -> S:
    """Return what the daemon answers, an object of this kind; a problem where it does not.

    `path` is the file that is closed to this user, and `what` begins the sentence that says so.
    """
    deadline = time.monotonic() + PATIENCE_S
    try:
        while (found := _answer(folder, question, kind)).is_busy and time.monotonic() < deadline:
            time.sleep(RETRY_S)
    except (FileNotFoundError, ConnectionRefusedError):
        why = "it does not run"
    except (OSError, msgspec.DecodeError):
        why = "it does not answer"
    else:
        if not found.is_busy:
            return found
        why = "it has too many clients"
    owner = user_name(path.stat().st_uid)
    return kind(
        problem=f"{what} in files that only {owner} may read; others are told "
        f"of them by the daemon, and {why}."
    )


def _answer(folder: Path, question: Question, kind: type[S]) -> S:
    with _connected(folder) as channel:
        channel.sendall(msgspec.json.encode(question) + b"\n")
        with channel.makefile("rb") as stream:
            return msgspec.json.decode(stream.read(), type=kind)
