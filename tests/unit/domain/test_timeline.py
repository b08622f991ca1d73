"""Readings thinned to columns, against a plain look at each reading."""

import math
from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.domain.accumulators import PATIENCE_S
from gpuadvisor.domain.timeline import STEPS_S, grid, thinned

BEGIN_S = 1_700_002_800.0
TIMES = st.lists(st.integers(0, 3000), min_size=1, max_size=80, unique=True).map(sorted)


@st.composite
def readings(draw, values):
    times = [BEGIN_S + at / 2 for at in draw(TIMES)]
    return times, [draw(values) for _ in times]


def chart(metric, found, since, length, columns, now=2000.0):
    chosen = grid(BEGIN_S + since, BEGIN_S + since + length, columns, BEGIN_S + now)
    return chosen, thinned(metric, *found, chosen)


SPANS = (st.integers(-50, 1500), st.integers(1, 1600), st.integers(1, 200))


@given(readings(st.floats(-1e6, 1e6)), *SPANS)
def test_a_column_has_the_extremes_and_the_mean_of_what_was_read(found, since, length, columns):
    chosen, made = chart("power_w", found, since, length, columns)
    for place, column in enumerate(made.columns):
        begin_s, end_s = chosen.time_of(place), chosen.time_of(place + 1)
        inside = [v for t, v in zip(*found, strict=True) if begin_s <= t < end_s]
        if inside:
            assert (column.low, column.high, column.readings) == (
                min(inside),
                max(inside),
                len(inside),
            )
            assert column.low <= column.mean <= column.high
            assert column.mean == pytest.approx(math.fsum(inside) / len(inside), abs=1e-6)
        elif column is not None:
            before = bisect_left(found[0], begin_s) - 1
            assert column[:4] == (*(found[1][before],) * 3, 0)
            assert begin_s - found[0][before] <= PATIENCE_S["power_w"]


@given(readings(st.floats(0, 700)), *SPANS)
def test_every_second_of_a_gap_is_missing_and_no_other(found, since, length, columns):
    chosen, made = chart("power_w", found, since, length, columns)
    times, patience_s = found[0], PATIENCE_S["power_w"]
    known = [(a, b if b - a <= patience_s else a + 1) for a, b in pairwise(times)]
    known.append((times[-1], times[-1] + 1))  # the last is older than what may be late
    for place, column in enumerate(made.columns):
        begin_s = chosen.time_of(place)
        end_s = min(chosen.time_of(place + 1), BEGIN_S + 2000)
        known_s = sum(max(min(b, end_s) - max(a, begin_s), 0) for a, b in known)
        if column is None:
            assert known_s == pytest.approx(0, abs=2e-3)
        else:
            assert column.missing_s == pytest.approx(max(end_s - begin_s - known_s, 0), abs=2e-3)


@given(readings(st.integers(0, 255)), *SPANS)
def test_flags_of_a_column_are_all_that_were_set(found, since, length, columns):
    chosen, made = chart("throttle_reasons", found, since, length, columns)
    for place, column in enumerate(made.columns):
        begin_s, end_s = chosen.time_of(place), chosen.time_of(place + 1)
        flags = 0
        for time_s, value in zip(*found, strict=True):
            flags |= value if begin_s <= time_s < end_s else 0
        if column is not None and column.readings:
            assert column.high == column.low == flags


@given(readings(st.integers(0, 10**6)))
def test_increases_of_a_counter_add_up_to_what_it_grew_by_but_for_gaps(found):
    """One that is less than before began anew, as after a reload of the driver."""
    _, made = chart("pcie_replays", found, 0, 1600, 40)
    grown = sum(
        after - before if after >= before else after
        for (a, before), (b, after) in pairwise(zip(*found, strict=True))
        if b - a <= PATIENCE_S["pcie_replays"]
    )
    shown = sum(column.high for column in made.columns if column is not None)
    assert shown == pytest.approx(grown)


@given(st.integers(-(10**6), 10**6), st.integers(1, 40 * 86400), st.integers(1, 400))
def test_columns_have_the_span_in_them_and_are_of_a_round_length(since, length, columns):
    begin_s = BEGIN_S + since
    chosen = grid(begin_s, begin_s + length, columns, begin_s)
    assert chosen.begin_s <= begin_s
    assert chosen.end_s >= begin_s + length
    assert 1 <= chosen.count <= columns + 1
    assert chosen.step_s in STEPS_S or chosen.step_s % 86400 == 0
    steps = chosen.begin_s / chosen.step_s
    assert steps == pytest.approx(round(steps), abs=1e-3)


def test_what_is_read_now_is_no_gap_before_the_next_reading_is_due():
    times = [BEGIN_S + at for at in range(10)]
    _, made = chart("power_w", (times, [1.0] * 10), 0, 12, 12, now=11.5)
    assert [column and column.missing_s for column in made.columns] == [0.0] * 12
    _, late = chart("power_w", (times, [1.0] * 10), 0, 20, 20, now=20)
    assert [column is None for column in late.columns] == [False] * 10 + [True] * 10
