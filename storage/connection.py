"""How SQLAlchemy works with the database."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event

from gpuadvisor.storage.sqlite_file import connect


def url(path: Path) -> URL:
    """Return the file's address for SQLAlchemy, whatever characters the path has."""
    return URL.create("sqlite", database=str(path))


def engine(path: Path, *, pooled: bool = True) -> Engine:
    """Return an engine for our tables; unless `pooled`, it closes connections after their use.

    Its transactions begin as readers, those of `writing(engine)` as writers: one that reads and
    then wants to write fails at once when another wrote in between, in spite of any time-out.
    """
    pool = None if pooled else NullPool
    made = create_engine(url(path), creator=partial(connect, path), poolclass=pool)
    event.listen(made, "begin", _begin)
    return made


def writing(made: Engine) -> Engine:
    """Return the same engine with transactions that hold the write lock from the start."""
    return made.execution_options(gpuadvisor_writes=True)


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("gpuadvisor_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
