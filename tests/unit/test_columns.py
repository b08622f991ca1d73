"""A profile in memory, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import TABLES, Header


def _ranges(count: int, **changed: object) -> dict[str, object]:
    columns: dict[str, object] = {
        name: np.arange(count).astype(kind) for name, kind in TABLES["ranges"].items()
    }
    return columns | changed


def test_batches_become_one_table_in_the_order_of_their_coming() -> None:
    profile = MemoryProfile()
    profile.add("ranges", _ranges(2))
    profile.add("ranges", _ranges(3))
    profile.finish(Header("kineto", duration_ns=5))
    assert profile.rows("ranges") == 5
    assert profile.columns("ranges")["begin_ns"].tolist() == [0, 1, 0, 1, 2]
    assert profile.header.duration_ns == 5


def test_a_batch_after_a_question_counts_in_the_next_answer() -> None:
    profile = MemoryProfile()
    profile.add("ranges", _ranges(2))
    assert len(profile.columns("ranges", ["name"])["name"]) == 2
    profile.add("ranges", _ranges(1))
    assert list(profile.columns("ranges", ["name"])) == ["name"]
    assert len(profile.columns("ranges", ["name"])["name"]) == 3


def test_a_table_that_was_not_measured_has_columns_without_rows() -> None:
    profile = MemoryProfile()
    assert profile.rows("kernels") == 0
    columns = profile.columns("kernels")
    assert {name: array.dtype.name for name, array in columns.items()} == dict(TABLES["kernels"])
    assert {len(array) for array in columns.values()} == {0}


def test_lists_and_wider_numbers_that_fit_are_converted() -> None:
    profile = MemoryProfile()
    profile.add("ranges", _ranges(2, name=[3, 4], kind=np.array([1, 2], np.int64), begin_ns=[7, 8]))
    columns = profile.columns("ranges")
    assert columns["kind"].dtype == np.int8
    assert columns["name"].tolist() == [3, 4]


def test_what_was_given_cannot_be_changed_by_those_who_ask() -> None:
    profile = MemoryProfile()
    profile.add("ranges", _ranges(2))
    with pytest.raises(ValueError, match="read-only"):
        profile.columns("ranges")["name"][0] = 9


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"name": np.zeros(3, np.int32)}, "different lengths"),
        ({"colour": np.zeros(2)}, "unknown to it: .*colour"),
        ({"kind": [0, 128]}, "ranges.kind has values from 0 to 128, beyond int8"),
        ({"begin_ns": np.array([0, 2**63], np.uint64)}, "beyond int64"),
        ({"begin_ns": np.array([0.5, 1.0])}, "type float64, and int64 is needed"),
        ({"begin_ns": [None, 1]}, "type object"),
        ({"name": ["a", "b"]}, "ranges.name has values of type"),
        ({"name": np.zeros((2, 2), np.int32)}, "2 dimensions"),
    ],
)
def test_a_readers_mistake_is_named(changed: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MemoryProfile().add("ranges", _ranges(2, **changed))


def test_a_batch_that_lacks_a_column_is_refused() -> None:
    columns = _ranges(2)
    del columns["thread"]
    with pytest.raises(ValueError, match="a batch of ranges lacks thread"):
        MemoryProfile().add("ranges", columns)


def test_unknown_tables_and_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="no table kernel:"):
        MemoryProfile().add("kernel", {})
    with pytest.raises(KeyError, match="kernels has no column colour"):
        MemoryProfile().columns("kernels", ["colour"])


def test_times_begin_at_the_earliest_one() -> None:
    profile = MemoryProfile()
    profile.add("ranges", _ranges(2, begin_ns=[5, -3], duration_ns=[1, 2]))
    profile.finish(Header("kineto", first_ns=-3))
    assert profile.columns("ranges")["begin_ns"].tolist() == [8, 0]
    assert profile.columns("ranges")["duration_ns"].tolist() == [1, 2]
    assert profile.header.first_ns == 0


def test_there_is_no_header_before_the_end() -> None:
    with pytest.raises(RuntimeError, match="not finished"):
        _ = MemoryProfile().header
