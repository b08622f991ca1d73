"""Launches of Triton kernels on copies of their arguments: checked, and timed."""

import pytest

torch = pytest.importorskip("torch")

from gpuadvisor.collectors.script.child.inquiry import OrderedInquiry  # noqa: E402 - no torch
from gpuadvisor.tuners.knobs._triton import copies as repeated  # noqa: E402 - the same
from gpuadvisor.tuners.knobs._triton.copies import Copies  # noqa: E402 - the same
from gpuadvisor.tuners.knobs._triton.launches import Kernel, NotTunable  # noqa: E402 - the same
from tests.triton_launches import N, copies, seen  # noqa: E402 - the same


def test_what_computes_the_same_is_timed(kernels):
    x, out = torch.rand(N), torch.empty(N)
    told = copies(kernels, kernels.scale, x, out, N, BLOCK=32).measure({"BLOCK": 64}, None)
    assert told["state"] == "complete"
    assert told["times_ms"][0] > 0
    assert told["default_ms"][0] > 0


def test_the_scripts_own_tensors_stay_as_they_are(kernels):
    x, out = torch.rand(N), torch.full((N,), 7.0)
    before = x.clone()
    copies(kernels, kernels.scale, x, out, N, BLOCK=32).measure({"BLOCK": 64}, None)
    copies(kernels, kernels.add_in_place, x, N, BLOCK=32).measure({"BLOCK": 64}, None)
    assert torch.equal(x, before)
    assert out.eq(7).all()


def test_what_is_compiled_side_by_side_is_not_launched(kernels):
    x, out = torch.rand(N), torch.full((N,), 7.0)
    tried = copies(kernels, kernels.scale, x, out, N, BLOCK=32)
    launched = kernels.tl.PROGRAMS[0]
    tried.compile([{"BLOCK": 64}, {"BLOCK": 64, "num_warps": 3}, {"BLOCK": 128}])
    assert kernels.tl.PROGRAMS[0] == launched
    assert tried.measure({"BLOCK": 64}, None)["state"] == "complete"
    with pytest.raises(ValueError, match="power of 2"):
        tried.measure({"BLOCK": 64, "num_warps": 3}, None)


def test_in_place_updates_begin_from_the_same_each_time(kernels):
    x = torch.rand(N)
    tried = copies(kernels, kernels.add_in_place, x, N, BLOCK=32)
    assert [tried.measure({"BLOCK": b}, None)["state"] for b in (64, 256, 16)] == ["complete"] * 3


def test_atomics_add_to_what_was_there(kernels):
    x, out = torch.rand(N), torch.tensor([100.0])
    told = copies(kernels, kernels.total, x, out, N, BLOCK=32).measure({"BLOCK": 128}, None)
    assert told["state"] == "complete"


@pytest.mark.parametrize(("block", "said"), [(64, "unwritten"), (16, "outside of its arguments")])
def test_scratch_whose_size_depends_on_the_block_is_refused(kernels, block, said):
    x, partial = torch.rand(N), torch.empty(N // 32)
    told = copies(kernels, kernels.totals_of_blocks, x, partial, N, BLOCK=32).measure(
        {"BLOCK": block}, None
    )
    assert told["state"] == "wrong"
    assert said in told["reason"]


def test_a_block_that_is_a_row_may_not_be_shorter(kernels):
    x, out = torch.rand(8, 64), torch.empty(8, 64)
    tried = copies(kernels, kernels.softmax, x, out, 64, BLOCK=64, grid=lambda meta: (8,))
    assert tried.measure({"BLOCK": 128}, None)["state"] == "complete"
    assert tried.measure({"BLOCK": 32}, None)["state"] == "wrong"


def test_stale_results_of_the_step_before_do_not_hide_what_is_not_written(kernels):
    x = torch.rand(8, 64)
    out = torch.softmax(x, 1)  # the allocator gave the same memory again
    tried = copies(kernels, kernels.softmax, x, out, 64, BLOCK=64, grid=lambda meta: (8,))
    told = tried.measure({"BLOCK": 32}, None)
    assert told["state"] == "wrong"
    assert "unwritten" in told["reason"]


def test_a_block_beyond_the_end_is_seen(kernels):
    x, out = torch.rand(N + 32), torch.empty(N + 32)
    tried = copies(
        kernels,
        kernels.without_mask,
        x,
        out,
        BLOCK=32,
        grid=lambda meta: (-(-(N + 32) // meta["BLOCK"]),),
    )
    assert tried.measure({"BLOCK": 32}, None)["state"] == "complete"
    told = tried.measure({"BLOCK": 64}, None)
    assert told == {"state": "wrong", "reason": "it writes outside of its arguments"}
    assert tried.measure({"BLOCK": 16}, None)["state"] == "complete", "it is not blamed for that"


def test_what_a_rule_makes_is_tried_on_copies(kernels):
    x, out = torch.rand(N), torch.empty(N)
    kernels.ruled_within[kernels.blocks_of(N)](x, out, N)
    tried = copies(kernels, kernels.ruled_within, x, out, N)
    function, seen = kernels.ruled_within.fn.fn, []
    launch = function.launch

    def noting(args, kwargs, grid):
        seen.append((kwargs["BLOCK"], function.options))
        return launch(args, kwargs, grid)

    function.launch = noting
    assert tried.measure({"BLOCK": 128, "num_warps": 8}, None)["state"] == "complete"
    assert (128, {"num_warps": 8}) in seen
    assert {block for block, _ in seen} == {128, N // 8}


def test_views_of_one_memory_stay_views_of_one_memory(kernels):
    both = torch.rand(2 * N)
    x, out = both[:N], both[N:]
    told = copies(kernels, kernels.scale, x, out, N, BLOCK=32).measure({"BLOCK": 64}, None)
    assert told["state"] == "complete"
    whole = torch.rand(N, 2)
    strided = copies(kernels, kernels.scale, whole[:, 0], torch.empty(N), N, BLOCK=32)
    assert strided.measure({"BLOCK": 64}, None)["state"] == "complete"


def test_whole_numbers_have_to_be_the_same(kernels):
    x, out = torch.rand(8, 64), torch.zeros(8, dtype=torch.int64)
    tried = copies(kernels, kernels.largest, x, out, 64, BLOCK=64, grid=lambda meta: (8,))
    assert tried.measure({"BLOCK": 128}, None)["state"] == "complete"
    assert "elements differ" in tried.measure({"BLOCK": 16}, None)["reason"]


def test_a_kernel_that_draws_numbers_may_differ_by_as_much_again(kernels):
    x, out = torch.rand(N), torch.empty(N)
    tried = copies(kernels, kernels.by_chance, x, out, N, BLOCK=32)
    assert tried.is_inexact
    assert tried.measure({"BLOCK": 64}, None)["state"] == "complete"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((torch.full((4,), 1 << 45), torch.empty(4), 4), "holds addresses"),
        ((torch.ones(4, dtype=torch.complex64), torch.empty(4), 4), "complex numbers"),
        (([torch.ones(4)], torch.empty(4), 4), "a list of tensors"),
        ((type("Wrapper", (), {"data_ptr": lambda self: 0})(), torch.empty(4), 4), "a pointer"),
    ],
)
def test_arguments_that_cannot_be_copied_are_named(kernels, arguments, reason):
    with pytest.raises(NotTunable, match=reason):
        copies(kernels, kernels.scale, *arguments, BLOCK=32)


def test_memory_of_two_types_cannot_be_copied(kernels):
    x = torch.rand(N)
    with pytest.raises(NotTunable, match="different types share memory"):
        copies(kernels, kernels.scale, x, x.view(torch.int32), N, BLOCK=32)


def test_a_launch_that_writes_nothing_is_left_alone(kernels):
    with pytest.raises(NotTunable, match="nothing was seen that it writes"):
        copies(kernels, kernels.nothing, torch.rand(N), N, BLOCK=32)


def test_where_copies_have_no_room_that_is_said(kernels, monkeypatch):
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(cuda, "mem_get_info", lambda: (2 << 30, 80 << 30))
    monkeypatch.setattr(cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(cuda, "memory_allocated", lambda: 0)
    monkeypatch.setattr(repeated, "COPIES", 1 << 30)
    inquiry = OrderedInquiry(None, "nowhere")
    launch = seen(kernels, kernels.scale, torch.rand(N), torch.empty(N), N, BLOCK=32)
    with pytest.raises(NotTunable, match=r"copies of its arguments take 2048\.0 GiB, and there"):
        Copies(inquiry, None, Kernel.of(kernels.scale), launch)


@pytest.mark.parametrize(
    ("dtype", "apart", "passes"),
    [
        (torch.float32, 1e-6, True),
        (torch.float32, 1e-3, False),
        (torch.bfloat16, 2e-2, True),
        (torch.bfloat16, 2e-1, False),
        (torch.float16, 2e-3, True),
        (torch.float16, 3e-2, False),
    ],
)
def test_the_tolerance_follows_the_dtype(dtype, apart, passes):
    values = torch.rand(64, dtype=torch.float64) + 1
    limit = OrderedInquiry.rounding(dtype, 64)
    said = OrderedInquiry.difference([values * (1 + apart)], [values], limit)
    assert (said is None) is passes


def test_the_tolerance_grows_with_the_terms_of_a_sum():
    few, many = (OrderedInquiry.rounding(torch.float32, terms) for terms in (16, 1 << 20))
    assert few < 1e-5 < many < 2e-3
    assert OrderedInquiry.rounding(torch.int32, 1 << 20) == 0
