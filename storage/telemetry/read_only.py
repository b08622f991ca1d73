"""Telemetry files opened by those that only read: they never make the writer wait."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuadvisor.domain.telemetry import HOST
from gpuadvisor.storage.failures import explained, primary_code
from gpuadvisor.storage.sqlite_file import BUSY_TIMEOUT_S
from gpuadvisor.storage.telemetry.schema import HOST_ID, INDEX, is_prepared

MAPPED_BYTES = 256 << 20
"""A day's chart of eight GPUs is read from 24 MB; mapped, that takes 20 ms and not 27."""


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Give a connection to the file, None where there is no file or nothing in it yet.

    Each statement is a transaction of its own, unless one is begun: keep it short, as the
    write-ahead log can only be emptied between them. StoreError where the file fails or is newer
    than this gpuadvisor.
    """
    with explained(path):
        connection = open_read_only(path)
        if connection is None:
            yield None
            return
        with closing(connection):
            yield connection if is_prepared(connection, path) else None


def rows(
    connection: sqlite3.Connection | None, query: str, values: Sequence[Any] = ()
) -> list[Any]:
    """Return a query's rows at once; none without a connection."""
    return connection.execute(query, values).fetchall() if connection else []


def device_names(folder: Path) -> dict[int, str]:
    """Return the UUIDs of the store's GPUs, and HOST, by their numbers in it."""
    with reading(folder / INDEX) as index:
        return {HOST_ID: HOST, **dict(rows(index, "SELECT id, uuid FROM gpus"))}


def open_read_only(path: Path) -> sqlite3.Connection | None:
    """Return a connection to any of our files; None where there is none. sqlite3.Error else."""
    try:
        return _opened(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if primary_code(error) != "SQLITE_CANTOPEN":
            raise
        if _is_missing(path):  # perhaps only now: the writer removes old days
            return None
        # A write-ahead log needs a file beside it, also to be read. In a folder that may not be
        # written, with no log there, nobody can be writing.
        if not _is_missing(path.with_name(path.name + "-wal")):
            raise
        return _opened(path, "mode=ro&immutable=1")


def _is_missing(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it may be there
        pass
    return False


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{mode}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA user_version").fetchone()  # opens it in truth
        connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection
