"""Joins against the plain way to say what they find."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.rules.facts.joins import call_tree, enclosing, latest_before, thread_keys

UNKNOWN = -1
keyed = st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 20)), max_size=15)
spans = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12), st.integers(0, 1)), max_size=15)


def split(rows, width):
    return list(np.array(rows, np.int64).reshape(-1, width).T)


@given(keyed, keyed)
def test_a_key_is_found_as_late_as_possible_but_not_after(rows, wanted):
    found = latest_before(*split(rows, 2), *split(wanted, 2))
    for (key, time), row in zip(wanted, found.tolist(), strict=True):
        same = [at for at, (other, _) in enumerate(rows) if other == key and key != UNKNOWN]
        before = [at for at in same if rows[at][1] <= time]
        if not same:
            assert row == UNKNOWN
        elif before:
            assert rows[row] == (key, max(rows[at][1] for at in before))
        else:
            assert rows[row] == (key, min(rows[at][1] for at in same))


def test_a_time_that_cannot_be_is_in_nothing():
    begin, end, thread = split([(0, 10, 0), (4, 6, 0)], 3)
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    found = enclosing(begin, end, thread, *split([(least, 0), (-1, 0), (5, 0), (most, 0)], 2))
    assert found.tolist() == [UNKNOWN, UNKNOWN, 1, UNKNOWN]


@given(spans, st.lists(st.tuples(st.integers(0, 35), st.integers(0, 1)), max_size=10))
def test_the_innermost_interval_is_the_last_begun_that_has_not_ended(rows, asked):
    begin, length, thread = split(rows, 3)
    found = enclosing(begin, begin + length, thread, *split(asked, 2))
    for (time, on), row in zip(asked, found.tolist(), strict=True):
        holding = [
            (start, -size)
            for start, size, where in rows
            if where == on and start <= time <= start + size
        ]
        if not holding:
            assert row == UNKNOWN
        else:
            assert (rows[row][0], -rows[row][1], rows[row][2]) == (*max(holding), on)


def nested_spans():
    """Well nested, as operators of a thread are: each is cut to end within its parent."""

    def cut(rows):
        made = []
        for begin, length, thread in sorted(rows, key=lambda row: (row[2], row[0], -row[1])):
            end = begin + length
            for other, stop, where in made:
                if where == thread and other <= begin < stop:
                    end = min(end, stop)
            made.append((begin, end, thread))
        return made

    return spans.map(cut)


@given(nested_spans(), st.lists(st.integers(0, 100), min_size=15, max_size=15))
def test_sums_take_in_what_an_interval_holds(rows, values):
    begin, end, thread = split(rows, 3)
    nested = call_tree(begin, end, thread)
    total = nested.sums(np.array(values[: len(rows)], np.int64))
    parent = dict(zip(nested.row.tolist(), nested.parent.tolist(), strict=True))

    def ancestors(row):
        place = parent[row]
        while place != UNKNOWN:
            row = int(nested.row[place])
            yield row
            place = parent[row]

    for row in range(len(rows)):
        held = [other for other in range(len(rows)) if row in ancestors(other)]
        assert total[row] == values[row] + sum(values[other] for other in held)
        assert all(begin[row] <= begin[o] and end[o] <= end[row] for o in held)


def test_an_interval_lies_in_the_innermost_one_around_it():
    begin = np.array([0, 1, 2, 5, 6, 20, 0])
    end = np.array([10, 4, 3, 9, 8, 30, 5])
    thread = np.array([0, 0, 0, 0, 0, 0, 1])
    nested = call_tree(begin, end, thread)
    assert nested.row[nested.parent[nested.parent >= 0]].tolist() == [0, 1, 0, 3]
    assert nested.outermost(np.array([8, 7, 8, 6, 7, 8, 8])).tolist() == [
        True, True, False, True, True, True, True,
    ]  # fmt: skip


def test_many_levels_do_not_take_forever():
    levels = 20_000
    begin = np.arange(levels)
    nested = call_tree(begin, 2 * levels - begin, np.zeros(levels, np.int64))
    assert nested.sums(np.ones(levels, np.int64)).tolist() == list(range(levels, 0, -1))


def test_the_same_thread_has_one_number_in_both_tables():
    ours, theirs = thread_keys(*split([(1, 5), (2, 5), (1, 5)], 2), *split([(2, 5), (3, 1)], 2))
    assert ours[0] == ours[2] != ours[1]
    assert theirs[0] == ours[1]
    assert len({*ours.tolist(), *theirs.tolist()}) == 3


def test_empty_tables_join_to_nothing():
    nothing = np.empty(0, np.int64)
    some = np.array([1, 2])
    assert latest_before(nothing, nothing, some, some).tolist() == [UNKNOWN, UNKNOWN]
    assert enclosing(nothing, nothing, nothing, some, some).tolist() == [UNKNOWN, UNKNOWN]
    assert call_tree(nothing, nothing, nothing).sums(nothing).tolist() == []
    assert thread_keys(nothing, nothing, nothing, nothing)[0].tolist() == []
