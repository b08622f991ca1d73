"""Why a device is idle: one small timeline for each cause, and what holds for any."""

from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.domain.profile import CallKind, Direction, Range
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.facts.idle import HOST_PACE_NS, REACH_NS, idle_gaps
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.time_breakdown import busy
from tests.profiles import Made, permuted

DATA = Path(__file__).parents[3] / "data" / "profiles"
US = 1000
REACH = REACH_NS / US
PACE = HOST_PACE_NS / US
PAUSE = 5 * PACE


def causes(made):
    made.range("main", (0, 1))  # the program is marked: not only calls into CUDA were recorded
    (device,) = Facts(made.profile()).idle
    return {cause: ns / US for cause, ns in device.causes_ns.items() if ns}


def first_kernel(made):
    """A kernel that ends at 100, launched long before."""
    made.launched("first", call=(0, 5), runs=(8, 92))


def test_launching_at_the_pace_of_the_host():
    made = Made()
    made.launched("first", call=(0, 5), runs=(8, 10))
    made.launched("second", call=(40, 5), runs=(48, 10))
    assert causes(made) == {Cause.LAUNCHING: 30}


def test_the_script_does_something_else():
    made = Made()
    first_kernel(made)
    made.launched("second", call=(100 + PAUSE, 5), runs=(108 + PAUSE, 10))
    assert causes(made) == {Cause.OTHER_HOST: PAUSE, Cause.LAUNCHING: 8}


def test_a_slow_operator_that_launches_is_launching():
    made = Made()
    first_kernel(made)
    made.operator("aten::native_layer_norm", (150, PAUSE + 50))
    made.launched("second", call=(100 + PAUSE, 5), runs=(108 + PAUSE, 10))
    # From the first launch to the operator it is 145 us, more than the host's pace.
    assert causes(made) == {Cause.OTHER_HOST: 50, Cause.LAUNCHING: PAUSE - 50 + 8}


@pytest.mark.parametrize("kind", list(Range))
def test_without_anything_of_the_host_nothing_is_said_of_it(kind):
    made = Made()
    first_kernel(made)
    made.launched("second", call=(100 + PAUSE, 5), runs=(108 + PAUSE, 10))
    assert Facts(made.profile()).idle[0].causes_ns[Cause.NOT_RECORDED] == PAUSE * US
    made.range("what", (0, 1), kind)
    tells = kind not in (Range.DEVICE, Range.OVERHEAD, Range.SYSTEM)
    cause, other = Cause.OTHER_HOST, Cause.NOT_RECORDED
    found = Facts(made.profile()).idle[0].causes_ns
    assert (found[cause], found[other])[:: 1 if tells else -1] == (PAUSE * US, 0)


@pytest.mark.parametrize("seen", [True, False])
def test_what_the_host_did_before_it_was_recorded_is_not_known(seen):
    """A profiler that starts while the device still works on what was launched before."""
    made = Made()
    made.kernel("queued", (0, 100))
    made.range("ProfilerStep#1", (40 if seen else PAUSE, 118 + PAUSE - (40 if seen else PAUSE)))
    made.launched("second", call=(100 + PAUSE, 5), runs=(108 + PAUSE, 10))
    facts = Facts(made.profile())
    found = {cause: ns / US for cause, ns in facts.idle[0].causes_ns.items() if ns}
    own = PAUSE if seen else 100
    unseen = {} if seen else {Cause.UNKNOWN: PAUSE - own}
    assert found == {Cause.OTHER_HOST: own, Cause.LAUNCHING: 8, **unseen}
    assert facts.host_idle.other_times.total_ns == own * US


def test_an_operator_that_launches_nothing_is_other_work():
    made = Made()
    first_kernel(made)
    made.operator("aten::sort", (110, PAUSE - 20))
    made.launched("second", call=(100 + PAUSE, 5), runs=(108 + PAUSE, 10))
    assert causes(made) == {Cause.OTHER_HOST: PAUSE, Cause.LAUNCHING: 8}


def test_waiting_for_a_batch():
    made = Made()
    first_kernel(made)
    made.range("enumerate(DataLoader)#_Iter.__next__", (90, PAUSE - 10), Range.LOADER)
    made.copied(call=(100 + PAUSE, 5), runs=(104 + PAUSE, 10))
    assert causes(made) == {
        Cause.WAITING_FOR_DATA: PAUSE - 20,
        Cause.OTHER_HOST: 20,
        Cause.LAUNCHING: 4,
        Cause.COPYING: 10,
    }


def test_another_threads_batch_is_not_waited_for():
    made = Made()
    first_kernel(made)
    made.range("enumerate(DataLoader)#_Iter.__next__", (90, PAUSE), Range.LOADER, thread=2)
    made.launched("second", call=(100 + PAUSE, 5), runs=(108 + PAUSE, 10))
    assert Cause.WAITING_FOR_DATA not in causes(made)


def test_the_queue_ran_empty_because_the_host_waited():
    made = Made()
    first_kernel(made)
    made.call("cudaStreamSynchronize", (20, 85), CallKind.SYNCHRONIZE)
    made.launched("second", call=(150, 5), runs=(158, 10))
    assert causes(made) == {Cause.SYNCHRONIZING: 50 + 8}


def test_a_batch_that_is_waited_for_after_synchronizing_is_data():
    made = Made()
    first_kernel(made)
    made.call("cudaStreamSynchronize", (20, 85), CallKind.SYNCHRONIZE)
    made.range("enumerate(DataLoader)#_Iter.__next__", (110, 30), Range.LOADER)
    made.launched("second", call=(150, 5), runs=(158, 10))
    assert causes(made) == {
        Cause.SYNCHRONIZING: 20 + 8,
        Cause.WAITING_FOR_DATA: 30,
    }


def test_waiting_on_another_thread_does_not_hold_this_one():
    made = Made()
    first_kernel(made)
    made.call("cudaEventSynchronize", (20, 85), CallKind.SYNCHRONIZE, thread=9)
    made.launched("second", call=(130, 5), runs=(138, 10))
    assert Cause.SYNCHRONIZING not in causes(made)


@pytest.mark.parametrize(("took", "cause"), [(2_000, Cause.STARTING), (20, Cause.DEVICE)])
def test_what_begins_late_after_a_first_launch_that_loads_is_a_start(took, cause):
    made = Made()
    first_kernel(made)
    made.launched("second", call=(110, took), runs=(110 + took + 3_000, 10))
    assert causes(made)[cause] >= 3_000 - 100


def test_of_the_cpu_without_records_only_time_outside_of_calls_is_not_recorded():
    made = Made()
    first_kernel(made)
    made.call("cuModuleLoadData", (1_110, 500))
    made.launched("second", call=(2_110, 5), runs=(2_118, 10))
    found = Facts(made.profile()).idle[0].causes_ns
    assert found[Cause.OTHER_HOST] == 500 * US
    assert found[Cause.NOT_RECORDED] > 1_400 * US


def test_what_was_launched_in_time_waited_for_the_device():
    made = Made()
    first_kernel(made)
    made.launched("second", call=(10, 5), runs=(130, 10))
    assert causes(made) == {Cause.DEVICE: 30}


def test_beginning_takes_a_while_after_the_call():
    made = Made()
    first_kernel(made)
    made.launched("second", call=(95, 10), runs=(125, 10))
    assert causes(made) == {Cause.LAUNCHING: 5 + REACH, Cause.DEVICE: 20 - REACH}


def test_a_call_that_was_not_recorded():
    made = Made()
    first_kernel(made)
    made.kernel("second", (130, 10))
    assert causes(made) == {Cause.UNKNOWN: 30}


def test_managed_memory_moves_without_a_launch():
    made = Made()
    first_kernel(made)
    made.copy((130, 10), direction=Direction.MIGRATION)
    made.kernel("second", (170, 10))
    assert causes(made) == {Cause.MIGRATING: 30, Cause.COPYING: 10, Cause.UNKNOWN: 30}


def test_copies_that_nothing_hides():
    made = Made()
    made.launched("first", call=(0, 5), runs=(8, 92))
    made.copied(call=(10, 5), runs=(90, 30))
    made.launched("second", call=(15, 5), runs=(120, 10))
    assert causes(made) == {Cause.COPYING: 20}


def test_kernels_of_a_graph_have_one_call():
    made = Made()
    first_kernel(made)
    graph = made.correlation()
    made.call("cudaGraphLaunch", (10, 5), CallKind.GRAPH_LAUNCH, correlation=graph)
    for begin in (100, 112, 124):
        made.kernel("node", (begin, 10), correlation=graph, graph_node=begin)
    assert causes(made) == {Cause.BETWEEN_KERNELS: 4}


def test_the_backward_pass_is_launched_by_another_thread():
    made = Made()
    made.launched("forward", call=(0, 5), runs=(8, 10))
    made.launched("backward", call=(60, 5), runs=(68, 10), thread=2)
    assert causes(made) == {Cause.LAUNCHING: 50}


def test_the_first_launch_of_a_kernel_is_no_launch():
    made = Made()
    first_kernel(made)
    made.launched("second", call=(110, 5_000), runs=(5_120, 10))
    assert causes(made) == {Cause.OTHER_HOST: 10, Cause.LAUNCHING: 10, Cause.STARTING: 5_000}


def test_a_launch_that_waits_for_room_in_the_queue_is_none_either():
    made = Made()
    made.launched("first", call=(0, 5), runs=(8, 9_000))
    made.launched("second", call=(10, 8_990), runs=(9_010, 10))
    assert causes(made) == {Cause.BETWEEN_KERNELS: 2}


def test_the_profiler_itself_and_what_it_saw_of_cuda():
    made = Made()
    first_kernel(made)
    made.range("Buffer Flush", (100, 30), Range.OVERHEAD, process=-1)
    made.range("Lazy Function Loading", (130, 20), Range.OVERHEAD, process=-1)
    made.launched("second", call=(160, 5), runs=(168, 10))
    assert causes(made) == {
        Cause.PROFILER: 30,
        Cause.STARTING: 20,
        Cause.OTHER_HOST: 10,
        Cause.LAUNCHING: 8,
    }


def test_launches_into_a_graph():
    made = Made()
    first_kernel(made)
    for begin in range(110, 410, 50):
        made.call("cudaLaunchKernel", (begin, 5), CallKind.LAUNCH, correlation=1000 + begin)
    made.call("cudaGraphInstantiate", (410, 40))
    made.launched("second", call=(460, 5), runs=(468, 10))
    assert causes(made) == {Cause.OTHER_HOST: 10, Cause.LAUNCHING: 18, Cause.STARTING: 340}


@pytest.mark.parametrize(
    "name",
    [
        "torch/_dynamo/convert_frame.py(1124): _compile",
        "/usr/lib/python3/triton/compiler/compiler.py(222): compile",
    ],
)
def test_compiling(name):  # fmt: skip
    made = Made()
    first_kernel(made)
    made.range(name, (110, 700), Range.PYTHON)
    made.launched("second", call=(820, 5), runs=(828, 10))
    assert causes(made)[Cause.STARTING] == 700


def test_memory_that_is_allocated():
    made = Made()
    first_kernel(made)
    made.call("cudaMalloc", (105, 300), CallKind.ALLOCATE)
    made.launched("second", call=(420, 5), runs=(428, 10))
    assert causes(made)[Cause.ALLOCATING] == 300 + 8  # else it had been launched in time


def test_memory_that_is_freed_when_all_work_is_done():
    made = Made()
    first_kernel(made)
    made.range("ProfilerStep#0", (0, 500), Range.STEP)
    made.call("cudaFree", (105, 300), CallKind.FREE)
    made.call("cudaFree", (105, 300), CallKind.FREE, thread=2)
    found = Facts(made.profile()).idle[0].causes_ns
    assert (found[Cause.ALLOCATING], found[Cause.FINISHED]) == (300 * US, 100 * US)


def test_a_device_whose_work_is_done_has_nothing_to_do():
    made = Made()
    made.launched("first", (0, 5), (8, 92), device=0)
    made.launched("first", (0, 5), (8, 192), device=1)
    first, second = Facts(made.profile()).idle
    assert first.causes_ns[Cause.FINISHED] == 100 * US and not second.causes_ns[Cause.FINISHED]


def test_a_slow_device_gets_the_time_that_it_usually_needs():
    made = Made()
    for number in range(5):  # 20 us from the end of each call to the begin of its kernel
        begin = 200 * number
        made.launched("gemm", call=(begin, 5), runs=(begin + 25, 100))
    made.launched("late", call=(1000, 5), runs=(1039, 10))
    assert Cause.DEVICE not in causes(made)


def test_gaps_are_listed_with_what_came_before_and_after():
    made = Made()
    first_kernel(made)
    made.launched("second", call=(10, 5), runs=(110, 10))
    made.copied(call=(120 + PAUSE, 5), runs=(128 + PAUSE, 10))
    made.range("main", (0, 1))
    (device,) = Facts(made.profile()).idle
    longest, shortest = device.longest
    assert (longest.before, longest.after) == ("second", "copy host to device (pinned to device)")
    assert (longest.cause, longest.cause_ns) == (Cause.OTHER_HOST, PAUSE * US)
    assert (longest.begin_ns, longest.duration_ns) == (120 * US, (PAUSE + 8) * US)
    assert (longest.launched_by, shortest.after) == ("cudaMemcpyAsync", "second")
    assert asdict(device)["causes_ns"][Cause.DEVICE] == 10 * US


when = st.tuples(st.integers(0, 600), st.integers(-5, 120))
events = st.lists(
    st.tuples(
        st.sampled_from(["kernel", "copy", "lost", "sync", "loader", "operator", "graph"]),
        when,
        when,
        st.integers(1, 2),
        st.integers(0, 1),
    ),
    max_size=14,
)


def profile_of(events):
    made = Made()
    for kind, host, runs, thread, device in events:
        if kind == "kernel":
            made.launched("gemm", host, runs, thread, device=device, stream=thread)
        elif kind == "copy":
            made.copied(host, runs, thread, device=device)
        elif kind == "lost":
            made.kernel("gemm", runs, device=device, correlation=thread)  # may repeat another's
        elif kind == "sync":
            made.call("cudaDeviceSynchronize", host, CallKind.SYNCHRONIZE, thread=thread)
        elif kind == "loader":
            made.range("enumerate(DataLoader)#x.__next__", host, Range.LOADER, thread=thread)
        elif kind == "operator":
            made.operator("aten::mm", host, thread=thread)
        else:
            made.kernel("node", runs, device=device, correlation=thread, graph_node=1)
    return made.profile()


@given(events)
def test_causes_exclude_each_other_and_sum_to_the_time_without_a_kernel(events):
    facts = Facts(profile_of(events))
    for device in facts.idle:
        assert all(ns >= 0 for ns in device.causes_ns.values())
        assert sum(device.causes_ns.values()) == device.without_kernel_ns
    assert {each.device: facts.window.run_ns - each.idle_ns for each in facts.idle} == {
        each.device: each.busy_ns for each in busy(facts.work)
    }


@given(events, st.integers(0, 50))
def test_the_order_of_rows_does_not_change_the_causes(events, seed):
    profile = profile_of([each for each in events if each[0] not in ("lost", "graph")])
    ours, theirs = Facts(profile).idle, Facts(permuted(profile, seed)).idle
    for first, second in zip(ours, theirs, strict=True):
        assert first.causes_ns == second.causes_ns
        assert [gap.duration_ns for gap in first.longest] == [
            gap.duration_ns for gap in second.longest
        ]


def test_a_profile_without_calls_says_so():
    made = Made()
    made.kernel("first", (0, 10))
    made.kernel("second", (20, 10))
    facts = Facts(made.profile())
    assert facts.idle[0].causes_ns[Cause.UNKNOWN] == 10 * US
    assert "idle" in facts.not_measured


@pytest.mark.parametrize("thread", [1, 2])
def test_two_devices_are_judged_by_themselves(thread):
    made = Made()
    for device in (0, 1):
        made.launched("first", (0, 5), (8, 92), device=device)
        made.launched("second", (200, 5), (208, 10), thread, device=device)
    assert [each.without_kernel_ns for each in Facts(made.profile()).idle] == [108 * US] * 2


def test_gaps_one_by_one_are_those_of_the_sums():
    facts = Facts(read_profile(DATA / "hta_a100_train_control.json.gz"))
    (whole,) = facts.idle
    ((device, shorter, gaps),) = idle_gaps(
        facts.work, facts.launched, facts.threads, facts.window.begin_ns, 5_000
    )
    found = list(gaps)
    assert (device, shorter + len(found)) == (whole.device, whole.gaps)
    assert min(gap.duration_ns for gap in found) >= 5_000
    assert set(whole.longest) <= set(found)
    assert found == sorted(found, key=lambda gap: gap.begin_ns)
