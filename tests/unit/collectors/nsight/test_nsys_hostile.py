"""Exports from anybody: one sentence, or the usable part with a warning, and nothing is written."""

import gzip
import hashlib
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuadvisor.collectors.nsight import bounded, sqlite_export, systems
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import MAX_WARNINGS, UNKNOWN
from gpuadvisor.errors import UsageError
from tests.nsys_files import (
    CALL,
    FRAME,
    KERNEL,
    PREFIX,
    RANGE,
    SAMPLE,
    STRINGS,
    THREAD,
    tables,
    write,
)

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[3] / "data" / "profiles"


def profile_of(path):
    profile = MemoryProfile()
    profile.finish(systems.read(path, profile))
    return profile


def usable(path):
    """The profile, or None where it is refused with one sentence."""
    try:
        profile = profile_of(path)
    except UsageError as error:
        assert "\n" not in str(error)
        return None
    assert len(profile.header.warnings) <= MAX_WARNINGS
    columns = profile.columns("kernels", ["duration_ns", "name"])
    assert np.all(columns["duration_ns"] >= 0)
    assert np.all(columns["name"] < len(profile.header.texts))
    return profile


@pytest.fixture(scope="module")
def real_bytes():
    return gzip.decompress((DATA / "a100_cloverleaf.sqlite.gz").read_bytes())


def edited(path, script):
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
        connection.commit()
    return path


def test_the_file_and_its_folder_stay_as_they_were(tmp_path, real_bytes):
    path = tmp_path / "a b?c#100%.sqlite"  # what a careless URI would break on
    path.write_bytes(real_bytes)
    tmp_path.chmod(0o555)
    try:
        profile_of(path)
    finally:
        tmp_path.chmod(0o755)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(real_bytes).digest()


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"SQLite format 3\x00", b"SQLite format 3\x00" + b"\xff" * 4096, b"\x1f\x8b"],
)
def test_what_is_no_database_is_refused(tmp_path, content):
    path = tmp_path / "file.sqlite"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        systems.read(path, MemoryProfile())


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.sqlite", tmp_path):
        with pytest.raises(UsageError, match="cannot be read"):
            systems.read(path, MemoryProfile())


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9, 0.999])
def test_a_truncated_file_gives_an_error_or_what_is_there(tmp_path, real_bytes, share):
    path = tmp_path / "cut.sqlite"
    path.write_bytes(real_bytes[: int(len(real_bytes) * share)])
    profile = usable(path)
    if profile is not None:
        assert profile.header.warnings


def test_views_named_like_tables_are_not_read(tmp_path):
    path = write(tmp_path / "views.sqlite", tables(CUPTI_ACTIVITY_KIND_KERNEL=None))
    edited(
        path,
        f"CREATE VIEW {PREFIX}KERNEL AS WITH RECURSIVE endless(start) AS (SELECT 1 UNION ALL "
        'SELECT start + 1 FROM endless) SELECT start, start AS "end" FROM endless',
    )
    profile = profile_of(path)
    assert profile.rows("kernels") == 0
    assert profile.rows("copies") == 2


def test_a_view_that_calls_itself_a_table_is_not_read(tmp_path):
    path = write(tmp_path / "masked.sqlite", tables(CUPTI_ACTIVITY_KIND_KERNEL=None))
    edited(
        path,
        f"CREATE VIEW {PREFIX}KERNEL AS SELECT 1 AS start, 2 AS 'end';"
        "PRAGMA writable_schema = ON;"
        f"UPDATE sqlite_master SET type = 'table', rootpage = 2 WHERE name = '{PREFIX}KERNEL'",
    )
    profile = usable(path)
    assert profile is None or profile.rows("kernels") == 0


def test_virtual_tables_and_generated_columns_are_not_read(tmp_path):
    path = write(tmp_path / "virtual.sqlite", tables(CUPTI_ACTIVITY_KIND_MEMCPY=None))
    edited(
        path,
        f"DROP TABLE {PREFIX}KERNEL;"
        f"CREATE TABLE {PREFIX}KERNEL (start, 'end' GENERATED ALWAYS AS (start + 1) VIRTUAL);"
        f"INSERT INTO {PREFIX}KERNEL(start) VALUES (1);"
        f"CREATE VIRTUAL TABLE {PREFIX}MEMCPY USING fts5(start, 'end')",
    )
    profile = profile_of(path)
    assert profile.rows("kernels") == 0
    assert profile.rows("copies") == 1  # the memset


def test_triggers_do_not_run(tmp_path):
    path = write(tmp_path / "triggers.sqlite", tables())
    edited(
        path,
        f"CREATE TRIGGER trap AFTER INSERT ON {PREFIX}KERNEL BEGIN DELETE FROM {PREFIX}MEMCPY; END",
    )
    before = path.read_bytes()
    assert profile_of(path).rows("copies") == 2
    assert path.read_bytes() == before


def test_an_index_that_lies_is_not_used(tmp_path):
    path = write(tmp_path / "index.sqlite", tables())
    edited(
        path,
        f"CREATE TABLE other ({', '.join(map(repr, KERNEL))});"
        f"CREATE INDEX lie ON {PREFIX}KERNEL ({', '.join(map(repr, KERNEL))});"
        "PRAGMA writable_schema = ON;"
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master "
        "WHERE name = 'other') WHERE name = 'lie'",
    )
    profile = usable(path)
    assert profile is None or profile.rows("kernels") == 1


@pytest.mark.parametrize(
    "cells",
    [
        {"start": None},
        {"end": None},
        {"start": "soon"},
        {"start": b"\x00\x01"},
        {"start": 5000},  # after its end
        {"start": 2**63 - 1, "end": 2**63 - 1},
        {"start": -(2**63)},
        {"start": float("inf")},
    ],
)
def test_events_without_a_usable_time_are_left_out(tmp_path, cells):
    rows = [KERNEL, {**KERNEL, **cells}]
    profile = profile_of(write(tmp_path / "f.sqlite", tables(CUPTI_ACTIVITY_KIND_KERNEL=rows)))
    assert profile.rows("kernels") == 1
    assert "1 rows without a usable time" in profile.header.warnings[0]


@pytest.mark.parametrize("cell", [None, "forty", b"\xff", -5, 2**62, 1.5, float("inf")])
def test_cells_that_are_no_sensible_numbers_are_unknown(tmp_path, cell):
    changed = {"registersPerThread": cell, "gridX": cell, "dynamicSharedMemory": cell,
               "deviceId": cell, "correlationId": cell, "streamId": cell}  # fmt: skip
    rows = [{**KERNEL, **changed}]
    profile = profile_of(write(tmp_path / "f.sqlite", tables(CUPTI_ACTIVITY_KIND_KERNEL=rows)))
    found = profile.columns("kernels")
    for column in ("registers", "grid_x", "shared_bytes", "device", "correlation", "stream"):
        assert found[column].tolist() == [UNKNOWN]
    assert found["duration_ns"].tolist() == [2000]


def test_names_that_are_missing_are_empty(tmp_path):
    path = write(tmp_path / "f.sqlite", tables(StringIds=None))
    profile = profile_of(path)
    assert profile.header.texts[profile.columns("kernels")["name"][0]] == ""


def test_broken_text_is_read_as_far_as_it_goes(tmp_path):
    path = write(tmp_path / "f.sqlite", tables())
    edited(path, "UPDATE StringIds SET value = CAST(x'6b80ff65726e656c' AS TEXT) WHERE id = 1")
    profile = profile_of(path)
    name = profile.header.texts[profile.columns("kernels")["name"][0]]
    assert name == "k\ufffd\ufffdernel"


def test_long_and_many_names_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded, "ALL_TEXTS", 0)
    long = [{**STRINGS[0], "value": "x" * 10**6}, *STRINGS[1:]]
    path = write(tmp_path / "f.sqlite", tables(StringIds=long))
    assert max(map(len, profile_of(path).header.texts)) == bounded.LONGEST_TEXT


def test_pages_that_point_in_circles_end(tmp_path):
    rows = [{**KERNEL, "start": n, "end": n + 1} for n in range(5000)]
    path = write(tmp_path / "f.sqlite", tables(CUPTI_ACTIVITY_KIND_KERNEL=rows))
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("PRAGMA page_size").fetchone()
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = connection.execute(query, [f"{PREFIX}KERNEL"]).fetchone()
    content = bytearray(path.read_bytes())
    at = (root - 1) * page
    assert content[at] == 5  # an interior page, which holds pointers to others
    cells = int.from_bytes(content[at + 3 : at + 5], "big")
    first = int.from_bytes(content[at + 12 : at + 14], "big")
    for cell in range(cells):  # each of them to the first
        place = at + int.from_bytes(content[at + 12 + 2 * cell : at + 14 + 2 * cell], "big")
        content[place : place + 4] = content[at + first : at + first + 4]
    path.write_bytes(content)
    profile = usable(path)
    assert profile is None or profile.rows("kernels") <= len(content) // 6


def test_more_rows_than_the_file_can_hold_are_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_export, "SMALLEST_ROW_BYTES", 10**6)
    with pytest.raises(UsageError, match="repeats rows without end"):
        systems.read(write(tmp_path / "f.sqlite", tables()), MemoryProfile())


def test_a_query_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_export, "_FREE_STEPS", 0)
    monkeypatch.setattr(sqlite_export, "_STEPS_PER_BYTE", 0)
    rows = [{**CALL, "start": n, "end": n + 1} for n in range(20_000)]
    path = write(tmp_path / "f.sqlite", tables(CUPTI_ACTIVITY_KIND_RUNTIME=rows))
    assert any("it takes too long" in line for line in profile_of(path).header.warnings)


cells = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from([0, 1, 59, 2**32 - 1, 10**9]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_cells_anywhere(tmp_path_factory, data):
    contents = {}
    for table, rows in tables(CUPTI_ACTIVITY_KIND_GRAPH_TRACE=[KERNEL], GPU_METRICS=[
        {"timestamp": 1, "typeId": 1, "metricId": 1, "value": 1}
    ]).items():  # fmt: skip
        left = data.draw(st.sampled_from(["as it is", "wild", "missing"]))
        columns = list(rows[0])
        if left == "wild":
            wild = st.fixed_dictionaries(dict.fromkeys(columns, cells))
            contents[table] = data.draw(st.lists(wild, min_size=1, max_size=4))
        elif left == "as it is":
            contents[table] = rows
    if contents:
        path = tmp_path_factory.mktemp("wild") / "wild.sqlite"
        usable(write(path, contents))


@pytest.mark.parametrize("seed", range(60))
def test_files_with_bytes_changed(tmp_path, real_bytes, seed):
    chance = random.Random(seed)
    rows = [{**RANGE, "start": n, "end": n + 1, "text": f"range {n}"} for n in range(300)]
    whole = (
        real_bytes
        if seed % 4 == 0
        else write(tmp_path / "whole.sqlite", tables(NVTX_EVENTS=rows)).read_bytes()
    )
    content = bytearray(whole)
    for _ in range(chance.choice([1, 10, 200])):
        content[chance.randrange(100, len(content))] = chance.randrange(256)
    path = tmp_path / "mutated.sqlite"
    path.write_bytes(content)
    usable(path)
    assert path.read_bytes() == content


CELLS = st.one_of(
    st.none(),
    st.integers(-3, 12),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=4),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    samples=st.lists(
        st.fixed_dictionaries({"id": CELLS, "start": CELLS | st.integers(0, 4000),
                               "globalTid": st.sampled_from([THREAD, THREAD + 1]) | CELLS}),
        min_size=1, max_size=30,
    ),
    frames=st.lists(
        st.fixed_dictionaries(dict.fromkeys(FRAME, CELLS)), min_size=1, max_size=60
    ),
)  # fmt: skip
def test_any_stacks_give_one_row_a_sample_at_most_and_change_nothing_else(
    tmp_path, samples, frames
):
    path = tmp_path / "stacks.sqlite"
    path.unlink(missing_ok=True)
    made = tables(
        COMPOSITE_EVENTS=[{**SAMPLE, **each} for each in samples], SAMPLING_CALLCHAINS=frames
    )
    profile = usable(write(path, made))
    assert profile is not None
    rows = profile.columns("samples")
    ours = [
        each for each in samples
        if each["globalTid"] == THREAD and isinstance(each["start"], (int, float))
        and 50 <= each["start"] < 3200
    ]  # fmt: skip
    assert profile.rows("samples") == len([each for each in ours if each["start"] % 1 == 0])
    for name in ("function", "module"):
        assert np.all((rows[name] >= 0) & (rows[name] < len(profile.header.texts)))
    assert profile.header.duration_ns == 3150
    assert profile.rows("calls") == profile.rows("kernels") == 1
