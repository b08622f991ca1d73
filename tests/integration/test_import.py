"""`gpuadvisor import` and `gpuadvisor.open_profile`, on real files in a process of its own."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import gpuadvisor
from gpuadvisor.domain.profile import TABLES
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.importing import import_trace
from gpuadvisor.profiling.reading import trace_files
from gpuadvisor.storage.profiles.library import open_profiles
from tests.integration.program import Running, run

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
REAL = sorted(path for path in PROFILES.glob("*.gz") if "ncu-rep" not in path.name)
"""Reports of Nsight Compute need a package that is not installed for tests."""
DOUBLINGS = 7
"""Of the kernels of the recording: an import of seconds."""
PATIENCE_S = 120.0


def unpacked(path, folder):
    """Return the file as readers take it: only the torch profiler's traces stay compressed."""
    if ".json" in path.name:
        return path
    target = folder / path.name.removesuffix(".gz")
    target.write_bytes(gzip.decompress(path.read_bytes()))
    return target


@pytest.fixture
def nsys(tmp_path):
    """A recording of Nsight Systems of 1,312 kernels."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    return unpacked(PROFILES / "a100_cloverleaf.sqlite.gz", folder)


@pytest.fixture
def database(tmp_path):
    return tmp_path / "store" / "gpuadvisor.db"


@pytest.fixture
def large(tmp_path, nsys):
    """A recording whose import takes seconds."""
    return grown(nsys, tmp_path / "large.sqlite", DOUBLINGS)


def grown(nsys, path, doublings):
    """Copy the recording and double its kernels so often."""
    shutil.copy(nsys, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        for _ in range(doublings):
            connection.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT * FROM CUPTI_ACTIVITY_KIND_KERNEL"
            )
    return path


def count(database, table):
    with closing(sqlite3.connect(database, timeout=PATIENCE_S)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def begun(home, *words, database, program=None):
    """Start an import and return once its profile is on its way in."""
    started = Running(home, "import", *map(str, words))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert started.process.poll() is None, started.end()
        if database.exists():
            try:
                if count(database, "profile WHERE imported IS NULL"):
                    return started
            except sqlite3.OperationalError:  # its tables are being made
                pass
        time.sleep(0.005)
    raise AssertionError("no import began")


def documents(run, home, *words):
    answer = run(home, "import", *map(str, words), "--json")
    return answer, json.loads(answer.out)


# -- files -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("packed", REAL, ids=lambda path: path.name)
def test_every_real_file_is_the_same_from_the_store_and_from_memory(tmp_path, monkeypatch, packed):
    path = unpacked(packed, tmp_path)
    answer, document = documents(run, tmp_path, path)
    assert (answer.status, document["failed"]) == (0, []), answer.err
    (told,) = document["profiles"]
    assert told["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "store"))
    stored, read = gpuadvisor.open_profile(told["name"]), gpuadvisor.open_profile(path)
    assert tuple(stored.header.texts) == tuple(read.header.texts)
    assert stored.header.not_measured == read.header.not_measured
    for table in TABLES:
        assert stored.rows(table) == read.rows(table) == told["rows"].get(table, 0)
        for name, column in read.columns(table).items():
            found = stored.columns(table, [name])[name]
            assert np.array_equal(found, column, equal_nan=column.dtype.kind == "f"), (table, name)


def test_what_was_imported_is_said(tmp_path, here, nsys):
    answer = here(tmp_path, "import", str(nsys), "--name", "clover")
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert lines[0] == "clover"
    assert "  device        4 x NVIDIA A100-SXM4-80GB" in lines
    assert "  duration      618.4 ms" in lines
    assert "  events        1,312 kernels, 279 copies, 0 operators" in lines
    assert any(line.startswith("  not measured  ") and "memory" in line for line in lines)
    assert answer.err == "", "no progress where nobody looks"


def test_the_same_file_twice_is_one_profile_whatever_it_is_called(tmp_path, here, database, nsys):
    shutil.copy(nsys, tmp_path / "other.sqlite")
    here(tmp_path, "import", str(nsys))
    answer = here(tmp_path, "import", "other.sqlite", "--name", "mine")
    assert answer.status == 0
    assert answer.out.startswith("a100_cloverleaf  (the same file is stored already")
    assert count(database, "profile") == 1


def test_files_that_fail_do_not_keep_the_others_out(tmp_path, here, nsys):
    (tmp_path / "cut.sqlite").write_bytes(nsys.read_bytes()[:5000])
    (tmp_path / "notes.txt").write_text("not a trace")
    (tmp_path / "large.nsys-rep").write_text("version https://git-lfs.github.com/spec/v1\noid 0\n")
    files = ("notes.txt", nsys, "cut.sqlite", "absent.json", "large.nsys-rep")
    answer, document = documents(here, tmp_path, *files)
    assert answer.status == 1
    assert [each["name"] for each in document["profiles"]] == ["a100_cloverleaf"]
    failed = {Path(each["path"]).name: each["error"] for each in document["failed"]}
    assert list(failed) == ["notes.txt", "cut.sqlite", "absent.json", "large.nsys-rep"]
    assert "is no profile that gpuadvisor knows" in failed["notes.txt"]
    assert "is no file" in failed["absent.json"]
    assert "is only the pointer of Git LFS" in failed["large.nsys-rep"]
    assert answer.err.count("gpuadvisor: ") == len(answer.err.splitlines()) == 4
    assert "bug" not in answer.err


def test_what_only_some_readers_take_compressed_is_said(tmp_path, here):
    answer = here(tmp_path, "import", str(PROFILES / "h100_planted.raw.csv.gz"))
    assert answer.status == 1
    assert answer.sentence.endswith("is compressed: unpack it first, with `gunzip`.")


def test_a_name_that_is_taken_is_refused(tmp_path, here, nsys):
    other = grown(nsys, tmp_path / "other.sqlite", 1)
    here(tmp_path, "import", str(nsys), "--name", "mine")
    answer = here(tmp_path, "import", str(other), "--name", "mine")
    assert answer.status == 1
    assert answer.sentence.startswith("There is a profile mine already: choose another name")


def test_the_traces_of_a_folder_are_the_ranks_of_a_run(tmp_path, here, nsys):
    folder = tmp_path / "run 7"
    folder.mkdir()
    for rank in range(2):
        path = folder / f"trace_rank-{rank}.sqlite"
        shutil.copy(nsys, path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE note AS SELECT ? AS rank", (rank,))
    (folder / "README").write_text("how it was recorded")
    (folder / "config.json").write_text('{"epochs": 3}')
    answer, document = documents(here, tmp_path, folder)
    assert (answer.status, document["failed"]) == (0, [])
    told = [(each["name"], each["rank"], each["ranks_of"]) for each in document["profiles"]]
    assert told == [(f"run-7-trace_rank-{rank}", rank, str(folder)) for rank in range(2)]
    with open_profiles(tmp_path / "store" / "gpuadvisor.db") as profiles:
        assert len(profiles.list(str(folder))) == 2
        assert profiles.list("/elsewhere") == []


def test_a_trace_that_was_imported_alone_joins_its_ranks_later(tmp_path, database):
    folder = tmp_path / "run"
    folder.mkdir()
    traces = [folder / f"rank{rank}.json.gz" for rank in range(2)]
    for trace, name in zip(traces, ("input_bound", "pageable_copy"), strict=True):
        shutil.copy(PROFILES / "workloads" / f"{name}.json.gz", trace)
    alone = tmp_path / "alone.json.gz"
    shutil.copy(traces[1], alone)
    with open_profiles(database) as profiles:
        first = import_trace(profiles, *trace_files([alone])).profile.record
        assert (first.ranks_of, first.rank) == ("", None)
        found = [import_trace(profiles, file) for file in trace_files([folder])]
        assert [each.is_new for each in found] == [True, False]
        assert [each.profile.record.rank for each in found] == [0, 1]
        assert {each.id for each in profiles.list(str(folder))} == {
            first.id, found[0].profile.record.id
        }  # fmt: skip
        assert profiles.get(first.id).record.path == str(alone)
        elsewhere = folder.rename(tmp_path / "moved")
        (again, _) = [import_trace(profiles, file) for file in trace_files([elsewhere])]
        assert again.profile.record.ranks_of == str(folder), "it belongs to a folder already"


def test_a_folder_without_traces_is_said(tmp_path, here):
    (tmp_path / "empty").mkdir()
    answer = here(tmp_path, "import", "empty")
    assert answer.status == 2
    assert answer.sentence.endswith(
        "has no trace that gpuadvisor knows: name the files themselves."
    )


@pytest.mark.slow
def test_profiles_are_listed_and_removed(tmp_path, here, database, nsys):
    assert "no profile is stored yet" in here(tmp_path, "import", "--list").out
    here(tmp_path, "import", str(nsys), "--name", "a")
    titles, line = here(tmp_path, "import", "--list").out.splitlines()
    assert titles.split()[:2] == ["NAME", "SOURCE"]
    assert line.split()[:2] == ["a", "nsys"]
    assert here(tmp_path, "import", "--remove", "a").out == "removed a\n"
    assert [count(database, table) for table in ("profile", "profile_chunk")] == [0, 0]
    again = here(tmp_path, "import", "--remove", "a")
    assert (again.status, "no profile 'a'" in again.sentence) == (2, True)


@pytest.mark.parametrize("words", [[], ["x.json", "--list"], ["x.json", "--remove", "a"]])
def test_what_cannot_be_meant_is_refused(tmp_path, here, words):
    assert here(tmp_path, "import", *words).status == 2


# -- several processes, and their ends ---------------------------------------------------------


def test_two_imports_of_one_file_at_once_are_one_profile(tmp_path, database, nsys):
    large = grown(nsys, tmp_path / "large.sqlite", DOUBLINGS - 3)
    both = [Running(tmp_path, "import", str(large), "--json") for _ in range(2)]
    answers = [each.end() for each in both]
    assert [each.status for each in answers] == [0, 0], answers
    told = [json.loads(each.out)["profiles"][0] for each in answers]
    assert {each["name"] for each in told} == {"large"}
    assert sorted(each["is_new"] for each in told) == [False, True]
    assert count(database, "profile") == 1
    assert count(database, "profile_chunk WHERE profile_id NOT IN (SELECT id FROM profile)") == 0


@pytest.mark.slow
def test_two_imports_of_two_files_at_once(tmp_path, database, large, nsys):
    both = [Running(tmp_path, "import", str(path)) for path in (nsys, large)]
    assert [each.end().status for each in both] == [0, 0]
    assert count(database, "profile WHERE imported IS NOT NULL") == 2


def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path, database, large):
    started = begun(tmp_path, large, database=database)
    started.process.send_signal(signal.SIGINT)
    answer = started.end()
    assert (answer.status, answer.sentence) == (130, "interrupted")
    for table in ("profile", "profile_chunk"):
        assert count(database, table) == 0


def test_what_a_killed_import_leaves_is_seen_by_nobody_and_removed_by_the_next(
    tmp_path, here, database, large, nsys
):
    started = begun(tmp_path, large, database=database)
    started.process.kill()
    started.end()
    assert count(database, "profile") == 1
    assert "no profile is stored yet" in here(tmp_path, "import", "--list").out
    assert here(tmp_path, "import", str(nsys)).status == 0
    assert count(database, "profile") == 1


@pytest.mark.slow
def test_a_file_that_grows_while_it_is_read_is_not_stored(tmp_path, database, large):
    started = begun(tmp_path, large, database=database)
    with large.open("ab") as file:
        file.write(b"more")
    answer = started.end()
    assert answer.status == 1
    assert "was changed while it was read" in answer.sentence
    assert count(database, "profile") == 0


# -- for programs ------------------------------------------------------------------------------


def test_a_file_that_is_opened_is_not_stored(tmp_path, monkeypatch, nsys):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "store"))
    profile = gpuadvisor.open_profile(str(nsys))
    assert profile.rows("kernels") == 1312
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("absent", ["train", Path("train.json")])
def test_what_cannot_be_opened_is_said(tmp_path, monkeypatch, absent):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "store"))
    with pytest.raises(UsageError, match=r"There is no (profile 'train'|file train.json)"):
        gpuadvisor.open_profile(absent)


def test_a_compressed_file_that_is_no_trace_is_refused(tmp_path, here):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"hello"))
    (tmp_path / "b.json.gz").write_bytes(b"\x1f\x8bnot gzip after all")
    (tmp_path / "c.json.zst").write_bytes(b"\x28\xb5\x2f\xfdnor Zstandard")
    (tmp_path / "d.json").touch()
    answer = here(tmp_path, "import", "a.json.gz", "b.json.gz", "c.json.zst", "d.json")
    assert answer.status == 1
    assert len(answer.err.splitlines()) == 4
    assert "bug" not in answer.err
