"""How a connection to the database is made: the same for our tables and for Optuna's."""

from __future__ import annotations

import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Literal

from sqlalchemy import URL, Connection, Engine, create_engine, event

from gpuadvisor.storage.failures import primary_code
from gpuadvisor.storage.filesystem import is_shared_by_machines

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another. Eight writers at full speed waited 0.84 s at most."""

JOURNAL_LIMIT_BYTES = 64 << 20
"""To what the write-ahead log is cut after a checkpoint; a long reader may have let it grow."""

JOURNAL_RETRY_S = 0.01
"""Pause before asking for the journal again while another process opens the file."""


def connect(path: Path, isolation_level: Literal["IMMEDIATE"] | None = None) -> sqlite3.Connection:
    """Open the file with our settings; sqlite3.Error where it cannot be.

    With `IMMEDIATE` the driver begins a write transaction before the first change; without, the
    caller begins every transaction.
    """
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=isolation_level, check_same_thread=False
    )
    try:
        _choose_journal(connection, "DELETE" if is_shared_by_machines(path.parent) else "WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


def url(path: Path) -> URL:
    """Return the file's address for SQLAlchemy, whatever characters the path has."""
    return URL.create("sqlite", database=str(path))


def engine(path: Path) -> Engine:
    """Return an engine for our tables.

    Its transactions begin as readers, those of `writing(engine)` as writers: one that reads and
    then wants to write fails at once when another wrote in between, in spite of any time-out.
    """
    made = create_engine(url(path), creator=partial(connect, path))
    event.listen(made, "begin", _begin)
    return made


def writing(made: Engine) -> Engine:
    """Return the same engine with transactions that hold the write lock from the start."""
    return made.execution_options(gpuadvisor_writes=True)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("gpuadvisor_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _choose_journal(connection: sqlite3.Connection, mode: str) -> None:
    """Switch the file to a write-ahead log (or back), which it then keeps.

    The switch needs the file alone and does not wait for the busy time-out by itself.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()
            return
        except sqlite3.OperationalError as error:
            if primary_code(error) != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
        time.sleep(JOURNAL_RETRY_S)
