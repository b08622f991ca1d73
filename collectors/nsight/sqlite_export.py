"""A SQLite file from anybody: opened so that it can neither be changed nor run anything.

Only ordinary tables are read, by names that this program knows. Views, triggers, virtual tables and
generated columns, which could compute something, are never touched.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from gpuadvisor.errors import UsageError

MAGIC = b"SQLite format 3\x00"
_HEAD_BYTES = 100
BATCH_ROWS = 16_384
TEXT_BATCH_ROWS = 4096
LONGEST_VALUE_BYTES = 64 * 2**20
"""Longest text that is read; only its begin is kept."""
LONGEST_NUMBER_BYTES = 1024
"""Longest cell where numbers belong: with `BATCH_ROWS` it bounds the memory for a hostile table."""
SMALLEST_ROW_BYTES = 6
"""A cell of a table's leaf page: pointer, length, row id, length of the header and one column
(https://www.sqlite.org/fileformat2.html). Pages that point in circles repeat rows for ever."""
_STEPS_BETWEEN_CHECKS = 100_000
_STEPS_PER_BYTE = 64
"""Steps of SQLite's virtual machine. A query over 20 columns takes some 40 a row and 1 a byte."""
_FREE_STEPS = 50_000_000
_LONGEST_REASON = 200  # characters
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_FUNCTIONS = {"typeof", "substr"}
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: LONGEST_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 2**20,
    sqlite3.SQLITE_LIMIT_COLUMN: 2000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 32,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


_ERRORS = (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError)
"""The second where SQLite quotes what is no text from the file's schema."""


class DamagedError(Exception):
    """A table cannot be read further; `str()` says why."""


class Export:
    """The tables of an open file."""

    def __init__(self, connection: sqlite3.Connection, size_bytes: int, missing: int) -> None:
        self.missing_bytes = missing
        """Bytes that the file's end lacks."""
        self._connection = connection
        self._most_rows = size_bytes // SMALLEST_ROW_BYTES
        self._columns = {name: self._columns_of(name) for name in self._ordinary_tables()}
        connection.set_authorizer(_authorize)

    def _ordinary_tables(self) -> list[str]:
        # SQLite believes `sql`, not `type`, so that a view may call itself a table there.
        query = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 "
            "AND substr(sql, 1, 13) = 'CREATE TABLE ' COLLATE NOCASE LIMIT 10000"
        )
        return [name for (name,) in self._connection.execute(query) if isinstance(name, str)]

    def _columns_of(self, table: str) -> frozenset[str]:
        # `table_info` leaves out generated and hidden columns, which `table_xinfo` has.
        rows = self._connection.execute(f"PRAGMA table_info({quoted(table)})")
        return frozenset(row[1] for row in rows)

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(self._columns)

    def columns(self, table: str) -> frozenset[str]:
        """Return a table's columns; none where there is no such table."""
        return self._columns.get(table, frozenset())

    def batches(
        self, table: str, columns: Sequence[str], texts: bool = False, where: str = "1"
    ) -> Iterator[dict[str, Sequence[Any]]]:
        """Yield columns by name, some rows at a time; what a table lacks is all None. `where` is a
        condition in SQL.

        Where there are no texts to be read, cells that are too long for a number end it. Raises
        DamagedError, after all that could be read.
        """
        there = self.columns(table)
        if not there:
            return
        cell, rows = (_shortened, TEXT_BATCH_ROWS) if texts else (quoted, BATCH_ROWS)
        longest = LONGEST_VALUE_BYTES if texts else LONGEST_NUMBER_BYTES
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        wanted = ", ".join(cell(name) if name in there else "NULL" for name in columns)
        total = 0
        for batch in _fetched(
            self.query(f"SELECT {wanted} FROM {quoted(table)} NOT INDEXED WHERE {where}"), rows
        ):
            total += len(batch)
            if total > self._most_rows:
                raise DamagedError("it repeats rows without end")
            if batch:
                yield dict(zip(columns, zip(*batch, strict=True), strict=True))

    def first_rows(
        self, table: str, columns: Sequence[str], limit: int
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a small table, `limit` at most; damage ends it."""
        batches = self.batches(table, columns, texts=True)
        rows = chain.from_iterable(zip(*batch.values(), strict=True) for batch in batches)
        with suppress(DamagedError):
            yield from islice(rows, limit)

    def text_rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query that reads texts; DamagedError ends them."""
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE_BYTES)
        yield from chain.from_iterable(_fetched(self.query(sql), TEXT_BATCH_ROWS))

    def query(self, sql: str) -> sqlite3.Cursor:
        """Return an executed query; DamagedError if it cannot be run."""
        try:
            return self._connection.execute(sql)
        except _ERRORS as error:
            raise DamagedError(_reason(error, self._connection)) from error

    def answers(self, sql: str, limit: int) -> list[tuple[Any, ...]]:
        """Return a query's rows, `limit` at most."""
        return list(islice(chain.from_iterable(_fetched(self.query(sql), limit)), limit))


def quoted(name: str) -> str:
    """Return a table or column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _shortened(column: str) -> str:
    """Return a column of which no cell is longer than what is kept of texts."""
    name = quoted(column)
    long = f"typeof({name}) IN ('text', 'blob')"
    return f"CASE WHEN {long} THEN substr({name}, 1, 16384) ELSE {name} END"


def _fetched(cursor: sqlite3.Cursor, rows: int) -> Iterator[list[tuple[Any, ...]]]:
    """Yield batches of so many rows; DamagedError after all that could be read."""
    while True:
        batch: list[tuple[Any, ...]] = []
        try:
            batch.extend(islice(cursor, rows))  # which keeps what came before an error
        except _ERRORS as error:
            damage = DamagedError(_reason(error, cursor.connection))
            yield batch
            raise damage from error
        yield batch
        if len(batch) < rows:
            return


class _Connection(sqlite3.Connection):
    """Counts down what a query may still do.

    An exception in SQLite's progress handler is lost: SQLite only says that it was interrupted.
    Ctrl-C is met there more often than not, as reading spends its time in SQLite.
    """

    checks_left = 0

    def out_of_time(self) -> bool:
        self.checks_left -= 1
        return self.checks_left < 0


def _reason(error: BaseException, connection: sqlite3.Connection | None = None) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "its schema is no text"
    said = " ".join(str(error).split())[:_LONGEST_REASON]
    if said != "interrupted":
        return said
    if isinstance(connection, _Connection) and connection.checks_left >= 0:
        raise KeyboardInterrupt from error
    return "it takes too long"


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    allowed = action in _ALLOWED
    if action == sqlite3.SQLITE_FUNCTION:
        allowed = second in _FUNCTIONS
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


@contextmanager
def opened(path: Path) -> Iterator[Export]:
    """Open a file for reading; UsageError where it is no SQLite file or cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if not head.startswith(MAGIC):
        raise UsageError(f"{path} is not a SQLite file: give what `nsys export --type sqlite` made")
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, factory=_Connection)
        with closing(connection):
            _defend(connection, size)
            yield Export(connection, size, missing_bytes(head, size))
    except _ERRORS as error:
        raise UsageError(
            f"{path} is damaged or incomplete ({_reason(error)}): export it again with "
            "`nsys export --type sqlite --force-overwrite true`"
        ) from error


def missing_bytes(head: bytes, size_bytes: int) -> int:
    """Return by how much a file is shorter than its own header says."""
    page = int.from_bytes(head[16:18], "big")
    pages = int.from_bytes(head[28:32], "big")
    page = 65_536 if page == 1 else page  # https://www.sqlite.org/fileformat2.html
    return max(page * pages - size_bytes, 0)


def _defend(connection: _Connection, size_bytes: int) -> None:
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)
    for category, limit in _LIMITS.items():
        connection.setlimit(category, limit)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    steps = _FREE_STEPS + _STEPS_PER_BYTE * size_bytes
    connection.checks_left = steps // _STEPS_BETWEEN_CHECKS
    connection.set_progress_handler(connection.out_of_time, _STEPS_BETWEEN_CHECKS)
    for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0",
                   "temp_store=MEMORY", "cache_size=-16384"):  # fmt: skip
        connection.execute(f"PRAGMA {pragma}")
