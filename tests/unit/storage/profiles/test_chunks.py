"""Columns and texts as blobs: exact, and known when damaged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gpuadvisor.storage.profiles import chunks
from gpuadvisor.storage.profiles.chunks import decode, decode_texts, encode, encode_texts

KINDS = ["int8", "int16", "int32", "int64", "float64"]
COLUMNS = st.sampled_from(KINDS).flatmap(
    lambda kind: arrays.arrays(
        kind, st.integers(1, 200), elements=arrays.from_dtype(np.dtype(kind))
    )
)


@given(COLUMNS)
def test_any_column_comes_back_bit_by_bit(column):
    found = decode(encode(column), column.dtype.name, len(column))
    assert found.dtype == column.dtype
    assert found.tobytes() == column.tobytes()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1).map(sorted))
def test_any_rising_times_come_back(times):
    column = np.array(times, np.int64)
    assert decode(encode(column), "int64", len(column)).tolist() == times


@given(st.lists(st.text(st.characters(exclude_categories=()))))
def test_any_texts_come_back(texts):
    assert decode_texts(encode_texts(texts), len(texts)) == texts


@pytest.mark.parametrize(
    ("column", "most_bytes_a_row"),
    [
        (np.arange(10**9, 10**9 + 60_000 * 1000, 1000), 0.01),
        (np.full(60_000, -1), 0.01),
        (np.full(60_000, np.nan), 0.01),
        (np.cumsum(np.arange(60_000) % 251 * 7), 2.0),
    ],
)
def test_what_is_regular_takes_little_room(column, most_bytes_a_row):
    assert len(encode(column)) < most_bytes_a_row * len(column)


@given(COLUMNS, st.data())
def test_a_changed_byte_is_noticed_or_changes_nothing(column, data):
    blob = bytearray(encode(column))
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    try:
        found = decode(bytes(blob), column.dtype.name, len(column))
    except ValueError:
        return
    assert found.tobytes() == column.tobytes()


@given(st.binary(max_size=300), st.integers(1, 1000))
def test_anything_else_is_refused(blob, rows):
    with pytest.raises(ValueError, match="chunk"):
        decode(blob, "int64", rows)
    with pytest.raises(ValueError, match="chunk"):
        decode_texts(blob, rows)


@pytest.mark.parametrize("rows", [1, 99, 101, 10**9])
def test_another_number_of_rows_is_refused(rows):
    blob = encode(np.random.default_rng(0).integers(0, 1000, 100))
    with pytest.raises(ValueError, match=r"another length|claims"):
        decode(blob, "int64", rows)


def test_a_bomb_is_not_decompressed():
    bomb = chunks._compressed(bytes(100_000_000))
    assert len(bomb) < 20_000
    with pytest.raises(ValueError, match="claims to be 100000000 bytes"):
        decode(bomb, "int64", 65536)


def test_texts_are_split_by_number_and_by_length(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 3)
    monkeypatch.setattr(chunks, "CHUNK_TEXT_BYTES", 4)
    split = list(chunks.text_chunks(["a", "b", "c", "d", "long text", "e", "f", "g", "h"]))
    assert split == [["a", "b", "c"], ["d", "long text"], ["e", "f", "g"], ["h"]]
    assert list(chunks.text_chunks([])) == []
