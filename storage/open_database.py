"""The database, open: its schema brought up to date, and its transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy.orm import Session

from gpuadvisor.storage import connection, migrations
from gpuadvisor.storage.failures import explained
from gpuadvisor.storage.home import database, writable_folder


def usable_path(path: Path | None) -> Path:
    """Return the database's path, `gpuadvisor.db` in `home()` for None, in a folder that exists."""
    chosen = database() if path is None else path.absolute()
    writable_folder(chosen.parent)
    return chosen


class OpenDatabase:
    """An open database, created or migrated if need be; StoreError where the file fails.

    Threads may share it; a forked child must open its own.
    """

    pooled = True
    """Whether connections stay open between transactions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = connection.engine(path, pooled=self.pooled)
        try:
            with explained(path):
                migrations.migrate(self._engine, path)
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
        """Close the file."""
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Give a session in one transaction that sees one state of the file."""
        with explained(self.path), Session(self._engine) as session, session.begin():
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Give a session in one transaction that keeps other writers waiting: be short."""
        engine = connection.writing(self._engine)
        with explained(self.path), Session(engine) as session, session.begin():
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
