"""What recorded days say of a new one, and where their level changed."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpuadvisor.domain.baseline import RecordedRun, Recording
from gpuadvisor.domain.gate import GateVerdict
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.tuners.gate.change_points import change_points
from gpuadvisor.tuners.gate.stored import compare_stored, compare_with_days, days_of, level_of

MONDAY = datetime(2026, 11, 23, 3, tzinfo=UTC)


def days(generator, count, spread=0.005, level=1.0):
    return [level * math.exp(generator.gauss(0, spread)) for _ in range(count)]


def sessions(generator, count, between=0.005, within=0.005, level=1.0):
    return [days(generator, 5, within, each) for each in days(generator, count, between, level)]


def recording(hours, level=1.0, memory=1 << 30):
    run = RecordedRun((StepWindow(10, 0.5 * level),), None, memory, 1.0)
    return Recording("main", MONDAY + timedelta(hours=hours), {"device": "x"}, (run, run))


@pytest.mark.parametrize(
    ("slower", "count", "verdict"),
    [
        (1.0, 5, "pass"),
        (0.8, 5, "pass"),
        (1.2, 5, "fail"),
        (1.0, 20, "pass"),
        (1.05, 20, "fail"),
        (1.02, 5, "inconclusive"),
    ],
)
def test_a_new_day_beside_recorded_ones(slower, count, verdict):
    generator = random.Random(3)
    recorded = sessions(generator, count)
    found = compare_stored("step_time", recorded, [slower] * 5)
    assert str(found.verdict) == verdict
    assert found.low < found.ratio < found.high
    assert found.ratio == pytest.approx(slower, rel=0.01)


def test_many_runs_of_few_days_are_few():
    day = [1.0 + 0.001 * n for n in range(100)]
    recorded = [[level * each for each in day] for level in (1.0, 1.01, 0.99, 1.02, 0.98)]
    found = compare_stored("step_time", recorded, [1.04 * each for each in day])
    assert found.verdict is GateVerdict.INCONCLUSIVE


def test_days_that_are_alike_by_chance_are_no_closer_than_their_runs_are():
    recorded = [[0.9, 1.0, 1.1]] * 5
    found = compare_stored("step_time", recorded, [1.08, 1.08, 1.08])
    assert found.verdict is GateVerdict.INCONCLUSIVE


def test_figures_that_never_differ_are_compared_all_the_same():
    assert compare_stored("peak_memory", [[2.0]] * 5, [2.0]).verdict is GateVerdict.PASS
    assert compare_stored("peak_memory", [[2.0]] * 5, [2.1]).verdict is GateVerdict.FAIL


def test_fewer_than_five_days_or_fewer_runs_than_theirs_say_nothing():
    with pytest.raises(ValueError, match="too few"):
        compare_stored("step_time", [[1.0]] * 4, [1.0])
    with pytest.raises(ValueError, match="too few"):
        compare_stored("step_time", [[1.0, 1.0]] * 5, [1.0])


@pytest.mark.parametrize("between", [0.005, 0.01, 0.02])
def test_few_gates_fail_by_just_the_tolerance_whatever_days_differ_by(between):
    generator = random.Random(1)
    gates, failed = 600, 0
    for _ in range(gates):
        *recorded, new = sessions(generator, 6, between)
        new = [1.01 * each for each in new]
        failed += compare_stored("step_time", recorded, new).verdict is GateVerdict.FAIL
    assert failed <= 13  # of 600 by 1 %, more than 13 has a chance of 0.4 %


def test_one_recording_a_day_counts_and_none_from_before_what_was_accepted():
    nightly = [recording(24 * n - n % 2) for n in range(4)]
    of_a_day = [recording(24 * 2 + hour) for hour in (1, 5, 9)]
    assert days_of([*of_a_day, *reversed(nightly)]) == nightly
    accepted = MONDAY + timedelta(hours=50)
    assert days_of([*nightly, *of_a_day], accepted) == [of_a_day[1]]


@pytest.mark.parametrize(
    ("levels", "found"),
    [
        ([(30, 1.0)], []),
        ([(10, 1.0), (10, 1.03)], [10]),
        ([(12, 1.0), (12, 1.03), (12, 1.0)], [12, 24]),
        ([(20, 1.0), (2, 1.5), (10, 1.0)], []),  # visitors
        ([(10, 1.0), (10, 1.004)], []),  # less than what is looked for
        ([(5, 1.0)], []),
        ([(9, 2.0), (9, 2.0)], []),
    ],
)
def test_changes_of_level(levels, found):
    generator = random.Random(5)
    spread = 0.0 if levels[0][1] == 2.0 else 0.004
    series = [each for count, level in levels for each in days(generator, count, spread, level)]
    assert change_points(series, 0.005) == found


def test_what_was_found_once_stays():
    generator = random.Random(7)
    series = [*days(generator, 15), *days(generator, 15, level=1.05), *days(generator, 20)]
    found = change_points(series)
    assert change_points(series[:30]) == found[:1] == [15]


def test_a_change_has_its_day_and_its_size_and_days_before_it_count_no_more():
    generator = random.Random(2)
    levels = [*days(generator, 12), *days(generator, 12, level=1.05)]
    recorded = [recording(24 * n, level) for n, level in enumerate(levels)]
    level, (found,) = level_of(recorded)
    assert (found.metric, found.at) == ("Step time", recorded[12].at)
    assert found.ratio == pytest.approx(1.05, rel=0.005)
    assert level == recorded[12:]
    new = [run.measurement for run in recording(0, 1.05).runs]
    assert verdicts(compare_with_days(level, new)) == {"step_time": "pass", "peak_memory": "pass"}
    assert verdicts(compare_with_days(recorded[:12], new))["step_time"] == "fail"


def test_a_few_mib_more_are_neither_a_change_nor_a_regression():
    recorded = [recording(24 * n, memory=(100 + n // 12 * 3) * 2**20) for n in range(24)]
    assert level_of(recorded) == (recorded, [])
    new = [run.measurement for run in recording(0, memory=120 * 2**20).runs]
    assert verdicts(compare_with_days(recorded, new))["peak_memory"] == "pass"
    new = [run.measurement for run in recording(0, memory=400 * 2**20).runs]
    assert verdicts(compare_with_days(recorded, new))["peak_memory"] == "fail"


def test_what_only_some_runs_have_is_not_compared():
    recorded = [recording(24 * n) for n in range(5)]
    with_energy = replace(recorded[0].runs[0], windows=(StepWindow(10, 0.5, 0, 0, 4.0),))
    new = [with_energy.measurement] * 2
    assert "energy" not in verdicts(compare_with_days(recorded, new))
    days_ = [replace(day, runs=(with_energy, with_energy)) for day in recorded]
    assert verdicts(compare_with_days(days_, new))["energy"] == "pass"


def verdicts(differences):
    return {each.metric: str(each.verdict) for each in differences}
