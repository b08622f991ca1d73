"""The host's pace, from steps that were timed without the profiler."""

import pytest

from gpuadvisor.domain.profile import UNPROFILED_STEP, CallKind, Range
from gpuadvisor.rules.estimates import SLOWER_WITH_DETAILS, paces
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

DETAILED = {"record_shapes": "1", "profile_memory": "1"}
USUAL = tuple(1 / each for each in SLOWER_WITH_DETAILS)
KERNELS, STEPS = 50, 4


def facts(step_us=None, pace_us=20.0, kernel_us=8.0, allocating_us=0.0, told=None):
    """Steps of kernels that an operator each launches, so many microseconds after each other."""
    made = Made()
    calls, free, began = 10.0, 0.0, 0.0
    for step in range(STEPS):
        for _ in range(KERNELS):
            made.operator("aten::mul", (calls - pace_us + 6, pace_us - 2))
            free = max(free, calls + 3)
            made.launched("mul", (calls, 3), (free, kernel_us))
            free += kernel_us
            calls += pace_us
        if allocating_us:
            made.call("cudaMalloc", (calls - pace_us + 5, allocating_us), CallKind.ALLOCATE)
            calls += allocating_us
        made.range(f"ProfilerStep#{step}", (began, calls - began), Range.STEP)
        began = calls
    if step_us is not None:
        told = str(1000 * step_us)
    recorded = DETAILED if told is None else {**DETAILED, UNPROFILED_STEP: told}
    return Facts(made.profile(facts=recorded))


def test_the_pace_is_the_one_at_which_the_run_takes_as_long_as_the_timed_steps():
    slow, fast = paces(facts(step_us=600.0))
    assert fast <= 0.6 <= slow
    assert slow - fast < 0.1


def test_of_a_host_that_is_ahead_only_the_slowest_pace_is_known():
    slow, fast = paces(facts(step_us=KERNELS * 8.0))
    assert fast == pytest.approx(USUAL[1])
    assert USUAL[1] < slow < 0.5


def test_steps_that_take_no_less_without_the_profiler_leave_its_pace():
    assert paces(facts(step_us=1000.0)) == pytest.approx((1.0, 1.0), abs=0.05)


@pytest.mark.parametrize("told", [None, "", "nan", "-5", "inf", "soon"])
def test_without_a_time_profilers_are_taken_to_be_as_slow_as_usual(told):
    assert paces(facts(told=told)) == pytest.approx(USUAL)


def test_where_memory_is_allocated_timed_steps_tell_nothing():
    assert paces(facts(step_us=900.0, allocating_us=300.0)) == pytest.approx(USUAL)
