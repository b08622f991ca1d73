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
from gpuadvisor.storage.telemetry.schema import HOST_ID, INDEX, check_version

MAPPED_BYTES = 256 << 20
"""A day's chart of eight GPUs is read from 24 MB; mapped, that takes 20 ms and not 27."""


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """Give a connection to the file, None where there is no file or nothing in it yet.

    Each statement is a transaction of its own: keep it short, as the write-ahead log can only be
    emptied between them. StoreError where the file fails or is newer than this gpuadvisor.
    """
    if not path.exists():
        yield None
        return
    with explained(path):
        connection = _open(path)
        with closing(connection):
            yield connection if check_version(connection, path) else None


def rows(
    connection: sqlite3.Connection | None, query: str, values: Sequence[Any] = ()
) -> list[Any]:
    """Return a query's rows at once; none without a connection."""
    return connection.execute(query, values).fetchall() if connection else []


def device_names(folder: Path) -> dict[int, str]:
    """Return the UUIDs of the store's GPUs, and HOST, by their numbers in it."""
    with reading(folder / INDEX) as index:
        return {HOST_ID: HOST, **dict(rows(index, "SELECT id, uuid FROM gpus"))}


def _open(path: Path) -> sqlite3.Connection:
    try:
        return _opened(path, "mode=ro")
    except sqlite3.OperationalError as error:
        # A write-ahead log needs a file beside it, also to be read. In a folder that may not be
        # written, with no log there, nobody can be writing.
        if primary_code(error) != "SQLITE_CANTOPEN" or path.with_name(path.name + "-wal").exists():
            raise
        return _opened(path, "immutable=1")


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
