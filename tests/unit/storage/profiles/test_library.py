"""Profiles in the database: what comes in comes out, wholly or not at all."""

import dataclasses
import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.ceiling import Ceiling
from gpuadvisor.domain.profile import TABLES, Header
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.storage.locks import locked
from gpuadvisor.storage.profiles import chunks, writer
from gpuadvisor.storage.profiles.library import open_profiles
from gpuadvisor.storage.profiles.writer import Origin
from tests.stored_profiles import batch, fill, header

DATA = Path(__file__).parents[3] / "data"
DIGEST = "ab" * 32
NUMBERS = itertools.count()


@pytest.fixture
def profiles(tmp_path):
    with open_profiles(tmp_path / "gpuadvisor.db") as opened:
        yield opened


def origin(digest=DIGEST, **changed):
    fields = {"path": "/traces/rank0.json.gz", "size_bytes": 17, "stem": "rank0"}
    return Origin(**fields | {"digest": digest} | changed)


def put(profiles, rows=100, **changed):
    with profiles.writer(origin(**changed)) as sink:
        fill(sink, rows)
        return sink.finish(header())


def count(profiles, table):
    with closing(sqlite3.connect(profiles.path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def change(profiles, sql, *values):
    with closing(sqlite3.connect(profiles.path)) as connection, connection:
        assert connection.execute(sql, values).rowcount > 0


# -- what comes in comes out -------------------------------------------------------------------


def test_a_profile_comes_back_as_it_was_in_memory(profiles):
    memory = MemoryProfile()
    with profiles.writer(origin()) as sink:
        for each in (sink, memory):
            fill(each, 1000)
            fill(each, 500, seed=1)
        memory.finish(header())
        kept = sink.finish(header())
    assert kept.is_new
    stored = profiles.get(kept.profile_id)
    for table in TABLES:
        assert stored.rows(table) == memory.rows(table) == 1500
        for name, column in memory.columns(table).items():
            found = stored.columns(table, [name])[name]
            assert found.dtype == column.dtype
            assert np.array_equal(found, column, equal_nan=column.dtype.kind == "f"), (table, name)
    texts = tuple(stored.header.texts)
    assert dataclasses.replace(stored.header, texts=texts) == memory.header


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=15,
    deadline=None,
)
@given(st.data())
def test_any_rows_in_any_batches_come_back(profiles, data):
    table = data.draw(st.sampled_from(sorted(TABLES)))
    lengths = data.draw(st.lists(st.integers(0, 40), max_size=4))
    batches = [
        {
            name: data.draw(arrays.arrays(kind, length, elements=arrays.from_dtype(np.dtype(kind))))
            for name, kind in TABLES[table].items()
        }
        for length in lengths
    ]
    texts = ("", *data.draw(st.lists(st.text(), max_size=3)))
    with profiles.writer(origin(digest=f"{next(NUMBERS):064x}")) as sink:
        for columns in batches:
            sink.add(table, columns)
        kept = sink.finish(Header("kineto", texts=texts))
    stored = profiles.get(kept.profile_id)
    assert stored.rows(table) == sum(lengths)
    for name, kind in TABLES[table].items():
        parts = [np.empty(0, kind), *(columns[name] for columns in batches)]
        assert stored.columns(table)[name].tobytes() == np.concatenate(parts).tobytes()
    assert tuple(stored.header.texts) == texts


def test_many_rows_are_split_into_chunks_in_their_order(profiles):
    rows = 2 * chunks.CHUNK_ROWS + 17
    whole = batch("copies", rows)
    with profiles.writer(origin()) as sink:
        for begin in range(0, rows, 30_000):
            sink.add("copies", {n: column[begin : begin + 30_000] for n, column in whole.items()})
        stored = profiles.get(sink.finish(header()).profile_id)
    of_begin = "profile_chunk WHERE column_name = 'begin_ns'"
    assert count(profiles, of_begin) == 3
    assert all(np.array_equal(stored.columns("copies")[name], whole[name]) for name in whole)


@pytest.mark.parametrize("where", ["store", "memory"])
def test_columns_are_read_piece_by_piece_as_they_are_as_a_whole(profiles, where):
    rows = 2 * chunks.CHUNK_ROWS + 17
    memory = MemoryProfile()
    with profiles.writer(origin()) as sink:
        for each in (sink, memory):
            each.add("memory", batch("memory", rows))
        stored = profiles.get(sink.finish(header(first_ns=3)).profile_id)
    memory.finish(header(first_ns=3))
    profile = stored if where == "store" else memory
    names = ("time_ns", "bytes", "device")
    whole = memory.columns("memory", names)
    pieces = list(profile.batches("memory", names))
    assert [len(each["bytes"]) for each in pieces] == [chunks.CHUNK_ROWS, chunks.CHUNK_ROWS, 17]
    for name in names:
        joined = np.concatenate([each[name] for each in pieces])
        assert joined.dtype == whole[name].dtype and np.array_equal(joined, whole[name])
    kept = np.zeros(rows, np.bool_)
    kept[[5, 9, rows - 1]] = True  # none in the piece in the middle
    pieces = list(profile.batches("memory", names, kept))
    assert [each["bytes"].tolist() for each in pieces] == [
        whole["bytes"][[5, 9]].tolist(), whole["bytes"][[rows - 1]].tolist(),
    ]  # fmt: skip
    assert list(profile.batches("kernels", ("name",))) == []


def test_of_pieces_without_a_row_that_is_kept_nothing_is_read(profiles):
    rows = 2 * chunks.CHUNK_ROWS
    with profiles.writer(origin()) as sink:
        sink.add("memory", batch("memory", rows))
        stored = profiles.get(sink.finish(header()).profile_id)
    change(profiles, "UPDATE profile_chunk SET data = x'00' WHERE number = 0")
    kept = np.arange(rows) >= rows - 2
    assert [len(each["bytes"]) for each in stored.batches("memory", ("bytes",), kept)] == [2]
    with pytest.raises(StoreError, match=r"rank0 in .* is damaged"):
        list(stored.batches("memory", ("bytes",)))


def test_only_the_columns_that_are_asked_for_are_read(profiles):
    put(profiles)
    change(profiles, "UPDATE profile_chunk SET data = x'00' WHERE column_name <> 'duration_ns'")
    assert list(profiles.find("rank0").columns("kernels", ["duration_ns"])) == ["duration_ns"]


def test_texts_can_be_asked_for_like_a_tuple(profiles):
    put(profiles)
    texts = profiles.find("rank0").header.texts
    assert (len(texts), texts[1], texts[-1]) == (4, "gemm", "ProfilerStep#1")
    assert texts[1:3] == ["gemm", "relu\udcff"]
    for beyond in (4, -5):
        with pytest.raises(IndexError):
            texts[beyond]


def test_times_begin_at_the_earliest_one(profiles):
    columns = batch("memory", 3) | {"time_ns": np.array([7, -5, 0])}
    with profiles.writer(origin()) as sink:
        sink.add("memory", columns)
        stored = profiles.get(sink.finish(header(first_ns=-5)).profile_id)
    assert stored.columns("memory")["time_ns"].tolist() == [12, 0, 5]
    assert stored.columns("memory")["bytes"].tolist() == columns["bytes"].tolist()
    assert stored.header.first_ns == 0


def test_numbers_that_no_honest_file_has_are_not_stored(profiles):
    with profiles.writer(origin()) as sink:
        odd = {"begin_unix_ns": 2**70, "rank": -(2**64), "duration_ns": 2**80}
        stored = profiles.get(sink.finish(header(**odd)).profile_id)
    assert stored.header.begin_unix_ns is None
    assert stored.header.rank is None
    assert stored.header.duration_ns == 2**63 - 1


def test_a_column_that_an_older_gpuadvisor_did_not_have_is_unknown(profiles):
    put(profiles)
    change(
        profiles,
        "DELETE FROM profile_chunk WHERE column_name IN ('graph_node', 'flops', 'sequence')",
    )
    stored = profiles.find("rank0")
    assert set(stored.columns("operators")["sequence"].tolist()) == {-1}
    assert set(stored.columns("kernels")["graph_node"].tolist()) == {-1}
    assert np.isnan(stored.columns("operators")["flops"]).all()
    (piece,) = stored.batches("kernels", ("graph_node", "begin_ns"))
    assert set(piece["graph_node"].tolist()) == {-1} and len(piece["begin_ns"]) == 100


# -- names -------------------------------------------------------------------------------------


def test_names_are_numbered_where_they_are_taken(profiles):
    for number in range(3):
        put(profiles, digest=f"{number:064x}")
    assert [each.name for each in profiles.list()] == ["rank0-3", "rank0-2", "rank0"]


@pytest.mark.parametrize("wanted", ["mine", "#1", "1", "abab" * 3, DIGEST, "rank0.json.gz",
                                    "/traces/rank0.json.gz"])  # fmt: skip
def test_a_profile_is_found_by(profiles, wanted):
    put(profiles, name="mine")
    assert profiles.find(wanted).record.name == "mine"


def test_a_name_comes_before_an_id_and_the_newest_path_before_others(profiles):
    put(profiles, name="2")
    put(profiles, digest="cd" * 32, name="other")
    assert profiles.find("2").record.id == 1
    assert profiles.find("rank0.json.gz").record.name == "other"


def test_what_is_not_there_is_said_with_what_is(profiles):
    with pytest.raises(UsageError, match="no profile 'x': none is stored yet"):
        profiles.find("x")
    put(profiles, name="a")
    with pytest.raises(UsageError, match="no profile 'x': the newest are a"):
        profiles.find("x")


def test_the_begin_of_two_digests_is_ambiguous(profiles):
    put(profiles, digest="aaaaaa" + "0" * 58, name="a")
    put(profiles, digest="aaaaaa" + "1" * 58, name="b")
    with pytest.raises(UsageError, match="several profiles begin with aaaaaa: b, a"):
        profiles.find("aaaaaa")


@pytest.mark.parametrize(("name", "says"), [("a", "a profile a already"), ("", "cannot name")])
def test_a_name_that_cannot_be_used_leaves_nothing(profiles, name, says):
    put(profiles, name="a")
    with pytest.raises(UsageError, match=says):
        put(profiles, digest="cd" * 32, name=name)
    assert (count(profiles, "profile"), count(profiles, "profile_device")) == (1, 2)


# -- wholly or not at all ----------------------------------------------------------------------


def test_the_same_file_is_one_profile_even_where_it_came_in_meanwhile(profiles):
    first = put(profiles)
    second = put(profiles)
    assert second == dataclasses.replace(first, is_new=False)
    assert count(profiles, "profile") == 1
    assert count(profiles, "profile_chunk WHERE profile_id <> 1") == 0


class Boom(BaseException):
    """Stands for Ctrl-C."""


def test_an_import_that_fails_in_the_middle_leaves_nothing(profiles, monkeypatch):
    monkeypatch.setattr(writer, "TRANSACTION_BYTES", 1)
    stopped = pytest.raises(Boom)
    with stopped, profiles.writer(origin()) as sink:
        sink.add("copies", batch("copies", chunks.CHUNK_ROWS))
        assert count(profiles, "profile_chunk") > 0
        assert profiles.list() == []
        raise Boom
    assert [count(profiles, table) for table in ("profile", "profile_chunk")] == [0, 0]


def test_what_a_killed_import_left_is_removed_by_the_next_one(profiles, monkeypatch):
    monkeypatch.setattr(writer, "TRANSACTION_BYTES", 1)
    put(profiles)
    change(profiles, "UPDATE profile SET name = NULL, digest = NULL, imported = NULL")
    assert profiles.list() == []
    with pytest.raises(UsageError):
        profiles.find("rank0.json.gz")
    put(profiles, digest="cd" * 32)
    assert count(profiles, "profile") == 1


def test_an_import_that_goes_on_is_not_removed(profiles):
    put(profiles)
    change(profiles, "UPDATE profile SET name = NULL, digest = NULL, imported = NULL")
    with locked(profiles.path.with_name("locks") / "profile-1.lock"):
        profiles.remove_unfinished()
        assert count(profiles, "profile") == 1
    profiles.remove_unfinished()
    assert count(profiles, "profile") == 0


def test_a_study_is_written_while_a_profile_comes_in(profiles):
    with profiles.writer(origin()) as sink, closing(sqlite3.connect(profiles.path)) as study:
        study.execute("PRAGMA busy_timeout = 0")
        for _ in range(3):
            sink.add("copies", batch("copies", chunks.CHUNK_ROWS))
            study.execute("BEGIN IMMEDIATE")
            study.execute("INSERT INTO environment (fingerprint) VALUES (hex(randomblob(9)))")
            study.execute("COMMIT")
        sink.finish(header())
    assert count(profiles, "environment") == 3


def test_removing_takes_everything_and_says_what(profiles, monkeypatch):
    monkeypatch.setattr("gpuadvisor.storage.profiles.library.REMOVED_CHUNKS", 7)
    put(profiles, name="a")
    put(profiles, name="b", digest="cd" * 32)
    opened = profiles.find("a")
    assert profiles.remove("#1") == "a"
    assert [each.name for each in profiles.list()] == ["b"]
    for table in ("profile_chunk", "profile_device"):
        assert count(profiles, f"{table} WHERE profile_id = 1") == 0
        assert count(profiles, f"{table} WHERE profile_id = 2") > 0
    with pytest.raises(StoreError, match=r"a is not in .* any more: it has been removed"):
        _ = opened.header


# -- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE profile_chunk SET data = x'00'",
        "UPDATE profile_chunk SET data = zeroblob(100)",
        "UPDATE profile_chunk SET row_count = row_count + 1",
        "UPDATE profile_chunk SET row_count = 1000000000000",
        "UPDATE profile_chunk SET row_count = -1",
        "UPDATE profile_chunk SET number = 1",
        "UPDATE profile_chunk SET dtype = 'nonsense'",
        "UPDATE profile_chunk SET dtype = 'float64' WHERE dtype <> 'float64'",
        "UPDATE profile SET table_rows = '{\"kernels\": 1000000000000000}'",
        "DELETE FROM profile_chunk WHERE table_name = 'kernels'",
        "UPDATE profile SET table_rows = '{'",
        "UPDATE profile SET table_rows = '[1]'",
        'UPDATE profile SET processes = \'{"x": "y"}\'',
        "UPDATE profile_device SET limits = '{\"index\":0}'",
        "UPDATE profile_device SET limits = 'no JSON'",
    ],
)
def test_damage_is_said_in_a_sentence_and_can_be_removed(profiles, sql):
    put(profiles)
    change(profiles, sql)
    opened = profiles.find("rank0")
    with pytest.raises(StoreError, match=r"rank0 in .* is damaged .* import its file again"):
        assert opened.columns("kernels"), tuple(opened.header.texts)
    with pytest.raises(StoreError, match=r"rank0 in .* is damaged .* import its file again"):
        assert list(profiles.find("rank0").batches("kernels", TABLES["kernels"])), opened.header
    assert profiles.remove("rank0") == "rank0"
    assert count(profiles, "profile") + count(profiles, "profile_chunk") == 0


def test_a_damaged_list_is_said(profiles):
    put(profiles)
    change(profiles, "UPDATE profile SET table_rows = '{\"kernels\":null}'")
    with pytest.raises(StoreError, match=r"The list of profiles in .* is damaged"):
        profiles.list()


def test_damaged_texts_are_said_too(profiles):
    put(profiles)
    change(profiles, "UPDATE profile_chunk SET data = x'00' WHERE table_name = 'texts'")
    with pytest.raises(StoreError, match="is damaged"):
        _ = profiles.find("rank0").header.texts[1]


# -- ceilings ----------------------------------------------------------------------------------


def test_the_newest_ceilings_of_a_gpu_or_else_of_its_kind(profiles):
    def rate(value, what="copy"):
        return Ceiling(what, value, "bytes/s", "2025-11-21T00:00:00+00:00", {"size": "1 GiB"})

    profiles.add_ceilings("GPU-1", "H100", [rate(1.0), rate(5.0, "matmul_bf16")])
    profiles.add_ceilings("GPU-1", "H100", [rate(2.0)])
    profiles.add_ceilings("GPU-2", "H100", [rate(3.0)])
    assert profiles.newest_ceilings("GPU-1", "H100") == {
        "copy": rate(2.0),
        "matmul_bf16": rate(5.0, "matmul_bf16"),
    }
    assert profiles.newest_ceilings(name="H100")["copy"].value == 3.0
    assert profiles.newest_ceilings("GPU-9", "A100") == {}
