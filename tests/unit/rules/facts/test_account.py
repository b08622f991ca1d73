"""The account of a run closes: each nanosecond of its window is in one entry, on every device."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given

from gpuadvisor.domain.profile import Direction, Memory
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.facts.account import EntryKind
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.time_breakdown import TimeCategory
from tests.profiles import Made
from tests.unit.rules.facts.test_idle import events, profile_of

DATA = Path(__file__).parents[3] / "data" / "profiles"
SMALL = (
    "h100_bert_small",
    "h100_small_cnn_train",
    "mi300_bert_small",
    "hta_a100_launch_bound_rank0",
    "workloads/input_bound",
    "workloads/launch_bound",
    "workloads/pageable_copy",
)
LARGE = (
    "h100_vit_falconsai",
    "hta_a100_train_control",
    "v100_resnet50_workers0",
    "v100_resnet50_workers4",
    "workloads/fp32_no_tf32",
    "workloads/healthy_matmul",
)
REAL = [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
US = 1000


@cache
def facts_of(name):
    return Facts(read_profile(DATA / f"{name}.json.gz"))


def shares(account, kind):
    return [account.share(each) for each in account.entries if each.kind == kind]


def closes(facts):
    assert {each.device for each in facts.account.devices} == {each.device for each in facts.busy}
    for device in facts.account.devices:
        assert (device.begin_ns, device.end_ns) == facts.window.span
        assert all(each.time_ns > 0 for each in device.entries)
        assert sum(each.time_ns for each in device.entries) == facts.window.run_ns
    for entry in facts.account.entries:
        of_devices = (e for each in facts.account.devices for e in each.entries)
        same = [e for e in of_devices if (e.part, e.family) == (entry.part, entry.family)]
        assert sum(each.time_ns for each in same) == entry.time_ns


@given(events)
def test_the_account_of_any_profile_closes(events):
    closes(Facts(profile_of(events)))


@pytest.mark.parametrize("name", REAL)
def test_the_account_of_a_real_trace_closes(name):
    closes(facts_of(name))


@given(events)
def test_every_share_of_a_run_is_of_the_same_window(events):
    facts = Facts(profile_of(events))
    assert sum(shares(facts.account, EntryKind.USEFUL)) == pytest.approx(facts.window.busy_share)
    for device, breakdown in facts.time_breakdowns.items():
        busy = next(each for each in facts.busy if each.device == device)
        assert breakdown.busy_ns == busy.busy_ns
        assert breakdown.span_ns == facts.window.run_ns


@pytest.mark.parametrize("name", REAL)
def test_little_of_a_trace_with_calls_is_unexplained(name):
    # Of one trace most is: the next test is about its long gaps inside of CUDA graphs.
    account = facts_of(name).account
    assert (
        sum(shares(account, EntryKind.UNEXPLAINED)) <= 0.1 or name == "hta_a100_launch_bound_rank0"
    )


def test_long_gaps_inside_cuda_graphs_are_unexplained():
    account = facts_of("hta_a100_launch_bound_rank0").account
    assert sum(shares(account, EntryKind.UNEXPLAINED)) > 0.6
    device = account.devices[0]
    gap = next(each for each in device.longest if str(each.cause) == TimeCategory.DEVICE)
    assert 63e6 < gap.duration_ns < 65e6


def test_a_moment_with_two_kernels_is_the_first_ones():
    made = Made()
    made.kernel("ampere_sgemm_128x64_tn", (0, 10))
    made.kernel("void at::native::vectorized_elementwise_kernel<4>()", (5, 10), stream=8)
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", (12, 10), stream=9)
    made.copy((20, 10), stream=10)
    entries = Facts(made.profile()).account.entries
    assert [(each.part, each.family, each.time_ns / US) for each in entries] == [
        (TimeCategory.COMPUTING, "gemm", 10),
        (TimeCategory.COMPUTING, "elementwise", 5),
        (TimeCategory.COMMUNICATING, "", 7),
        (TimeCategory.COPYING, "", 8),
    ]


def test_memory_that_is_set_is_no_copy():
    made = Made()
    made.launched("gemm", (0, 5), (10, 10))
    made.copy((20, 10))
    made.copy((25, 20), direction=Direction.MEMSET, destination=Memory.DEVICE, stream=8)
    account = Facts(made.profile()).account
    times = {each.part: each.time_ns / US for each in account.entries}
    assert times[TimeCategory.COPYING] == 10  # both at once are a copy
    assert times[TimeCategory.FILLING] == 15
    assert account.devices[0].held_ns("copy/exposed") == 10 * US
    assert sum(times.values()) * US == account.span_ns
