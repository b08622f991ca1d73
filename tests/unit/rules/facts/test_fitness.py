"""Which part of a recording is looked at, and what it cannot show."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.profile import CallKind, Direction, Memory, Range
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.failures import lost_launches
from gpuadvisor.rules.facts.fitness import judged
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.registry import load_rules
from tests.profiles import Made
from tests.unit.rules.facts.test_account import closes

US = 1000
STEP = 2000.0
"""Microseconds of a steady step."""


def step(made, begin, number, first_launch=5.0, marked=True):
    """A step of 18 kernels, of which the first launch takes so long; when the next one begins."""
    at = begin
    for place in range(18):
        took = first_launch if place == 0 else 5.0
        made.launched("gemm", call=(at, took), runs=(at + took + 3, 90))
        at += took + 95
    end = max(begin + STEP, at)
    if marked:
        made.range(f"ProfilerStep#{number}", (begin, end - begin), Range.STEP)
    return end


def training(cold=(), steps=5, marked=True):
    made, begin = Made(), 0.0
    for number in range(steps):
        begin = step(made, begin, number, 400_000.0 if number in cold else 5.0, marked)
    return made


def findings(facts):
    found = diagnose(Evidence(facts), load_rules())
    return {each.rule for each in found.shown}, {each.rule for each in found.not_measured}


@pytest.mark.parametrize("cold", [(0,), (0, 1), (4,), (0, 4), (2,)])
def test_steps_in_which_something_starts_are_left_out(cold):
    facts = judged(training(cold).profile())
    clean = judged(training().profile())
    kept = {(0,): 4, (0, 1): 3, (4,): 4, (0, 4): 3, (2,): 2}[cold]
    assert len(facts.steps.steps) == kept
    assert f"{kept} of 5 steps are looked at" in facts.fitness.note
    assert facts.idle[0].causes_ns[Cause.STARTING] == 0
    assert facts.window.run_ns == pytest.approx(clean.window.run_ns * kept / 5, rel=0.1)
    assert facts.window.busy_share == pytest.approx(clean.window.busy_share, abs=0.02)
    closes(facts)


@pytest.mark.parametrize("recorded", [6, 10])
def test_steps_that_are_marked_after_cuda_was_last_recorded_are_left_out(recorded):
    made = training(steps=10)
    for table in ("kernels", "calls"):
        until = recorded * STEP * US
        made.rows[table] = [row for row in made.rows[table] if row["begin_ns"] < until]
    facts, alone = judged(made.profile()), judged(training(steps=recorded).profile())
    assert ("in the first 6 of 10 steps only" in facts.fitness.note) is (recorded == 6)
    assert len(facts.steps.steps) == recorded
    assert facts.window.busy_share == pytest.approx(alone.window.busy_share, abs=0.02)
    closes(facts)


@pytest.mark.parametrize("in_operator", [False, True])
def test_a_slow_allocation_after_the_first_work_is_no_start(in_operator):
    """An allocator that gives memory back and asks again waits for the device: a fault to find."""
    made, begin = Made(), 0.0
    for number in range(5):
        began, begin = begin, step(made, begin, number, marked=False)
        if number == 3:
            made.call("cudaFree", (begin, 60_000), CallKind.FREE)
            made.call("cudaMalloc", (begin + 60_000, 61_000), CallKind.ALLOCATE)
            if in_operator:
                made.operator("aten::cat", (begin - 2, 121_010))
                made.launched("cat", call=(begin + 121_001, 5), runs=(begin + 121_009, 90))
            begin += 121_200
        made.range(f"ProfilerStep#{number}", (began, begin - began), Range.STEP)
    facts = judged(made.profile())
    assert facts.fitness.note == "" and len(facts.steps.steps) == 5
    assert facts.idle[0].causes_ns[Cause.ALLOCATING] >= 120_000 * US
    assert facts.idle[0].causes_ns[Cause.STARTING] == 0
    closes(facts)


@pytest.mark.parametrize(
    ("call", "kind", "is_start"),
    [
        (None, None, True),
        ("cudaFuncGetAttributes", CallKind.OTHER, True),
        ("cudaDeviceGetAttribute", CallKind.OTHER, True),
        ("cudaStreamSynchronize", CallKind.SYNCHRONIZE, False),
        ("cudaMemsetAsync", CallKind.MEMSET, False),
        ("cudaMalloc", CallKind.ALLOCATE, False),
        ("cudaEventQuery", CallKind.EVENT, False),
    ],
)
def test_a_library_that_asks_for_attributes_while_it_loads_starts(call, kind, is_start):
    """80 ms of an operator before its launch, with calls in between every 16 ms."""
    made = training((), 4)
    begin = 4 * STEP
    made.operator("aten::cudnn_convolution", (begin, 80_010))
    for at in range(0, 80_000, 16_000):
        if call:
            made.call(call, (begin + at, 2), kind)
    made.launched("conv", call=(begin + 80_001, 5), runs=(begin + 80_009, 90))
    made.range("ProfilerStep#4", (begin, 80_100), Range.STEP)
    facts = judged(made.profile())
    assert (facts.fitness.note != "") is is_start
    assert len(facts.steps.steps) == (4 if is_start else 5)
    closes(facts)


@pytest.mark.parametrize(
    ("steps", "slow", "kept"),
    [
        (5, (0, 1, 2, 3, 4), 5),
        (5, (0, 2, 3), 5),
        (5, (0, 1), 3),  # a model that is fed two shapes looks for algorithms twice
        (3, (0, 1, 2), 3),
        (2, (0, 1), None),  # both may be first ones
    ],
)
def test_an_operator_that_computes_on_the_cpu_in_most_steps_is_no_start(steps, slow, kept):
    """60 ms of an operator before its launch, two of them in each of some steps."""
    made, begin = Made(), 0.0
    for number in range(steps):
        began, begin = begin, step(made, begin, number, marked=False)
        for _ in range(2 * (number in slow)):
            made.operator("aten::sort", (begin, 60_010))
            made.launched("copied", call=(begin + 60_001, 5), runs=(begin + 60_009, 90))
            begin += 60_200
        made.range(f"ProfilerStep#{number}", (began, begin - began), Range.STEP)
    facts = judged(made.profile())
    if kept is None:
        assert Cause.STARTING in facts.idle[0].longest_of
    else:
        assert len(facts.steps.steps) == kept
        assert facts.idle[0].causes_ns[Cause.STARTING] == 0
    if kept == steps:
        assert facts.fitness.note == ""
        assert {"host_bound"} <= findings(facts)[0]
    closes(facts)


def test_a_slow_allocation_before_the_first_work_is_a_start():
    made = Made()
    made.call("cudaMalloc", (0, 200_000), CallKind.ALLOCATE)
    begin = step(made, 200_010.0, 0, marked=False)
    made.range("ProfilerStep#0", (0, begin), Range.STEP)
    for number in range(1, 5):
        begin = step(made, begin, number)
    assert "4 of 5 steps are looked at" in judged(made.profile()).fitness.note


def test_an_empty_step_after_a_start_is_not_what_is_looked_at():
    made = training((0,), steps=1)
    made.range("ProfilerStep#1", (500_000, 50), Range.STEP)  # the profiler's, after the last
    facts = judged(made.profile())
    assert facts.window.busy_share > 0
    assert "no steady steps follow" in facts.fitness.note


def test_a_steady_recording_is_looked_at_whole():
    facts = judged(training().profile())
    assert facts.fitness.note == "" and len(facts.steps.steps) == 5


@pytest.mark.parametrize("made", [training((0,), 1), training((0, 2), 5, marked=False)])
def test_of_a_start_alone_nothing_is_said_about_idle_time(made):
    facts = judged(made.profile())
    assert "shows a start" in facts.fitness.no_idle
    shown, silent = findings(facts)
    idle = {"launch_bound", "host_bound", "allocator_churn", "sync_in_loop", "input_bound"}
    assert not shown & idle and silent >= idle - {"input_bound"}
    closes(facts)


def test_work_that_was_launched_before_the_part_does_not_belong_to_it():
    made = Made()
    made.launched("first", call=(0, 400_000), runs=(400_003, 90))
    made.launched("old", call=(400_100, 5), runs=(400_200, 10_000))
    made.range("ProfilerStep#0", (0, 402_000), Range.STEP)
    begin = 402_000.0
    for number in range(1, 4):
        begin = step(made, begin, number)
    # The device is busy with the old kernel until 410,200: what comes after it is looked at.
    facts = judged(made.profile())
    assert facts.window.begin_ns == 402_008 * US  # on another stream, the first of them began
    assert [each.name for each in facts.kernels] == ["gemm"]


def test_a_graph_that_is_captured_has_no_pace():
    made = Made()
    made.launched("fill", call=(0, 5), runs=(8, 3))
    for number in range(400):
        made.call("cudaLaunchKernel", (100 + 130 * number, 5), CallKind.LAUNCH, correlation=9000)
    made.call("cudaGraphInstantiate", (52_200, 800))
    made.launched("fill", call=(53_100, 5), runs=(53_108, 3))
    facts = judged(made.profile())
    assert "CUDA graphs are captured" in facts.fitness.no_idle
    assert findings(facts)[0] == set()


def test_kernels_launched_before_recording_began_mute_only_what_needs_their_launches():
    made = Made()
    for number in range(120):
        made.kernel("void at::native::vectorized_elementwise_kernel<4>()", (10.0 * number, 9.5))
    for number in range(240):
        runs = (1200 + 10.0 * number, 9.5)
        name = "void at::native::vectorized_elementwise_kernel<4>()"
        made.launched(name, call=(900 + number, 1), runs=runs)
    shown, silent = findings(judged(made.profile()))
    assert "unfused_elementwise" in shown
    assert "launch_bound" not in silent


def test_launches_without_kernels_are_told():
    made = training()
    for number in range(20):
        made.call("cudaLaunchKernel", (100 * number, 5), CallKind.LAUNCH, correlation=9000 + number)
    assert "18 % of the launches have no kernel" in lost_launches(judged(made.profile()))
    assert lost_launches(judged(training().profile())) is None


def test_launches_at_the_end_whose_kernels_were_still_to_come_are_not_lost():
    made = training()
    for number in range(20):
        at = 10**6 + 100 * number
        made.call("cudaLaunchKernel", (at, 5), CallKind.LAUNCH, correlation=9000 + number)
    said = lost_launches(judged(made.profile()))
    assert "18 % of the launches, the last ones, have no kernel: the recording of the GPU" in said
    made.launched("late", call=(10**6 + 500, 5), runs=(10**6 + 3000, 10))
    assert lost_launches(judged(made.profile())).endswith("which lost some")


def test_lost_launches_are_told_of_a_recording_with_a_slow_first_launch():
    made = training(cold=(0,))
    for number in range(20):
        at = 10**6 + 100 * number
        made.call("cudaLaunchKernel", (at, 5), CallKind.LAUNCH, correlation=9000 + number)
    facts = Facts(made.profile())
    assert facts.starting.kinds == ("loading",)
    assert "18 % of the launches" in lost_launches(facts)


def queued_already(lost):
    """Four steps of 50 launches that the GPU begins half a millisecond later; of the last so many
    launches it has no kernel."""
    made = Made()
    for number in range(200):
        call = (10.0 * number, 5.0)
        if number < 200 - lost:
            made.launched("gemm", call=call, runs=(500.0 + 10.0 * number, 9.9))
        else:
            made.call("cudaLaunchKernel", call, CallKind.LAUNCH, correlation=9000 + number)
        if number % 50 == 0:
            made.range(f"ProfilerStep#{number // 50}", (10.0 * number, 500.0), Range.STEP)
    return made.profile()


def test_what_was_launched_before_recording_began_is_no_idle_time():
    facts = judged(queued_already(50))
    assert facts.window.busy_share > 0.98
    assert "launched before recording began" in facts.fitness.note
    assert "25 % of the launches, the last ones, have no kernel" in facts.fitness.note
    assert len(facts.steps.steps) == 3
    closes(facts)


def test_a_first_kernel_that_begins_late_is_waited_for_where_no_kernel_is_lost():
    facts = judged(queued_already(0))
    assert facts.window.busy_share < 0.85
    assert facts.fitness.note == ""


def test_work_that_was_launched_before_is_followed_by_what_waited_for_it():
    """The GPU goes on with two kernels of which the launch was not recorded."""
    made = Made()
    for begin in (480.0, 490.0):
        made.kernel("gemm", (begin, 9.9))
    for number in range(200):
        made.launched("gemm", call=(10.0 * number, 5.0), runs=(500.0 + 10.0 * number, 9.9))
    made.range("ProfilerStep#0", (0.0, 2000.0), Range.STEP)
    facts = judged(made.profile())
    assert facts.window.busy_share > 0.98
    assert facts.fitness.note.startswith("The first 0.48 ms are left out")
    closes(facts)


def apart(by_us, late=(0, 1, 2, 3, 4), waits_us=None):
    """Steps whose work is recorded so much earlier than it ran, by a clock of its own, with a wait
    at the end of each that returns so long after the work has ended."""
    made = training()
    for number, at in enumerate(range(0, 5 * 2000, 2000)) if waits_us is not None else ():
        last = made.rows["kernels"][18 * number + 17]
        done = (last["begin_ns"] + last["duration_ns"]) / US + waits_us
        launched = at + 1750
        made.call("cudaDeviceSynchronize", (launched, done - launched), CallKind.SYNCHRONIZE)
    for number, row in enumerate(made.rows["kernels"]):
        row["begin_ns"] -= by_us * US if number // 18 in late else 0
    return judged(made.profile())


@pytest.mark.parametrize("by_us", [100, 2_000_000])
def test_where_the_clocks_differ_nothing_is_said_of_what_the_host_did(by_us):
    facts = apart(by_us)
    assert "begins before the call that launched it" in facts.fitness.note
    assert "clocks of the CPU and the GPU differ" in facts.fitness.no_idle
    assert facts.steps is None and facts.window.run_ns == apart(0).busy[0].span_ns
    shown, silent = findings(facts)
    assert not shown and {"launch_bound", "host_bound"} <= silent


@pytest.mark.parametrize("by_us", [100, 2_000_000])
def test_where_launches_and_waits_agree_the_work_is_put_on_the_clock_of_the_host(by_us):
    facts, same = apart(by_us, waits_us=1), apart(0, waits_us=1)
    assert "is taken as that much later" in facts.fitness.note
    assert facts.fitness.no_idle is None and len(facts.steps.steps) == 5
    assert findings(facts) == findings(same)
    assert facts.window.busy_share == pytest.approx(same.window.busy_share, abs=0.01)
    assert facts.idle[0].idle_ns == pytest.approx(same.idle[0].idle_ns, rel=0.05)
    closes(facts)


@pytest.mark.parametrize("by_us", [100, 2_000_000])
def test_a_clock_that_is_ahead_is_told_by_waits_that_return_before_what_they_wait_for(by_us):
    facts, same = apart(-by_us, waits_us=1), apart(0, waits_us=1)
    assert "return before what they wait for has ended" in facts.fitness.note
    assert "is taken as that much earlier" in facts.fitness.note
    assert facts.fitness.no_idle is None and len(facts.steps.steps) == 5
    assert findings(facts) == findings(same)
    assert facts.idle[0].idle_ns == pytest.approx(same.idle[0].idle_ns, rel=0.05)
    closes(facts)


def fetching(later_us, lost=(0, 0)):
    """Kernels and a copy of each result to pageable memory, as PyTorch's `.item()` calls for it,
    recorded so much later than they ran; the first and the last have no rows on the device."""
    made = Made()
    copied = {
        "bytes": 4, "direction": Direction.DEVICE_TO_HOST,
        "source": Memory.DEVICE, "destination": Memory.PAGEABLE,
    }  # fmt: skip
    for number in range(200):
        at, recorded = 1000.0 * number, lost[0] <= number < 200 - lost[1]
        for name, kind, call, runs in (
            ("cudaLaunchKernel", CallKind.LAUNCH, (at, 5), (at + 10, 700)),
            ("cudaMemcpyAsync", CallKind.COPY, (at + 20, 700), (at + 712, 2)),
        ):
            correlation = made.correlation()
            made.call(name, call, kind, correlation=correlation)
            on_device = (runs[0] + later_us, runs[1])
            if recorded and kind is CallKind.LAUNCH:
                made.kernel("gemm", on_device, correlation=correlation)
            elif recorded:
                made.copy(on_device, correlation=correlation, **copied)
    return judged(made.profile())


def test_copies_to_pageable_memory_block_whatever_their_call_is_named():
    facts = fetching(50_000.0)
    assert "is taken as that much earlier" in facts.fitness.note
    assert facts.window.busy_share == pytest.approx(fetching(0.0).window.busy_share, abs=0.01)
    closes(facts)


@pytest.mark.parametrize(("lost", "told"), [
    ((0, 60), "the last 60 ms"), ((40, 0), "the first 40 ms"), ((0, 0), None),
])  # fmt: skip
def test_launches_before_or_behind_the_rows_of_another_clock_leave_no_gpu_idle(lost, told):
    facts = fetching(50_000.0 if lost[1] else -50_000.0, lost)
    assert facts.window.busy_share == pytest.approx(0.7, abs=0.02)
    assert ("Left out are" in facts.fitness.note) is (told is not None)
    assert told is None or f"Left out are {told} of the launches" in facts.fitness.note
    closes(facts)


@pytest.mark.parametrize(("late", "waits_us"), [
    ((0, 1, 2, 3, 4), 5000),  # waits return so late that the clocks may differ by more than a gap
    ((1, 2), 1),  # not the whole time: some waits would return before what they waited for
])  # fmt: skip
def test_where_launches_and_waits_do_not_agree_nothing_is_said_of_the_host(late, waits_us):
    assert "is not known" in apart(2000, late, waits_us).fitness.no_idle


def behind(early_us, still=3000.0, took=990.0, devices=1, waits=True):
    """Kernels of several devices in turn that are recorded earlier than they ran, each by what
    `early_us` says of its place (0 to 1) and device, with a wait for all of them at the end."""
    made, at = Made(), 0.0
    for number in range(100):
        device = number % devices
        runs = at + 10 - early_us(number / 99, device)
        made.launched("gemm", call=(at, 5), runs=(runs, took), device=device, stream=device)
        at += took + still
    if waits:
        made.call("cudaDeviceSynchronize", (at - still - 5, 17), CallKind.SYNCHRONIZE)
    return judged(made.profile())


def test_one_wait_at_the_end_is_enough_for_a_clock_that_is_as_much_behind_all_the_time():
    assert behind(lambda place, device: 2000).fitness.no_idle is None


@pytest.mark.parametrize("recorded", [
    lambda: behind(lambda place, device: 4000 * place),  # at another pace than the host's
    lambda: behind(lambda place, device: 3500 * (place > 0.25)),  # set anew on the way
    lambda: behind(lambda place, device: 2000 * device, devices=2),  # one of two clocks
    lambda: behind(lambda place, device: 2000, still=0, took=1000, waits=False),
], ids=["pace", "set", "devices", "nothing waited"])  # fmt: skip
def test_a_clock_that_is_not_known_to_be_as_much_behind_all_the_time_is_not_corrected(recorded):
    assert "is not known" in recorded().fitness.no_idle


def ranks_behind(*early_us):
    """As `behind`, by a process for each device, which waits for its own."""
    made = Made()
    for rank, early in enumerate(early_us):
        for number in range(100):
            at, correlation = 4000.0 * number, made.correlation()
            made.call("cudaLaunchKernel", (at, 5), CallKind.LAUNCH, correlation=correlation,
                      process=rank)  # fmt: skip
            made.kernel("gemm", (at + 10 - early(number / 99), 990), correlation=correlation,
                        device=rank)  # fmt: skip
        made.call("cudaDeviceSynchronize", (at + 5, 1000), CallKind.SYNCHRONIZE, process=rank)
    return judged(made.profile())


def test_clocks_of_devices_that_each_have_a_process_are_put_right_one_by_one():
    facts = ranks_behind(lambda place: 0, lambda place: 2000, lambda place: 30_000)
    assert facts.fitness.no_idle is None and "so much later" in facts.fitness.note
    begins = [facts.work.begin_ns[facts.work.device == rank] for rank in range(3)]
    assert all(abs(each - begins[0]).max() <= 10 * US for each in begins)


def test_one_clock_of_several_at_another_pace_makes_all_of_the_host_unknown():
    facts = ranks_behind(lambda place: 2000, lambda place: 4000 * place)
    assert "is not known" in facts.fitness.no_idle


@pytest.mark.parametrize(("checker", "is_start"), [("redzone_checker", True), ("check", False)])
def test_algorithms_that_are_tried_are_a_start(checker, is_start):
    made, at = Made(), 0.0
    for number in range(60):
        made.launched(f"algorithm{number % 7}", call=(at, 5), runs=(at + 8, 900))
        made.launched(checker, call=(at + 920, 5), runs=(at + 930, 20))
        made.call("cuEventSynchronize", (at + 926, 30), CallKind.SYNCHRONIZE)
        at += 1900
    facts = judged(made.profile())
    assert ("algorithms are tried" in facts.fitness.note) is is_start
    assert bool(findings(facts)[0]) is not is_start


def test_a_clock_that_drifts_by_far_less_than_gaps_last_is_corrected():
    facts = behind(lambda place, device: 40 - 30 * place)  # the wait returns 13 us too early
    assert facts.fitness.no_idle is None and "is taken as that much later" in facts.fitness.note


def test_a_clock_that_is_a_little_behind_is_none_that_differs():
    assert apart(5).fitness.no_idle is None


PAGEABLE = {
    "bytes": 8 << 20, "direction": Direction.HOST_TO_DEVICE,
    "source": Memory.PAGEABLE, "destination": Memory.DEVICE,
}  # fmt: skip


def loading(copies=20, kernels=60, later=0, took=5000.0, between=100):
    """Weights are copied for long, then kernels run again and again, some after a copy."""
    made, at = Made(), 0.0
    for _ in range(copies):
        made.copied((at, took), (at + 1, took - 2), **PAGEABLE)
        at += took + between
    for number in range(kernels):
        if later and number % later == 0:
            made.copied((at, took), (at + 1, took - 2), **PAGEABLE)
            at += took + 100
        made.launched("gemm", call=(at, 5), runs=(at + 8, 900))
        at += 1000
    return made.profile()


def test_loading_is_left_out_where_a_loop_follows():
    assert "pageable_copies" in findings(Facts(loading()))[0]
    facts = judged(loading())
    assert "The first 63 % of the recorded run (102 ms) load: 160 MiB" in facts.fitness.note
    assert facts.window.run_ns == pytest.approx(60e6, rel=0.02)
    assert facts.window.busy_share > 0.85
    assert "pageable_copies" not in findings(facts)[0]
    closes(facts)


@pytest.mark.parametrize("profile", [
    loading(copies=1, kernels=60, later=1),  # batches
    loading(copies=5, kernels=60, later=10),  # half of them before the first kernel
    loading(kernels=2),  # no loop
    loading(between=9000),  # the host does something else for most of that time
    loading(copies=1, kernels=600),  # a small part of the run
])  # fmt: skip
def test_copies_that_are_no_loading_are_looked_at(profile):
    assert judged(profile).fitness.note == ""


@settings(max_examples=6)
@given(
    st.integers(1, 30), st.integers(3, 40), st.integers(0, 5), st.floats(100, 9000),
)  # fmt: skip
def test_the_account_closes_with_and_without_loading(copies, kernels, later, took):
    profile = loading(copies, kernels, later, took)
    facts, whole = judged(profile), Facts(profile)
    closes(facts)
    assert facts.window.run_ns <= whole.window.run_ns
    assert facts.account.kernels_ns == whole.account.kernels_ns


def paced(pauses, passes=120, kernels=10, still=200_000.0, start=0.0, marked=False, runs=30):
    """Passes over the same kernels at the host's pace, and times in which nothing happens before
    some of them; the first launch may take long. All of it may be marked as one step."""
    made, at = Made(), 0.0
    if marked:
        made.range("ProfilerStep#6", (0, passes * kernels * 65 + len(pauses) * still), Range.STEP)
    for number in range(passes):
        at += still if number in pauses else 0.0
        for place in range(kernels):
            took = start if (number, place) == (0, 0) and start else 5.0
            made.launched(f"kernel_{place}", call=(at, took), runs=(at + took + 3, runs))
            at += took + 60
    return made.profile(source="nsys")


@pytest.mark.parametrize("pauses", [(1,), (2,), (1, 2), (119,), (1, 118)])
def test_the_stretch_at_a_pace_is_looked_at_and_the_stand_still_is_told(pauses):
    facts, whole = judged(paced(pauses)), judged(paced(()))
    assert facts.no_loop is None and facts.fitness.no_idle is None
    assert "these are looked at" in facts.fitness.note
    assert f"stood still {'once' if len(pauses) == 1 else '2 times'}" in facts.fitness.note
    assert facts.window.busy_share == pytest.approx(whole.window.busy_share, abs=0.02)
    assert facts.fitness.share == pytest.approx(
        facts.window.run_ns / Facts(paced(pauses)).window.run_ns
    )
    assert facts.fitness.note.endswith(", which cudaLaunchKernel launched")
    assert "launch_bound" in findings(facts)[0]
    closes(facts)


def test_a_phase_that_is_not_looked_at_is_told():
    facts = judged(paced((40,)))
    assert "67 % of the kernels' time: these are looked at" in facts.fitness.note
    assert "Left out is what ran beyond that, 33 % of the kernels' time" in facts.fitness.note
    closes(facts)


def test_a_gpu_that_is_busy_for_most_of_the_run_may_stand_still_as_well():
    facts = judged(paced((1,), still=40_000.0, runs=58))
    assert "Outside of them it stood still once, for 40 ms" in facts.fitness.note
    assert facts.window.busy_share > 0.85
    closes(facts)


def test_a_step_that_begins_before_the_stretch_was_recorded():
    found = diagnose(Evidence(judged(paced((1,), marked=True))), load_rules())
    why = {each.rule: each.why for each in found.not_measured}
    assert why["warm_up_in_profile"] == "no step begins in the part that is looked at"


def test_a_start_before_it_is_told_as_such():
    facts = judged(paced((), start=100_000.0))
    assert facts.window.run_ns < 100_000_000
    facts = judged(paced((1, 2), start=100_000.0))
    assert "these are looked at" in facts.fitness.note


@pytest.mark.parametrize(
    "profile",
    [
        paced(()),
        paced((1, 2, 3, 4, 5)),  # it pauses again and again
        paced((60,)),  # half of the work on each side
        paced((1,), passes=60),  # too short to be more than a first pass
        training(steps=5).profile(),
    ],
)
def test_where_no_stretch_is_clear_all_is_looked_at(profile):
    assert judged(profile).fitness.share == 1.0
    assert "at a pace" not in judged(profile).fitness.note


@settings(max_examples=10)
@given(st.sets(st.integers(0, 20), max_size=3), st.integers(3, 200), st.integers(1, 12))
def test_the_account_closes_at_a_pace(pauses, passes, kernels):
    closes(judged(paced(tuple(pauses), passes, kernels, 50_000.0)))


def test_of_a_small_part_of_the_recording_nothing_is_more_than_a_notice():
    facts = judged(paced((1,), still=5_000_000.0))
    assert facts.fitness.share < 0.05
    found = diagnose(Evidence(facts), load_rules()).shown
    assert found and all(each.severity.rank <= Severity.NOTICE.rank for each in found)
