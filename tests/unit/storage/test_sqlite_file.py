"""The file itself: where it is, its schema, and what is said when it cannot be used."""

import os
import sqlite3
import stat
from contextlib import closing

import pytest

from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective
from gpuadvisor.errors import StoreError
from gpuadvisor.storage import sqlite_file
from gpuadvisor.storage.database import open_store
from gpuadvisor.storage.home import home
from gpuadvisor.storage.models import SCHEMA_VERSION, Base
from gpuadvisor.storage.sqlite_file import connect, explained

ENVIRONMENT = Environment(
    Device("cpu", 0, "cpu"), "3.12.3", "2.8.0", None, None, None, "Linux-6.8-x86_64", "0.1.0"
)
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
        monkeypatch.setattr("gpuadvisor.storage.sqlite_file.MOUNTS", table)

    sqlite_file.is_shared_by_machines.cache_clear()
    yield mounted
    sqlite_file.is_shared_by_machines.cache_clear()


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


def test_a_new_file_has_the_tables_and_indexes_of_the_models(path):
    with open_store(path):
        pass
    for kind, names in (
        ("table", set(Base.metadata.tables)),
        ("index", {index.name for each in Base.metadata.tables.values() for index in each.indexes}),
    ):
        made = f"SELECT name FROM sqlite_master WHERE type = '{kind}' AND sql IS NOT NULL"
        assert {name for (name,) in rows(path, made)} == names
    references = {
        (table, row[3], row[2], row[6])
        for table in Base.metadata.tables
        for row in rows(path, f"PRAGMA foreign_key_list({table})")
    }
    assert ("profile_chunk", "profile_id", "profile", "CASCADE") in references
    assert ("tuning_trial", "study_id", "tuning_study", "CASCADE") in references
    assert rows(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)] == [(SCHEMA_VERSION,)]
    assert not OPTUNAS_TABLES & set(Base.metadata.tables)


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 37), reason="this SQLite has no STRICT")
def test_tables_are_strict(path):
    with open_store(path):
        pass
    listed = rows(path, "PRAGMA table_list")
    strict = {name: bool(flag) for _, name, kind, _, _, flag in listed if kind == "table"}
    assert all(strict[table] for table in Base.metadata.tables)


@pytest.mark.parametrize("version", [1, 5])
def test_a_file_of_an_older_checkout_is_refused_and_left_as_it_is(path, version):
    with open_store(path) as store:
        store.create_study("a", "t.py", [], ENVIRONMENT, Level.BALANCED, Objective.MEMORY)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    refused = (
        f"{path} was written by a gpuadvisor from before the first release (its schema is "
        f"{version}, this one needs {SCHEMA_VERSION}) and is left as it is: move it away to start "
        "a new one, or set GPUADVISOR_HOME to another folder."
    )
    with pytest.raises(StoreError) as raised:
        open_store(path)
    assert str(raised.value) == refused
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_tables_that_cannot_be_made_leave_the_file_as_it_was(path):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE tuning_trial (a INTEGER)")  # somebody else's
    with pytest.raises(StoreError, match="table tuning_trial already exists"):
        open_store(path)
    assert rows(path, "SELECT name FROM sqlite_master") == [("tuning_trial",)]


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
            _ = store.optuna_storage
    holder.close()


def test_an_old_sqlite_library_is_not_taken_for_damage(path, monkeypatch):
    class Malformed(sqlite3.DatabaseError):
        sqlite_errorname = "SQLITE_CORRUPT"

    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    assert "needs SQLite 3.37" in sqlite_file.sentence(path, Malformed())


def test_without_strict_tables_the_store_works_too(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with open_store(path) as store:
        assert store.study_names() == []
    assert "STRICT" not in str(rows(path, "SELECT sql FROM sqlite_master"))
