"""Whose time it is: operators, kernels, launches and communication."""

import pytest

from gpuadvisor.domain.profile import UNKNOWN, CallKind
from gpuadvisor.rules.facts.communication import bus_factor, type_bytes
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def by_name(facts):
    return {
        each.name: (each.count, each.self_device_ns / US, each.total_device_ns / US)
        for each in facts.operators.by_name
    }


def test_device_time_belongs_to_the_innermost_operator():
    made = Made()
    made.operator("aten::linear", (0, 30))
    made.operator("aten::addmm", (5, 20))
    made.launched("bias", call=(2, 1), runs=(50, 7))
    made.launched("gemm", call=(10, 5), runs=(60, 100))
    made.launched("alone", call=(40, 5), runs=(200, 9))
    facts = Facts(made.profile())
    assert by_name(facts) == {"aten::addmm": (1, 100, 100), "aten::linear": (1, 7, 107)}
    assert facts.operators.unattributed_device_ns == 9 * US


def test_an_operator_within_one_of_its_name_counts_once_in_total():
    made = Made()
    made.operator("aten::to", (0, 30))
    made.operator("aten::to", (5, 20))
    made.launched("copy", call=(10, 5), runs=(60, 100))
    assert by_name(Facts(made.profile())) == {"aten::to": (2, 100, 100)}
    assert Facts(made.profile()).operators.by_name[0].host_ns == 30 * US


def test_operators_of_other_threads_and_processes_have_no_part():
    made = Made()
    made.operator("aten::mm", (0, 30), thread=2)
    made.operator("aten::mm", (0, 30), process=2)
    made.launched("gemm", call=(10, 5), runs=(60, 100))
    assert by_name(Facts(made.profile())) == {"aten::mm": (2, 0, 0)}


def test_a_call_at_the_very_end_of_an_operator_is_its_own():
    """As traces of whole microseconds have it."""
    made = Made()
    made.operator("aten::mm", (0, 10))
    made.launched("gemm", call=(10, 0), runs=(60, 100))
    assert by_name(Facts(made.profile())) == {"aten::mm": (1, 100, 100)}


def test_links_of_the_trace_help_where_the_call_is_missing():
    made = Made()
    made.operator("aten::mm", (0, 30), external_id=77)
    made.operator("aten::mul", (40, 30), external_id=78)
    made.kernel("gemm", (60, 100), correlation=5)
    made.row("links", external_id=77, correlation=5)
    assert by_name(Facts(made.profile()))["aten::mm"] == (1, 100, 100)


def test_links_that_repeat_the_correlation_are_no_links():
    """Kineto wrote these until 2023."""
    made = Made()
    made.operator("aten::mm", (0, 30), external_id=5)
    made.kernel("gemm", (60, 100), correlation=5)
    made.row("links", external_id=5, correlation=5)
    assert Facts(made.profile()).operators.unattributed_device_ns == 100 * US


def test_kernels_of_a_correlation_that_repeats_belong_to_the_call_before_them():
    made = Made()
    for begin in (0, 1000):
        made.operator(f"aten::at{begin}", (begin, 30))
        made.launched("gemm", call=(begin + 5, 5), runs=(begin + 50, 10), correlation=3)
    assert by_name(Facts(made.profile())) == {
        "aten::at0": (1, 10, 10),
        "aten::at1000": (1, 10, 10),
    }


def test_kernels_are_put_together_with_their_like():
    made = Made()
    for begin, duration in ((0, 3), (10, 1), (20, 2)):
        made.kernel("gemm", (begin, duration), grid_x=4, block_x=128, registers=32)
    made.kernel("gemm", (30, 9), grid_x=8, block_x=128, registers=32)
    wide, usual = Facts(made.profile()).kernels
    assert (wide.grid[0], wide.count, wide.time_ns) == (8, 1, 9 * US)
    assert (usual.count, usual.time_ns, usual.p50_ns, usual.p95_ns) == (3, 6 * US, 2 * US, 3 * US)
    assert (usual.name, usual.block[0], usual.registers, usual.first_row) == ("gemm", 128, 32, 0)


def test_a_queue_that_is_full_and_one_that_runs_empty():
    made = Made()
    made.launched("a", call=(0, 4), runs=(6, 100))
    made.launched("b", call=(10, 4), runs=(106, 5))
    made.launched("c", call=(20, 4), runs=(111, 5))
    made.launched("late", call=(200, 4), runs=(206, 5))
    (queue,) = Facts(made.profile()).queues
    assert (queue.kernels, queue.launched, queue.starved) == (4, 4, 2)
    assert queue.starved_share == 0.5
    assert queue.short_kernels == 3
    assert (queue.depth_max, queue.depth_p50) == (2, 0)
    assert (queue.call_p50_ns, queue.latency_p50_ns, queue.latency_p95_ns) == (
        4 * US,
        2 * US,
        92 * US,
    )


def test_graphs_and_lost_calls_tell_nothing_about_the_queue():
    made = Made()
    made.kernel("lost", (0, 10))
    for begin in (20, 31):
        made.kernel("node", (begin, 10), correlation=9, graph_node=begin)
    made.call("cudaGraphLaunch", (10, 5), CallKind.GRAPH_LAUNCH, correlation=9)
    (queue,) = Facts(made.profile()).queues
    assert (queue.kernels, queue.launched, queue.starved_share) == (3, 0, None)
    assert queue.latency_p50_ns is None


def collective(made, runs, elements, **told):
    correlation = made.correlation()
    made.kernel(NCCL, runs, correlation=correlation, stream=20)
    usual = {"name": "allreduce", "type": "Float", "group": "0", "group_size": 4}
    made.row(
        "collectives",
        correlation=correlation,
        begin_ns=round(runs[0] * US),
        in_elements=elements,
        **{**usual, "out_elements": elements, **told},
    )


def test_communication_by_collective():
    made = Made()
    made.kernel("gemm", (0, 30))
    collective(made, (10, 40), 1_000_000)
    collective(made, (60, 20), 1_000_000)
    collective(made, (90, 5), 1000, name="_allgather_base", type="Unheard", out_elements=4000)
    made.kernel(NCCL, (100, 5), stream=20)
    (device,) = Facts(made.profile()).communication
    reduce, *others = device.collectives
    assert (device.time_ns, device.exposed_ns) == (70 * US, 50 * US)
    assert (reduce.name, reduce.group_size, reduce.count) == ("allreduce", 4, 2)
    assert (reduce.time_ns, reduce.exposed_ns, reduce.bytes) == (60 * US, 40 * US, 8_000_000)
    assert reduce.bus_bandwidth_bytes_per_s == pytest.approx(8e6 * 1.5 / 60e-6)
    assert reduce.best_bus_bandwidth_bytes_per_s == pytest.approx(4e6 * 1.5 / 20e-6)
    assert {each.name for each in others} == {"", "_allgather_base"}
    assert {each.bytes for each in others} == {None}


@pytest.mark.parametrize(
    ("name", "ranks", "factor"),
    [
        ("allreduce", 4, 1.5),
        ("allreduce", 1, 0.0),
        ("_allgather_base", 4, 0.75),
        ("reduce_scatter_tensor_coalesced", 8, 0.875),
        ("all_to_allv", 2, 0.5),
        ("broadcast", 8, 1.0),
        ("send", 2, 1.0),
        ("barrier", 8, None),
        ("allreduce", UNKNOWN, None),
    ],
)
def test_how_often_a_byte_passes_a_link(name, ranks, factor):
    assert bus_factor(name, ranks) == factor


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Float", 4),
        ("BFloat16", 2),
        ("c10::Half", 2),
        ("Long", 8),
        ("Float8_e4m3fn", 1),
        ("", None),
    ],
)
def test_how_long_an_element_is(name, size):
    assert type_bytes(name) == size
