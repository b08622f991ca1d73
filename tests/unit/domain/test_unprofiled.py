"""What is concluded from steps that were timed before a profiler was switched on."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.domain.unprofiled import (
    UNPROFILED_STEADINESS,
    UNPROFILED_STEP,
    Drift,
    Steadiness,
    UnprofiledSteps,
    unprofiled_steps,
)

RECORDED = 5
TIMES = st.lists(st.floats(1e3, 1e11), min_size=3, max_size=200)


def steady(draw, count):
    return [draw.gauss(1.0, 0.02) for _ in range(count)]


def lengths(draw, count):
    return [draw.lognormvariate(0.0, 0.4) for _ in range(count)]


def two_kinds(draw, count):
    return [draw.choice((1.0, 2.5)) for _ in range(count)]


def bursts(draw, count):
    """Two workers of a loader that deliver at once."""
    return [draw.gauss((0.2, 1.8)[step % 2], 0.01) for step in range(count)]


def seldom_long(draw, count):
    return [draw.gauss(1.0, 0.01) + 9.0 * (draw.random() < 0.02) for _ in range(count)]


@pytest.mark.parametrize("kind", [steady, lengths, two_kinds, bursts, seldom_long])
@pytest.mark.parametrize("count", [30, 100, 400])
def test_of_steps_that_are_as_before_most_means_are_as_they_were(kind, count):
    draw, held, runs = random.Random(0), 0, 300
    for _ in range(runs):
        steps = kind(draw, count + RECORDED)
        found = Steadiness.of(steps[:count], RECORDED)
        mean = sum(steps[count:]) / RECORDED
        # Timings are known to 3 % at best.
        held += found.low_ns / 1.03 <= mean <= 1.03 * found.high_ns
    assert held >= 0.7 * runs


def test_one_long_step_among_many_is_not_usual():
    steps = [1.0] * 50 + [100.0] + [1.0] * 50
    found = Steadiness.of(steps, 1)
    assert (found.low_ns, found.high_ns) == (1.0, 1.0)
    assert found.drift.share == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("count", [4, 17, 20, 64, 999])
@pytest.mark.parametrize("recorded", [1, 5, 40])
def test_a_straight_line_is_followed_to_the_middle_of_what_is_recorded(count, recorded):
    steps = [1000.0 + 3.0 * step for step in range(count)]
    mean = sum(steps) / count
    # One step is not recorded, in which the profiler starts.
    expected = 1000.0 + 3.0 * (count + 1 + (recorded - 1) / 2)
    found = Steadiness.of(steps, recorded).drift
    if count <= 20:  # of more the ends are cut off, as if something had held them up
        assert (1 + found.share) * mean == pytest.approx(expected, rel=0.02)
    assert found.share > 0
    assert found.share > 10 * found.error or count > 20


@given(TIMES, st.integers(1, 60))
def test_turned_round_steps_drift_the_other_way(steps, recorded):
    one, other = Steadiness.of(steps, recorded), Steadiness.of(steps[::-1], recorded)
    if len(steps) < 38:  # else groups do not begin where they did
        assert one.drift.share == pytest.approx(-other.drift.share, rel=1e-6, abs=1e-9)
        assert one.drift.error == pytest.approx(other.drift.error, rel=1e-6, abs=1e-9)
    assert one.low_ns == pytest.approx(other.low_ns, rel=1e-6)
    assert one.high_ns == pytest.approx(other.high_ns, rel=1e-6)


@given(TIMES, st.integers(1, 60))
def test_what_is_told_is_read_again(steps, recorded):
    told = UnprofiledSteps(sum(steps) / len(steps), Steadiness.of(steps, recorded))
    assert min(steps) <= told.steadiness.low_ns * (1 + 1e-9)
    assert told.steadiness.high_ns <= max(steps) * (1 + 1e-9)
    read = unprofiled_steps(told.facts())
    assert read.facts() == told.facts()
    assert len(told.facts()[UNPROFILED_STEADINESS]) < 200  # no more is read of a trace


@given(TIMES, st.floats(0.1, 10.0))
def test_a_machine_that_is_so_many_times_as_fast_tells_the_same_in_its_time(steps, factor):
    one = Steadiness.of(steps, RECORDED)
    other = Steadiness.of([factor * each for each in steps], RECORDED)
    assert other.low_ns == pytest.approx(factor * one.low_ns)
    assert other.drift.share == pytest.approx(one.drift.share, rel=1e-6, abs=1e-9)


def test_two_steps_and_steps_of_no_time_tell_no_drift():
    assert Steadiness.of([1.0, 2.0], RECORDED) is None
    assert Steadiness.of([0.0] * 5, RECORDED) is None
    assert Drift.of([], 1.0) is None


def test_more_steps_make_an_error_smaller():
    draw = random.Random(0)
    errors = [Steadiness.of(steady(draw, 19 * size), 1000).drift.error for size in (1, 16, 256)]
    assert all(one > 2 * other for one, other in pairwise(errors))


@pytest.mark.parametrize(
    "told",
    [
        "",
        "soon",
        "1 to 2 ns",
        "2 to 1 ns, drift 0 +- 0 of 3 groups",
        "1 to 2 ns, drift nan +- 0 of 3 groups",
        "1 to inf ns, drift 0 +- 0 of 3 groups",
        "1 to 2 ns, drift 0 +- -1 of 3 groups",
        "1 to 2 ns, drift 0 +- 0 of 2 groups",
        "1 to x ns, drift 0 +- 0 of 3 groups",
    ],
)
def test_what_is_no_such_fact_is_passed_over_and_the_mean_is_kept(told):
    facts = {UNPROFILED_STEP: "7", UNPROFILED_STEADINESS: told}
    assert unprofiled_steps(facts) == UnprofiledSteps(7.0)


@pytest.mark.parametrize("told", [None, "", "nan", "-5", "0", "inf", "soon"])
def test_a_mean_that_is_no_time_is_none(told):
    assert unprofiled_steps({} if told is None else {UNPROFILED_STEP: told}) is None
