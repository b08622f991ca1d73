"""How a SQLite file is opened: the same for the database, for Optuna's tables and for telemetry."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Literal

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.failures import ELSEWHERE, STRICT_SINCE, primary_code
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


def strict() -> str:
    """Return what makes a table refuse values of another type, where this SQLite knows it."""
    return " STRICT" if sqlite3.sqlite_version_info >= STRICT_SINCE else ""


def check_version(path: Path, version: int, ours: int) -> None:
    """Raise StoreError if a file has the schema of another gpuadvisor; 0 is that of a new file."""
    if version > ours:
        raise StoreError(
            f"{path} was written by a newer gpuadvisor (its schema is {version}, this one knows "
            f"{ours}): upgrade gpuadvisor, or {ELSEWHERE}."
        )
    if 0 < version < ours:
        raise StoreError(
            f"{path} was written by a gpuadvisor from before the first release (its schema is "
            f"{version}, this one needs {ours}) and is left as it is: move it away to start a new "
            f"one, or {ELSEWHERE}."
        )
