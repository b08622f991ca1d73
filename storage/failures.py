"""What goes wrong with a database file, in one sentence that says what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.home import HOME_VARIABLE

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
"""By primary result code (sqlite.org/rescode.html)."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn every error of SQLite in the block into a StoreError about this file."""
    try:
        yield
    except Exception as error:
        if found := _of_sqlite(error):
            raise StoreError(sentence(path, found)) from error
        raise


def _of_sqlite(error: BaseException) -> sqlite3.Error | None:
    """Return SQLite's own error, which SQLAlchemy has as `orig` and Optuna raises from that."""
    for each in (error, error.__cause__):
        for candidate in (each, getattr(each, "orig", None)):
            if isinstance(candidate, sqlite3.Error):
                return candidate
    return None


def sentence(path: Path, error: BaseException) -> str:
    """Say what is wrong with the file and what to do about it."""
    code = primary_code(error)
    # An older library reads a STRICT table's definition as damage, which would be bad advice.
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
