"""The host's pace, from steps that were timed without the profiler."""

import re

import pytest

from gpuadvisor.domain.profile import CallKind, Range
from gpuadvisor.domain.unprofiled import UNPROFILED_STEP, Steadiness, UnprofiledSteps
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import Scenario
from gpuadvisor.rules.paces import SLOWER_WITH_DETAILS, is_timed, paces, why_not_timed
from tests.profiles import Made

DETAILED = {"record_shapes": "1", "profile_memory": "1"}
USUAL = tuple(1 / each for each in SLOWER_WITH_DETAILS)
KERNELS, STEPS = 50, 4


def facts(
    step_us=None, pace_us=20.0, kernel_us=8.0, allocating_us=0.0, told=None, before_us=(), growth=0
):
    """Steps of kernels that an operator each launches, so many microseconds after each other;
    each step has `growth` more than the one before, and `before_us` is what steps took that were
    timed without the profiler."""
    made = Made()
    calls, free, began = 10.0, 0.0, 0.0
    for step in range(STEPS):
        for _ in range(KERNELS + growth * step):
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
    if before_us:
        before_ns = [1000.0 * each for each in before_us]
        mean_ns = sum(before_ns) / len(before_ns)
        steps = UnprofiledSteps(mean_ns, Steadiness.of(before_ns, STEPS))
        recorded = {**recorded, **steps.facts()}
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


def told(before_us, **more):
    """The paces that steps before tell, or why they do not."""
    found = facts(before_us=tuple(before_us), **more)
    assert is_timed(found) is not bool(why_not_timed(found))
    return why_not_timed(found) or paces(found)


ALIKE = [600.0, 602.0, 599.0, 601.0, 598.0, 600.0, 603.0, 597.0, 600.0, 601.0]


@pytest.mark.parametrize("times", [1, 2, 9])
def test_steps_that_are_alike_tell_as_much_as_their_mean(times):
    assert told(ALIKE * times) == pytest.approx(paces(facts(step_us=600.0)), abs=0.01)


def test_one_step_that_something_held_up_changes_little():
    steps = ALIKE * 5
    slow, fast = told([*steps[:20], 3000.0, *steps[20:]])
    assert (slow, fast) == pytest.approx(paces(facts(step_us=600.0)), abs=0.1)


@pytest.mark.parametrize("count", [5, 12, 40, 300])
@pytest.mark.parametrize("last", [0.3, 0.7, 1.4, 3.0, 30.0])
def test_steps_that_get_longer_or_shorter_are_not_used_and_that_is_said(count, last):
    factors = [1 + (last - 1) * step / (count - 1) for step in range(count)]
    why = told([each * ALIKE[step % 10] for step, each in enumerate(factors)])
    assert f"got {'longer' if last > 1 else 'shorter'} by themselves" in why


def test_where_steps_are_not_used_the_usual_paces_apply_and_nothing_is_said_of_others():
    growing = facts(before_us=(100.0, 200.0, 300.0, 400.0, 500.0))
    assert paces(growing) == pytest.approx(USUAL)
    assert why_not_timed(facts()) == why_not_timed(facts(step_us=600.0)) == ""
    assert not is_timed(facts())


def test_batches_of_cyclic_lengths_leave_a_wider_range():
    slow, fast = told([500.0, 550.0, 650.0, 700.0] * 10)
    alone = paces(facts(step_us=600.0))
    assert slow >= alone[0]
    assert fast <= alone[1]
    slower, faster = told([400.0, 400.0, 400.0, 400.0, 800.0, 800.0, 800.0, 800.0] * 5)
    assert slower >= slow
    assert faster <= fast


def test_steps_that_differ_more_than_profilers_do_are_not_used():
    differing = [1600.0, 200.0, 1600.0, 200.0, 200.0, 1600.0, 200.0, 1600.0]
    assert re.search(r"0\.2 ms to \S+ ms by themselves", told(differing))


def test_steps_of_less_than_what_was_recorded_needs_on_any_host_are_not_used():
    long = {"kernel_us": 30.0}
    assert "on a CPU that needs no time" in told([600.0] * 30, **long)
    assert told([30.0 * KERNELS] * 30, **long)[0] > 0.5


def test_steps_that_waited_for_what_was_not_recorded_are_not_used_and_that_is_said():
    """A loader's workers get ahead while a profiler is switched on."""
    assert "is not in this recording" in told([20.0 * KERNELS * 1.5] * 30)
    assert told([20.0 * KERNELS * 1.02] * 30)[1] > 0.9


def test_what_grows_while_it_is_recorded_may_have_grown_since():
    def takes_us(found):
        slowest = Scenario({Host.WORKING: paces(found)[0]})
        return found.timeline.takes_ns(slowest) / 1e3

    assert takes_us(facts(before_us=ALIKE)) < STEPS * 630.0
    assert takes_us(facts(before_us=ALIKE, growth=10)) > STEPS * 700.0
