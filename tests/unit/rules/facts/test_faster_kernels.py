"""Which kernels could save what: played again, in chains, in optimizers and in attention."""

import numpy as np
import pytest

from gpuadvisor.domain.profile import Direction, Memory, Range
from gpuadvisor.rules.facts.intervals import one
from tests.profiles import Made
from tests.rules.building import timeline
from tests.rules.queued import K, queued

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>,"
    " std::array<char*, 3ul> >(int)"
)
MUL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float>,"
    " std::array<char*, 2ul> >(int)"
)
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"


def all_rows(facts):
    return np.arange(len(facts.work))


def test_faster_kernels_save_their_time_where_the_gpu_is_the_limit():
    facts = queued([K("work", 1000)] * 20).facts
    saved = facts.faster_kernels.saved_share([(all_rows(facts), 0.5)], 1.0)
    assert saved == pytest.approx(0.5, abs=0.01)


def test_faster_kernels_save_nothing_where_the_host_is_the_limit():
    facts = queued([K("work", 2)] * 50, pace=50).facts
    assert facts.faster_kernels.saved_share([(all_rows(facts), 0.5)], 1.0) < 0.01


def test_without_the_profiler_the_same_host_may_not_be_the_limit():
    facts = queued([K("work", 40)] * 50, pace=50).facts
    player = facts.faster_kernels
    slow, fast = (player.saved_share([(all_rows(facts), 0.5)], pace) for pace in (1.0, 0.4))
    assert slow < 0.02
    assert 0.4 < fast < 0.55


def test_a_call_that_is_held_until_the_gpu_is_done_is_no_time_that_its_copy_needs_to_begin():
    """Steps of 20 ms, after which the host fetches a value. Another thread copies the next batch of
    pinned memory, in a call that comes back only when all that was launched before is done."""
    made = Made()
    host, device = Memory.PINNED, Memory.DEVICE
    for step in range(10):
        at = 20_200 * step
        for number in range(10):
            runs = (at + 100 + 2000 * number, 2000)
            made.launched("work", call=(at + 5 * number, 4), runs=runs)
        done = at + 20_100
        fetched = {"direction": Direction.DEVICE_TO_HOST, "source": device, "destination": host}
        made.copied((at + 60, 20_045), (done, 2), bytes=4, **fetched)
        batch = {"direction": Direction.HOST_TO_DEVICE, "source": host, "destination": device}
        made.copied((at + 2000, 18_107), (done + 5, 50), thread=2, bytes=1 << 20, stream=9, **batch)
    facts = timeline(made).facts
    kernels = np.arange(facts.work.kernels)
    saved = facts.faster_kernels.saved_share([(kernels, 0.8)], 1.0)
    assert saved == pytest.approx(0.8, abs=0.02)


def test_work_that_is_gone_leaves_no_gap():
    """Every second kernel takes 50 us and begins 100 us after the one before was done, for no
    reason of the host's."""
    made = Made()
    for number in range(40):
        begin, took = (150 * number + 50, 50) if number % 2 else (150 * number, 100)
        made.launched("work", call=(number / 10, 0.05), runs=(10 + begin, took))
    player = timeline(made).facts.faster_kernels
    second = np.arange(1, 40, 2)
    half, gone = (player.saved_share([(second, share)], 1.0) for share in (0.5, 1.0))
    assert gone / half == pytest.approx((50 + 100) / 25, rel=0.05)


def test_what_the_host_is_spared_counts_where_it_is_the_limit():
    facts = queued([K("work", 2)] * 100, pace=50).facts
    half = one(facts.window.begin_ns, (facts.window.begin_ns + facts.window.end_ns) // 2)
    saved = facts.faster_kernels.saved_share([], 1.0, half, 1.0)
    assert saved == pytest.approx(0.5, abs=0.03)


def test_kernels_of_one_name_are_told_apart_by_their_operators():
    facts = queued(
        [K("gemm", 10, "aten::mm", "[[8, 8], [8, 8]]"), K("gemm", 20, "aten::addmm"), K("gemm", 5)]
    ).facts
    found = [(each.operator, each.time_ns) for each in facts.kernel_uses.uses]
    assert found == [("aten::addmm", 20_000), ("aten::mm", 10_000), ("", 5_000)]


def test_communication_is_no_kernel_time():
    facts = queued([K("ncclDevKernel_AllReduce_Sum_f32", 500), K("work", 20)]).facts
    assert facts.kernel_uses.time_ns == 20_000


def test_a_chain_is_of_three_kernels_and_more():
    facts = queued([K(ADD), K(MUL), K("gemm"), K(ADD), K(MUL), K(ADD), K(FILL), K(ADD)]).facts
    (chain,) = facts.chains
    assert chain.rows.tolist() == [3, 4, 5]
    assert chain.time_ns == 300_000
    assert chain.spared_share == pytest.approx(4 / 8)  # 2 links, of 3 + 2 + 3 tensors


def test_kernels_of_an_optimizer_are_known():
    facts = queued([K("gemm")] * 3 + [K(ADD)] * 4, ranges=[("Optimizer.step#SGD.step", 3, 7)]).facts
    steps = facts.optimizer_steps
    assert (steps.names, steps.count) == (("Optimizer.step#SGD.step",), 1)
    assert steps.rows.tolist() == [3, 4, 5, 6]
    assert facts.chains[0].in_optimizer


def test_attention_is_softmax_between_batched_products():
    product = K("volta_sgemm_32x32", 10, "aten::bmm")
    facts = queued(
        [product, K(MUL, 5, "aten::div"), K("softmax", 5, "aten::_softmax"), product, product]
    ).facts
    found = facts.attention
    assert found.times == 1
    assert found.products.tolist() == [0, 3]
    assert found.between.tolist() == [1, 2]


def test_attention_has_two_products_on_each_side_of_its_backward_pass():
    product = K("volta_sgemm_32x32", 10, "aten::bmm")
    softmax = K("softmax_backward", 5, "aten::_softmax_backward_data")
    facts = queued(
        [K("gemm"), product, product, K(MUL, 5, "aten::mul"), softmax, product, product, product]
    ).facts
    found = facts.attention
    assert found.products.tolist() == [1, 2, 5, 6]
    assert found.between.tolist() == [3, 4]


def recorded_late(*launches, grid=100):
    """A kernel of before the recording, and others of its name, each from an operator or none."""
    made = Made()
    made.kernel("mm", (0, 10), **shape(grid))
    for number, operator in enumerate(launches):
        began = 20 + 30 * number
        if operator:
            made.operator(operator, (began, 10))
        made.launched("mm", call=(began + 2, 5), runs=(began + 10, 10), **shape(grid))
    uses = timeline(made).facts.kernel_uses.uses
    return {each.operator: each.count for each in uses}


def shape(grid):
    return {"grid_x": grid, "grid_y": 1, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}


def test_a_kernel_launched_before_the_recording_is_told_by_those_like_it():
    assert recorded_late("aten::mm", "aten::mm") == {"aten::mm": 3}


@pytest.mark.parametrize("other", ["aten::linear", ""])
def test_what_several_operators_launch_or_one_and_none_tells_nothing(other):
    assert recorded_late("aten::mm", other).get("") == 1 + (not other)


def test_without_a_grid_no_kernel_is_like_another():
    assert recorded_late("aten::mm", grid=-1) == {"": 1, "aten::mm": 1}


def test_memory_at_the_begin_of_steps():
    made = Made()
    for number in range(3):
        made.range(f"step {number}", (100 * number, 100), Range.USER)
        made.launched("work", call=(100 * number + 10, 5), runs=(100 * number + 20, 50))
        made.row(
            "memory", time_ns=100_000 * number + 50_000, device=0, bytes=1,
            allocated_bytes=number + 1, reserved_bytes=10,
        )  # fmt: skip
    from gpuadvisor.rules.facts.summary import Facts

    assert Facts(made.profile()).allocated_at_steps == (1, 2)
