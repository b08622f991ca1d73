"""How long devices were busy: known answers, and what holds for any profile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.domain.profile import Direction, Memory
from gpuadvisor.rules.facts.copies import copy_times
from gpuadvisor.rules.facts.device_work import Work, device_work, kernel_kinds
from gpuadvisor.rules.facts.time_breakdown import busy, concurrency
from tests.profiles import Made, permuted

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

spans = st.tuples(st.integers(0, 30), st.integers(-2, 10))
rows = st.lists(
    st.tuples(st.sampled_from(["gemm", NCCL, "copy"]), spans, st.integers(0, 1), st.integers(0, 2)),
    min_size=1,
    max_size=15,
)


def made_of(rows):
    made = Made()
    for name, runs, device, stream in rows:
        if name == "copy":
            made.copy(runs, device=device, stream=stream, bytes=100)
        else:
            made.kernel(name, runs, device=device, stream=stream)
    return made.profile()


def test_the_time_of_each_kind_and_of_what_ran_together():
    made = Made()
    made.kernel("gemm", (0, 10))
    made.kernel(NCCL, (6, 10), stream=20)
    made.copy((14, 4), stream=21)
    made.copy((30, 2), direction=Direction.MEMSET)
    (device,) = busy(device_work(made.profile()))
    assert (device.span_ns, device.busy_ns, device.idle_ns) == (32 * US, 20 * US, 12 * US)
    assert (device.compute_ns, device.communication_ns, device.memory_ns) == (
        10 * US,
        10 * US,
        6 * US,
    )
    assert device.together_ns == {
        "compute": 6 * US,
        "communication": 4 * US,
        "memory": 4 * US,
        "compute+communication": 4 * US,
        "communication+memory": 2 * US,
    }


def test_devices_are_busy_by_themselves():
    made = Made()
    made.kernel("gemm", (0, 10), device=0)
    made.kernel("gemm", (5, 10), device=3)
    made.kernel("gemm", (5, 0), device=4)  # took no time: no device to speak of
    assert [(each.device, each.busy_ns) for each in busy(device_work(made.profile()))] == [
        (0, 10 * US),
        (3, 10 * US),
    ]


@given(rows)
def test_busy_and_idle_make_up_the_span(rows):
    for device in busy(device_work(made_of(rows))):
        assert device.idle_ns >= 0
        assert sum(device.together_ns.values()) == device.busy_ns
        for kind in ("compute", "communication", "memory"):
            parts = [ns for kinds, ns in device.together_ns.items() if kind in kinds.split("+")]
            assert sum(parts) == getattr(device, f"{kind}_ns")


@given(rows, st.integers(0, 100))
def test_the_order_of_rows_does_not_matter(rows, seed):
    profile = made_of(rows)
    other = permuted(profile, seed)
    assert busy(device_work(profile)) == busy(device_work(other))
    assert copy_times(device_work(profile)) == copy_times(device_work(other))
    assert concurrency(device_work(profile)) == concurrency(device_work(other))


@given(rows)
def test_exposed_copies_are_no_longer_than_all_copies(rows):
    work = device_work(made_of(rows))
    for each in copy_times(work):
        assert 0 <= each.exposed_ns <= each.time_ns


@given(rows)
def test_streams_were_active_for_as_long_as_the_device_was_busy(rows):
    work = device_work(made_of(rows))
    streams = {each.device: each for each in concurrency(work)}
    for device in busy(work):
        assert sum(streams[device.device].time_ns.values()) == device.busy_ns


def test_copies_by_direction_and_memory():
    made = Made()
    made.kernel("gemm", (0, 10))
    made.copy((5, 10), bytes=40_000, source=Memory.PAGEABLE)
    made.copy((20, 10), bytes=20_000, source=Memory.PAGEABLE)
    made.copy((40, 5), direction=Direction.DEVICE_TO_HOST, source=Memory.DEVICE)
    first, second = copy_times(device_work(made.profile()))
    assert (first.direction, first.source, first.count) == (
        Direction.HOST_TO_DEVICE,
        Memory.PAGEABLE,
        2,
    )
    assert (first.time_ns, first.exposed_ns, first.bytes) == (20 * US, 15 * US, 60_000)
    assert first.bandwidth_bytes_per_s == pytest.approx(3e9)
    assert (second.bytes, second.bandwidth_bytes_per_s) == (0, None)  # its size is not known


def test_values_that_no_enumeration_has_are_not_known():
    made = Made()
    made.copy((0, 5), direction=77, source=-3, destination=99)
    (only,) = copy_times(device_work(made.profile()))
    assert (only.direction, only.source) == (Direction.OTHER, Memory.NOT_KNOWN)


def test_streams_at_the_same_time():
    made = Made()
    made.kernel("gemm", (0, 10), stream=1)
    made.kernel("gemm", (5, 10), stream=2)
    made.kernel("gemm", (6, 2), stream=2)  # within the one before: still one stream
    made.kernel("gemm", (8, 1), stream=3)
    (device,) = concurrency(device_work(made.profile()))
    assert (device.streams, device.time_ns) == (3, {1: 10 * US, 2: 4 * US, 3: 1 * US})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (NCCL, Work.COMMUNICATION),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Work.COMMUNICATION),
        ("rccl_main_kernel(ncclDevComm*)", Work.COMMUNICATION),
        ("void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*)", Work.COMMUNICATION),
        ("multimem_all_reduce_kernel<float>", Work.COMMUNICATION),
        ("two_shot_all_reduce_kernel_inplace<c10::BFloat16>", Work.COMMUNICATION),
        ("void at::native::reduce_kernel<512, 1>()", Work.COMPUTE),
        ("ampere_sgemm_128x64_tn", Work.COMPUTE),
        ("MemcpyWithSyncKernel", Work.COMPUTE),
        ("", Work.COMPUTE),
    ],
)
def test_kernels_that_communicate(name, kind):
    made = Made()
    made.kernel(name, (0, 1))
    profile = made.profile()
    kinds = kernel_kinds(profile.columns("kernels")["name"], profile.header.texts)
    assert kinds.tolist() == [kind]


def test_nothing_ran():
    work = device_work(Made().profile())
    assert (busy(work), copy_times(work), concurrency(work)) == ((), (), ())
