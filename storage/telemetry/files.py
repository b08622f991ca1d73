"""The files of the telemetry store: which there are, and how those that only read open them.

Readers never make the writer wait.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from gpuadvisor.domain.telemetry import HOST
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.home import DATABASE, PRIVATE_FILE, SHARED_FILE, writable_folder
from gpuadvisor.storage.sqlite_file import explained, open_read_only
from gpuadvisor.storage.telemetry.schema import ALL_GPUS, DAY_NAMES, HOST_ID, is_prepared

DAY_S = 86400.0
_DAMAGED = ".damaged-"
SAMPLES, PROCESSES = "samples", "processes"
"""What the names of a day's files begin with: of those that a group may read, and of those with
processes and their command lines, which only the daemon reads."""
_NAME = re.compile(rf"({SAMPLES}|{PROCESSES})-(\d{{8}})\.db")


def day_begin(time_s: float) -> float:
    """Return when the day of this Unix time began."""
    return time_s // DAY_S * DAY_S


def day_path(folder: Path, time_s: float, kind: str = SAMPLES) -> Path:
    """Return the file with the rows of this Unix time."""
    return _path_of_day(folder, day_begin(time_s), kind)


@lru_cache(8)  # the writer asks for each frame
def _path_of_day(folder: Path, begin_s: float, kind: str) -> Path:
    day = datetime.fromtimestamp(begin_s, UTC)
    return folder / f"{kind}-{day:%Y%m%d}.db"


def day_paths(
    folder: Path,
    since_s: float = float("-inf"),
    until_s: float = float("inf"),
    kind: str = SAMPLES,
) -> list[Path]:
    """Return the files that may have rows from `since_s` up to `until_s`, the oldest first."""
    found = []
    for path in sorted(folder.glob(f"{kind}-*.db")):
        with suppress(ValueError):  # somebody's copy, or a date that does not exist
            begin_s = begin_of_path(path)
            if begin_s + DAY_S > since_s and begin_s <= until_s:
                found.append(path)
    return found


def begin_of_path(path: Path) -> float:
    """Return when the file's day began."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"not a file of samples: {path}")
    return datetime.strptime(found[2] + "+0000", "%Y%m%d%z").timestamp()


def has_processes(path: Path) -> bool:
    """Say whether a day's file is the one with processes."""
    return path.name.startswith(PROCESSES)


def set_aside(path: Path, now_s: float) -> Path:
    """Give a damaged file, and its log, a name that nobody opens; return it. StoreError if not."""
    moment = f"{path.name}{_DAMAGED}{datetime.fromtimestamp(now_s, UTC):%Y%m%dT%H%M%S}"
    new, number = path.with_name(moment), 1
    while new.exists():
        new, number = path.with_name(f"{moment}-{number}"), number + 1
    try:
        path.rename(new)
        for suffix in ("-wal", "-journal", "-shm"):
            side = path.with_name(path.name + suffix)
            if side.exists():
                side.rename(new.with_name(new.name + suffix))
    except OSError as error:
        raise StoreError(f"{path} is damaged and cannot be moved: {error.strerror}.") from error
    return new


def damaged_days(folder: Path) -> list[tuple[float, Path]]:
    """Return the files of days that were set aside, each with when its day began."""
    found = []
    for path in sorted(folder.glob(f"*.db{_DAMAGED}*")):
        with suppress(ValueError):
            day = path.with_name(path.name.partition(_DAMAGED)[0])
            found.append((begin_of_path(day), path))
    return found


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


def times(
    connection: sqlite3.Connection | None,
    which: Literal["MIN", "MAX"],
    tables: Iterable[str],
    condition: str = "",
    values: Sequence[float] = (),
) -> list[float]:
    """Return the first or the last time of each table that has rows that fulfil the condition."""
    queries = [f"SELECT {which}(ts) FROM {table} {condition}" for table in tables]
    found = [rows(connection, query, values) for query in queries]
    return [float(row[0]) for each in found for row in each if row[0] is not None]


def times_of_days(folder: Path, which: Literal["MIN", "MAX"]) -> list[float]:
    """Return the first or the last time of the raw rows of each day."""
    found = []
    for path in day_paths(folder):
        with reading(path) as connection:
            found += times(connection, which, (*DAY_NAMES, "listings"))
    return found


def device_names(connection: sqlite3.Connection | None) -> dict[int, str]:
    """Return the UUIDs of the file's GPUs, and HOST, by their numbers in this file."""
    return {HOST_ID: HOST, **dict(rows(connection, "SELECT id, uuid FROM gpus"))}


def gpus_of_days(folder: Path) -> list[Any]:
    """Return a row of GPU_COLUMNS for each GPU of each day, those of the newest day first."""
    found = []
    for path in reversed(day_paths(folder)):
        with reading(path) as connection:
            found += rows(connection, ALL_GPUS)
    return found


# -- who may read them -----------------------------------------------------------------------------

_SHARED = re.compile(r"(index|samples-\d{8})\.db.*|daemon\.json")
"""Names of files that the group may read. Others are their owner's: processes, the log, the lock.
"""
FOLDER = 0o750
"""Mode of the folder."""
INHERITED = 0o2000
"""The set-group-ID bit of a folder: files that are made in it get its group (inode(7)), also those
that SQLite makes beside others."""
GO_THROUGH = 0o010


def share(folder: Path, group: int) -> None:
    """Let a group (its number) read a store, created if need be, and everybody else nothing.

    The folder above, which has studies and profiles as well, may only be gone through. StoreError
    where permissions cannot be changed, as in a group that one is not in.
    """
    writable_folder(folder)
    try:
        os.chown(folder, -1, group)
        folder.chmod(FOLDER if group == os.getegid() else FOLDER | INHERITED)
        for path in filter(_is_ours, folder.iterdir()):
            os.chown(path, -1, group)
            path.chmod(SHARED_FILE if _SHARED.fullmatch(path.name) else PRIVATE_FILE)
        _open_way(folder.parent, group)
    except OSError as error:
        raise StoreError(
            f"The group {group} cannot be let into {folder} ({error.strerror}): its members may "
            "not be able to read telemetry."
        ) from error


def _is_ours(path: Path) -> bool:
    """Say whether it is a file of ours and nothing else: no link by which another one is meant."""
    status = path.lstat()
    is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return is_file and status.st_uid == os.geteuid()


def _open_way(home: Path, group: int) -> None:
    """Let the group through the folder above; a folder of another group is left as it is."""
    for path in filter(_is_ours, home.glob(f"{DATABASE}*")):
        path.chmod(PRIVATE_FILE)
    status = home.stat()
    is_theirs = status.st_gid == group
    if status.st_mode & 0o001 or (is_theirs and status.st_mode & GO_THROUGH):
        return
    if not is_theirs and status.st_mode & 0o060:
        raise PermissionError(errno.EPERM, f"{home} is another group's")
    os.chown(home, -1, group)
    home.chmod(status.st_mode & 0o7777 | GO_THROUGH)
