"""The schema's versions, and how a file gets from its own to ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, Engine

from gpuadvisor.errors import StoreError
from gpuadvisor.storage import schema_1, schema_2, schema_3, schema_4, schema_5
from gpuadvisor.storage.connection import writing
from gpuadvisor.storage.failures import ELSEWHERE
from gpuadvisor.storage.sqlite_file import strict

Statements = Sequence[str]

VERSIONS: tuple[Statements, ...] = (
    schema_1.STATEMENTS,
    schema_2.STATEMENTS,
    schema_3.STATEMENTS,
    schema_4.STATEMENTS,
    schema_5.STATEMENTS,
)
"""What leads from version n to n + 1, in order; `PRAGMA user_version` says what a file has.

Native `ALTER TABLE` statements by hand: a tool that copies tables drops their triggers and
`ON DELETE CASCADE` on SQLite.
"""


def migrate(engine: Engine, path: Path, versions: Sequence[Statements] = VERSIONS) -> None:
    """Bring the file to the last version, wholly or not at all; StoreError if it is newer."""
    with engine.connect() as connection:
        if _version(connection, path, versions) == len(versions):
            return
    with writing(engine).begin() as connection:
        # Asked again: another process may have done it while this one waited for the lock.
        for statements in versions[_version(connection, path, versions) :]:
            for statement in statements:
                connection.exec_driver_sql(statement.replace("{strict}", strict()))
        connection.exec_driver_sql(f"PRAGMA user_version = {len(versions)}")


def _version(connection: Connection, path: Path, versions: Sequence[Statements]) -> int:
    version = int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())
    if version > len(versions):
        raise StoreError(
            f"{path} was written by a newer gpuadvisor (its schema is {version}, this one knows "
            f"{len(versions)}): upgrade gpuadvisor, or {ELSEWHERE}."
        )
    return version
