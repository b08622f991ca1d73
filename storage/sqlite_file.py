"""How a SQLite file of ours is opened, and what is said where it cannot be used.

It is the same for the database, for Optuna's tables and for telemetry.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.home import HOME_VARIABLE, PRIVATE_FILE

BUSY_TIMEOUT_S = 30.0
"""Seconds that a writer waits for another. Eight writers at full speed waited 0.84 s at most."""

JOURNAL_LIMIT_BYTES = 64 << 20
"""Size of the write-ahead log after a checkpoint; a long reader may have let it grow."""

JOURNAL_RETRY_S = 0.01
"""Pause before asking for the journal again while another process opens the file."""

MAPPED_BYTES = 256 << 20
"""Bytes of a read-only file that are mapped: a chart from 24 MB of a day takes 20 ms, not 27."""

STRICT_SINCE = (3, 37)
"""The SQLite that introduced STRICT tables (sqlite.org/stricttables.html)."""

ELSEWHERE = f"set {HOME_VARIABLE} to another folder"

SENTENCES = {
    "SQLITE_NOTADB": f"{{path}} is not a SQLite database: move it away, or {ELSEWHERE}.",
    "SQLITE_CORRUPT": "{path} is damaged: save what can be read with "
    "`sqlite3 {path} .recover`, and move it away to start a new one.",
    "SQLITE_READONLY": f"{{path}} is read-only: make it and its folder writable, or {ELSEWHERE}.",
    "SQLITE_FULL": "The disk that holds {path} is full, and nothing stored before is lost: "
    f"free some space, or {ELSEWHERE} on another disk.",
    "SQLITE_CANTOPEN": "{path} cannot be opened: check that it is a file that you may read and "
    f"write, or {ELSEWHERE}.",
    "SQLITE_PERM": f"{{path}} may not be used by you: change its permissions, or {ELSEWHERE}.",
    "SQLITE_BUSY": "{path} stayed locked by another program: end what holds it (perhaps a "
    "database browser with an open transaction) and try again.",
    "SQLITE_IOERR": "{path} cannot be read or written ({error}): check the disk and your quota, "
    f"or {ELSEWHERE}.",
}
"""What to say, by SQLite's primary result code (sqlite.org/rescode.html)."""

MOUNTS = Path("/proc/self/mounts")

NETWORK_TYPES = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "gpfs"}
    | {"lustre", "nfs", "nfs4", "panfs", "smb3", "smbfs", "wekafs"}
)
"""File systems on which two machines may meet. Home folders of clusters are on such ones."""


def connect(
    path: Path,
    isolation_level: Literal["IMMEDIATE"] | None = None,
    *,
    mode: int = PRIVATE_FILE,
) -> sqlite3.Connection:
    """Open the file with our settings; sqlite3.Error where it cannot be.

    With `IMMEDIATE` the driver begins a write transaction before the first change; without, the
    caller begins every transaction. A new file gets this mode whatever the umask, and SQLite gives
    the same to those beside it.
    """
    with suppress(OSError):  # it is there, or SQLite says better why it cannot be made
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(file, mode)
        finally:
            os.close(file)
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


def open_read_only(path: Path) -> sqlite3.Connection | None:
    """Return a connection to any of our files; None where there is none. sqlite3.Error else."""
    try:
        return _opened(path, "mode=ro")
    except sqlite3.OperationalError as error:
        if primary_code(error) not in ("SQLITE_CANTOPEN", "SQLITE_READONLY"):
            raise
        if _is_missing(path):  # perhaps only now: the writer removes old days
            return None
        # A write-ahead log needs a file beside it, also to be read. Without one, in a folder that
        # may not be written, there is no log to read: what was committed is in the file.
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


@cache
def is_shared_by_machines(folder: Path) -> bool:
    """Say whether the folder is on a network file system; False where the system does not tell.

    The index of a write-ahead log is in memory that processes share, so writers on two machines
    would destroy the database (sqlite.org/wal.html).
    """
    try:
        mounts = [line.split() for line in MOUNTS.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return False
    resolved = folder.resolve()
    # The deepest one counts, and among equals the last one mounted. Spaces are written \040.
    points = [(Path(point.replace("\\040", " ")), kind) for _, point, kind, *_ in mounts]
    above = [each for each in points if resolved.is_relative_to(each[0])]
    deepest = max(reversed(above), key=lambda each: len(each[0].parts), default=(None, ""))
    return deepest[1] in NETWORK_TYPES


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


def check_usable(path: Path) -> bool:
    """Raise StoreError where a database, or a new one, cannot be opened and written; in the file
    that is there nothing changes. Return whether it has its tables.

    What else may be wrong with it is found when it is used, with what takes longer to import.
    """
    with explained(path), closing(connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    return bool(version)


# -- failures ------------------------------------------------------------------------------------


class DamagedError(StoreError):
    """What is in a file is no database, or not whole any more; `path` names the file."""

    def __init__(self, message: str, path: Path) -> None:
        super().__init__(message)
        self.path = path


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn every error of SQLite in the block into a StoreError about this file."""
    try:
        yield
    except Exception as error:
        if found := _of_sqlite(error):
            said = sentence(path, found)
            raise DamagedError(said, path) if _is_damage(found) else StoreError(said) from error
        raise


def _of_sqlite(error: BaseException) -> sqlite3.Error | None:
    """Return SQLite's own error, which SQLAlchemy has as `orig` and Optuna raises from that."""
    for each in (error, error.__cause__):
        for candidate in (each, getattr(each, "orig", None)):
            if isinstance(candidate, sqlite3.Error):
                return candidate
    return None


def _is_damage(error: sqlite3.Error) -> bool:
    # An older library reads a STRICT table's definition as damage.
    codes = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
    return primary_code(error) in codes and sqlite3.sqlite_version_info >= STRICT_SINCE


def sentence(path: Path, error: BaseException) -> str:
    """Say what is wrong with the file and what to do about it."""
    code = primary_code(error)
    if code == "SQLITE_CORRUPT" and sqlite3.sqlite_version_info < STRICT_SINCE:
        return (
            f"{path} needs SQLite 3.37 or later, and this Python has {sqlite3.sqlite_version}: "
            f"run gpuadvisor with a newer Python, or {ELSEWHERE}."
        )
    template = SENTENCES.get(code, "{path} cannot be used: {error}.")
    return template.format(path=path, error=error)


def primary_code(error: BaseException) -> str:
    """Return `SQLITE_IOERR` for `SQLITE_IOERR_WRITE`; empty where SQLite gave no code."""
    name: str = getattr(error, "sqlite_errorname", "")
    return "_".join(name.split("_")[:2])
