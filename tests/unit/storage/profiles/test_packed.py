"""A profile in memory that is packed once it is large: it is the same profile."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import TABLES
from gpuadvisor.storage.profiles.chunks import CHUNK_ROWS
from gpuadvisor.storage.profiles.packed import PackedProfile
from tests.stored_profiles import batch, header

SIZES = st.sampled_from((1, 17, 900, CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1))


def same(packed, plain):
    for table, names in TABLES.items():
        assert packed.rows(table) == plain.rows(table)
        pieces = list(packed.batches(table, names))
        for name, values in plain.columns(table).items():
            column = packed.columns(table, (name,))[name]
            assert column.dtype == values.dtype and column.tobytes() == values.tobytes()
            assert not (len(column) and column.flags.writeable)
            if pieces:
                joined = np.concatenate([each[name] for each in pieces])
                assert joined.dtype == values.dtype and joined.tobytes() == values.tobytes()


@settings(max_examples=10)
@given(
    st.lists(st.tuples(st.sampled_from(("kernels", "memory", "calls")), SIZES), max_size=4),
    st.sampled_from((0, 1000, 3 * CHUNK_ROWS)),
    st.sampled_from((0, -5, 10**18)),
)
def test_it_is_what_it_was_given(batches, most, first_ns):
    packed, plain = PackedProfile(most), MemoryProfile()
    for number, (table, rows) in enumerate(batches):
        for each in (packed, plain):
            each.add(table, batch(table, rows, number))
    for each in (packed, plain):
        each.finish(header(first_ns=first_ns))
    same(packed, plain)
    assert packed.header == plain.header


def test_pieces_have_the_rows_that_are_kept():
    rows = 2 * CHUNK_ROWS + 9
    packed = PackedProfile(100)
    packed.add("memory", batch("memory", rows))
    packed.finish(header())
    kept = np.zeros(rows, np.bool_)
    kept[[3, rows - 2]] = True
    pieces = [each["bytes"].tolist() for each in packed.batches("memory", ("bytes",), kept)]
    whole = batch("memory", rows)["bytes"]
    assert pieces == [[whole[3]], [whole[rows - 2]]]


def test_a_readers_mistake_is_named_when_it_is_packed_too():
    packed = PackedProfile(0)
    packed.add("memory", batch("memory", 10))
    with pytest.raises(ValueError, match="lacks"):
        packed.add("memory", {"time_ns": np.zeros(1, np.int64)})
