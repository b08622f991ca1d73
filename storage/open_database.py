"""The database, open: its tables made where it is new, and its transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import URL, Connection, NullPool, create_engine, event
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateIndex, CreateTable

from gpuadvisor.storage.home import database, writable_folder
from gpuadvisor.storage.models import SCHEMA_VERSION, Base
from gpuadvisor.storage.sqlite_file import check_version, connect, explained, strict


def url(path: Path) -> URL:
    """Return the file's address for SQLAlchemy, whatever characters the path has."""
    return URL.create("sqlite", database=str(path))


class OpenDatabase:
    """An open database, created if need be; StoreError where the file fails.

    Threads may share it; a forked child must open its own.
    """

    pooled = True
    """Whether connections stay open between transactions."""

    def __init__(self, path: Path | None = None) -> None:
        """Open the file, which is `gpuadvisor.db` in `home()` without a path."""
        self.path = database() if path is None else path.absolute()
        writable_folder(self.path.parent)
        pool, creator = None if self.pooled else NullPool, partial(connect, self.path)
        self._engine = create_engine(url(self.path), creator=creator, poolclass=pool)
        event.listen(self._engine, "begin", _begin)
        # Such a transaction holds the write lock from the start: one that reads and then wants to
        # write fails at once when another wrote in between, in spite of any time-out.
        self._writing = self._engine.execution_options(gpuadvisor_writes=True)
        try:
            with explained(self.path):
                self._create_tables()
        except BaseException:
            self._engine.dispose()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database's file."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a session in one transaction that sees one state of the file."""
        with explained(self.path), Session(self._engine) as session, session.begin():
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a session in one transaction that keeps other writers waiting: be short."""
        with explained(self.path), Session(self._writing) as session, session.begin():
            yield session

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep the file open: SQLite empties the write-ahead log when nobody has it open."""
        with explained(self.path):
            held = self._engine.connect()
        try:
            yield
        finally:
            held.close()

    def _create_tables(self) -> None:
        """Give a new file its tables, all or none; StoreError for one of another version."""
        with self._engine.connect() as connection:
            if not self._is_new(connection):
                return
        with self._writing.begin() as connection:
            # Asked again: another process may have done it while this one waited for the lock.
            if not self._is_new(connection):
                return
            for statement in _tables(strict()):
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _is_new(self, connection: Connection) -> bool:
        version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
        check_version(self.path, version, SCHEMA_VERSION)
        return version == 0


@cache
def _tables(option: str) -> tuple[str, ...]:
    """Return the statements that create all tables, with this option each, and their indexes."""
    found = []
    for table in Base.metadata.sorted_tables:
        found.append(str(CreateTable(table).compile(dialect=dialect())).rstrip() + option)
        found += [str(CreateIndex(index).compile(dialect=dialect())) for index in table.indexes]
    return tuple(found)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("gpuadvisor_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
