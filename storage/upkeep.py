"""The store's files inspected, and made smaller."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.home import DATABASE, readable_folder
from gpuadvisor.storage.locks import user_name
from gpuadvisor.storage.sqlite_file import (
    check_version,
    connect,
    explained,
    open_read_only,
    sentence,
)
from gpuadvisor.storage.telemetry.files import PROCESSES, day_paths, has_processes
from gpuadvisor.storage.telemetry.jobs import JOBS
from gpuadvisor.storage.telemetry.schema import INDEX, is_prepared

TELEMETRY = "telemetry"
"""Folder of telemetry in the store's folder."""
ROOM_FACTOR = 2
"""Free room that `VACUUM` needs, in sizes of the file.

It writes a copy, and then the write-ahead log of it (sqlite.org/lang_vacuum.html).
"""


@dataclass(frozen=True)
class Inspection:
    """The outcome of reading a whole file."""

    path: Path
    size_bytes: int
    """Size of the file and its write-ahead log."""
    rows: int | None
    """Rows in all its tables; None where they cannot be counted."""
    problem: str | None
    """What is wrong, in one sentence; None where all is well."""
    unread: str | None = None
    """Why a file of its owner alone was not read, in one sentence; None where it was."""


def files(home: Path) -> list[Path]:
    """Return the database files of the store that exist; StoreError where they cannot be seen."""
    telemetry = readable_folder(home / TELEMETRY)
    days = (*day_paths(telemetry), *day_paths(telemetry, kind=PROCESSES))
    lasting = (home / DATABASE, telemetry / INDEX, telemetry / JOBS)
    return [path for path in (*lasting, *days) if path.exists()]


def inspect(path: Path) -> Inspection:
    """Read a whole file and check that it is sound and of this version; it may be in use."""
    size = _size(path)
    is_private = path.name in (DATABASE, JOBS) or has_processes(path)
    if is_private and not os.access(path, os.R_OK):
        why = f"not checked: only {user_name(path.stat().st_uid)} may read it"
        return Inspection(path, size, None, None, why)
    try:
        with explained(path):
            return Inspection(path, size, *_checked(path))
    except StoreError as error:
        return Inspection(path, size, None, str(error))


def vacuum(path: Path) -> int:
    """Write the file anew without the room of what was removed; return the bytes that are gained.

    StoreError where it is in use, or the disk has no room for the copy.
    """
    before = _size(path)
    free = shutil.disk_usage(path.parent).free
    if free < ROOM_FACTOR * before:
        raise StoreError(
            f"{path} needs {ROOM_FACTOR * before / 1e6:.0f} MB free to be made smaller, and "
            f"{free / 1e6:.0f} MB are: free some space first."
        )
    with explained(path), closing(connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return before - _size(path)


def _checked(path: Path) -> tuple[int, str | None]:
    connection = open_read_only(path)
    if connection is None:
        return 0, None
    with closing(connection):
        if path.name == DATABASE:
            from gpuadvisor.storage.models import SCHEMA_VERSION  # SQLAlchemy takes 0.2 s

            version = connection.execute("PRAGMA user_version").fetchone()[0]
            check_version(path, version, SCHEMA_VERSION)
        else:
            is_prepared(connection, path)
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
        found += [f"row {row[1]} of {row[0]} refers to nothing"
                  for row in connection.execute("PRAGMA foreign_key_check")]  # fmt: skip
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        rows = sum(
            connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for (name,) in names
        )
    if found == ["ok"]:
        return rows, None
    error = sqlite3.DatabaseError(found[0])
    error.sqlite_errorname = "SQLITE_CORRUPT"
    return rows, f"{sentence(path, error)} ({found[0]})"


def _size(path: Path) -> int:
    sides = (path, path.with_name(path.name + "-wal"))
    return sum(each.stat().st_size for each in sides if each.exists())
