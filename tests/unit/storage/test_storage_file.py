"""The file itself: where it is, its schema, and what is said when it cannot be used."""

import os
import sqlite3
import stat

import pytest
from sqlalchemy import create_engine

from gpuadvisor.errors import StoreError
from gpuadvisor.storage import failures, filesystem, migrations
from gpuadvisor.storage.connection import engine
from gpuadvisor.storage.database import open_store
from gpuadvisor.storage.failures import explained
from gpuadvisor.storage.home import home
from gpuadvisor.storage.models import Base
from gpuadvisor.storage.profiles.models import ProfileRow
from gpuadvisor.storage.sqlite_file import connect

OPTUNAS_TABLES = {"studies", "trials", "trial_params", "version_info", "alembic_version"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gpuadvisor.db"


def rows(path, sql):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"GPUADVISOR_HOME": "{tmp}/own", "XDG_DATA_HOME": "{tmp}/xdg"}, "own"),
        ({"GPUADVISOR_HOME": "~/mine"}, "mine"),
        ({"GPUADVISOR_HOME": "", "XDG_DATA_HOME": "{tmp}/xdg"}, "xdg/gpuadvisor"),
        ({"XDG_DATA_HOME": "relative"}, ".local/share/gpuadvisor"),
        ({}, ".local/share/gpuadvisor"),
    ],
)
def test_home(tmp_path, monkeypatch, variables, expected):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GPUADVISOR_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp=tmp_path))
    assert home() == tmp_path / expected
    assert stat.S_IMODE(home().stat().st_mode) == 0o700
    with open_store() as store:
        assert store.path == tmp_path / expected / "gpuadvisor.db"


def test_a_home_that_cannot_be_made_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "file" / "folder"))
    with pytest.raises(StoreError, match=r"cannot be created \(.*\): set GPUADVISOR_HOME"):
        home()


def test_a_home_that_cannot_be_written_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(StoreError, match="cannot be written: make it writable"):
        home()


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """Make the system say that `tmp_path` is on a file system of this type."""

    def mounted(kind):
        point = str(tmp_path).replace(" ", "\\040")
        table = tmp_path / "mounts"
        table.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {point} {kind} rw 0 0\n")
        monkeypatch.setattr("gpuadvisor.storage.filesystem.MOUNTS", table)

    filesystem.is_shared_by_machines.cache_clear()
    yield mounted
    filesystem.is_shared_by_machines.cache_clear()


@pytest.mark.parametrize(("kind", "journal"), [("ext4", "wal"), ("nfs4", "delete")])
def test_settings_of_the_file(path, mounted, kind, journal):
    mounted(kind)
    with open_store(path):
        pass
    connection = connect(path)
    pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas]
    connection.close()
    assert found == [journal, 1, 1, 30_000]


def test_the_migrated_schema_is_that_of_the_models(path):
    with open_store(path):
        pass
    created = path.with_name("models.db")
    made = create_engine(f"sqlite:///{created}")
    Base.metadata.create_all(made)
    made.dispose()
    for table in Base.metadata.tables:
        for pragma in ("table_info", "foreign_key_list"):
            asked = f"PRAGMA {pragma}({table})"
            assert rows(path, asked) == rows(created, asked), asked
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    assert rows(path, tables) == rows(created, tables)
    assert ProfileRow.__tablename__ in Base.metadata.tables
    assert not OPTUNAS_TABLES & set(Base.metadata.tables)


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="this SQLite has no STRICT")
def test_tables_are_strict(path):
    with open_store(path):
        pass
    listed = rows(path, "PRAGMA table_list")
    strict = {name: bool(flag) for _, name, kind, _, _, flag in listed if kind == "table"}
    assert all(strict[table] for table in Base.metadata.tables)


def test_an_older_file_is_migrated_and_keeps_its_rows(path):
    versions = [["CREATE TABLE t (a INTEGER){strict}", "INSERT INTO t VALUES (1)"]]
    made = engine(path)
    migrations.migrate(made, path, versions)
    migrations.migrate(made, path, [*versions, ["ALTER TABLE t ADD COLUMN b INTEGER DEFAULT 2"]])
    made.dispose()
    assert rows(path, "SELECT * FROM t") == [(1, 2)]
    assert rows(path, "PRAGMA user_version") == [(2,)]


def test_a_migration_that_fails_changes_nothing(path):
    made = engine(path)
    with pytest.raises(StoreError), explained(path):
        migrations.migrate(made, path, [["CREATE TABLE t (a INTEGER)"], ["CREATE TABLE t (a)"]])
    made.dispose()
    assert rows(path, "SELECT count(*) FROM sqlite_master") == [(0,)]


def test_a_file_of_a_newer_gpuadvisor_is_refused(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"newer gpuadvisor .* 99.*: upgrade gpuadvisor"):
        open_store(path)


def test_a_file_that_is_no_database(path):
    path.write_text("not a database, but long enough to be looked at " * 40)
    with pytest.raises(StoreError, match="is not a SQLite database: move it away"):
        open_store(path)


def test_a_folder_in_its_place(path):
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(path)


def test_a_damaged_file(path):
    with open_store(path):
        pass
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * len(content[4096:])
    path.write_bytes(content)
    damaged = pytest.raises(StoreError, match=r"is damaged: save what can be read with `sqlite3")
    with damaged, open_store(path) as store:
        store.study_names()


def test_a_read_only_file(path):
    with open_store(path):
        pass
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    read_only = pytest.raises(StoreError, match="is read-only: make it and its folder writable")
    with read_only, explained(path):
        connection.execute("DELETE FROM tuning_study")
    connection.close()


def test_a_full_disk_loses_nothing_stored(path):
    connection = connect(path)
    connection.execute("CREATE TABLE t (a BLOB)")
    connection.execute("INSERT INTO t VALUES ('kept')")
    connection.execute("PRAGMA max_page_count = 3")
    full = pytest.raises(StoreError, match="is full, and nothing stored before is lost: free some")
    with full, explained(path):
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    connection.close()
    assert rows(path, "SELECT a FROM t") == [("kept",)]


def test_a_file_that_stays_locked(path, monkeypatch):
    with open_store(path):
        pass
    monkeypatch.setattr("gpuadvisor.storage.sqlite_file.BUSY_TIMEOUT_S", 0.05)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with open_store(path) as store:
        assert store.study_names() == [], "a writer keeps nobody from reading"
        with pytest.raises(StoreError, match="stayed locked by another program"):
            store.optuna_storage()
    holder.close()


def test_an_old_sqlite_library_is_not_taken_for_damage(path, monkeypatch):
    class Malformed(sqlite3.DatabaseError):
        sqlite_errorname = "SQLITE_CORRUPT"

    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    assert "needs SQLite 3.37" in failures.sentence(path, Malformed())


def test_without_strict_tables_the_store_works_too(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with open_store(path) as store:
        assert store.study_names() == []
    assert "STRICT" not in str(rows(path, "SELECT sql FROM sqlite_master"))
