"""Intervals against a naive bitmap, nanosecond by nanosecond."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.rules.facts.intervals import (
    LATEST_NS,
    Intervals,
    both,
    by_key,
    covered_ns,
    depths_of,
    either,
    ends,
    exact_sum,
    gaps,
    none,
    numbered,
    one,
    uncovered_ns,
    union,
    without,
)

LONG = 40
stretches = st.lists(st.tuples(st.integers(0, LONG), st.integers(0, LONG)), max_size=12)


def columns(pairs):
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def bitmap(pairs):
    bits = np.zeros(LONG, bool)
    for begin, end in pairs:
        bits[begin:end] = True
    return bits


def bits_of(intervals):
    assert (intervals.begin_ns < intervals.end_ns).all()
    assert (intervals.end_ns[:-1] < intervals.begin_ns[1:]).all()  # they do not even touch
    return bitmap(zip(intervals.begin_ns.tolist(), intervals.end_ns.tolist(), strict=True))


@given(stretches)
def test_a_union_covers_what_one_of_them_covers(pairs):
    merged = union(*columns(pairs))
    assert (bits_of(merged) == bitmap(pairs)).all()
    assert merged.total_ns == bitmap(pairs).sum()


@given(stretches, stretches)
def test_operations_agree_with_those_on_bits(first, second):
    a, b = union(*columns(first)), union(*columns(second))
    x, y = bitmap(first), bitmap(second)
    assert (bits_of(both(a, b)) == (x & y)).all()
    assert (bits_of(either(a, b)) == (x | y)).all()
    assert (bits_of(without(a, b)) == (x & ~y)).all()
    assert uncovered_ns(a, b) == (x & ~y).sum()


@given(stretches, st.integers(0, LONG), st.integers(0, LONG))
def test_gaps_are_what_is_not_covered(pairs, begin, end):
    bits = np.zeros(LONG, bool)
    bits[begin:end] = True
    assert (bits_of(gaps(union(*columns(pairs)), begin, end)) == (bits & ~bitmap(pairs))).all()


@given(stretches, stretches)
def test_how_much_of_each_stretch_is_covered(pairs, asked):
    covered = covered_ns(union(*columns(pairs)), *columns(asked))
    assert covered.tolist() == [bitmap(pairs)[begin:end].sum() for begin, end in asked]


@given(stretches)
def test_depths_count_what_covers_a_time(pairs):
    time, depth = depths_of(*columns(pairs))
    for place, at in enumerate(time[:-1].tolist()):
        assert depth[place] == sum(begin <= at < end for begin, end in pairs)


def test_what_touches_becomes_one():
    merged = union(*columns([(5, 7), (0, 3), (3, 5), (9, 9)]))
    assert (merged.begin_ns.tolist(), merged.end_ns.tolist()) == ([0], [7])


def test_nothing_has_no_span():
    assert none().span == (0, 0)
    assert none().total_ns == 0
    assert len(one(3, 3)) == 0


@pytest.mark.parametrize(
    ("begin", "duration", "expected"),
    [
        (5, 3, (5, 8)),
        (5, -3, (5, 5)),
        (-5, 3, (-5, -2)),
        (2**63 - 1, 2**63 - 1, (LATEST_NS, LATEST_NS)),
        (-(2**63), 2**63 - 1, (-LATEST_NS, LATEST_NS)),
        (0, -(2**63), (0, 0)),
    ],
)
def test_times_out_of_any_range_are_cut(begin, duration, expected):
    made = ends(np.array([begin], np.int64), np.array([duration], np.int64))
    assert tuple(int(each[0]) for each in made) == expected


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_a_sum_does_not_wrap_around(values):
    assert exact_sum(np.array(values, np.int64)) == sum(values)


def test_rows_by_key_keep_their_order():
    rows = {key: at.tolist() for key, at in by_key(np.array([3, 1, 3, 3, 1]))}
    assert rows == {1: [1, 4], 3: [0, 2, 3]}


def test_intervals_are_compared_by_identity():
    assert Intervals(*columns([(0, 1)])) != Intervals(*columns([(0, 1)]))


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5), max_size=30),
    st.sampled_from(["int64", "int32", "int16", "int8"]),
)
def test_numbers_are_those_of_a_sort(values, kind):
    limits = np.iinfo(kind)
    column = np.clip(np.array(values, np.int64), limits.min, limits.max).astype(kind)
    used, place = np.unique(column, return_inverse=True)
    found, found_place = numbered(column)
    assert (found.tolist(), found_place.tolist()) == (used.tolist(), place.tolist())
