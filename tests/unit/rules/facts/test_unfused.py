"""Chains of memory-bound kernels: what fusing them spares, by the bytes that are moved."""

import pytest

from gpuadvisor.domain.profile import Range
from gpuadvisor.rules.catalogue import unfused_elementwise
from gpuadvisor.rules.catalogue.unfused_attention import check
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.registry import load_rules
from tests.profiles import Made
from tests.rules.cases.layout_conversion import CHANNELS_LAST, NATIVE, under_amp
from tests.rules.cases.unfused_attention import (
    COPIED,
    LINEAR,
    NORMALISED,
    SCALED,
    SCORES,
    VALUES,
)
from tests.rules.cases.unfused_elementwise import (
    ADD,
    CONVOLUTION,
    MUL,
    NORMALIZE,
    POOL,
    RELU,
    STATISTICS,
)
from tests.rules.queued import K, queued

BACKWARD = [
    "void at::native::batch_norm_backward_reduce_kernel<c10::Half>",
    "void at::native::batch_norm_backward_elemt_kernel<c10::Half>",
]


@pytest.mark.parametrize(
    ("names", "moved", "spared"),
    [
        # The input is read for the statistics and to normalize; only what relu reads is spared.
        ([STATISTICS, NORMALIZE, RELU], 1 + 2 + 2, 2),
        ([STATISTICS, NORMALIZE, ADD, RELU], 1 + 2 + 3 + 2, 4),
        # What is added is written for the second look at it; the statistics need not read it.
        ([ADD, STATISTICS, NORMALIZE], 3 + 1 + 2, 1),
        ([NORMALIZE, RELU, POOL], 2 + 2 + 2, 4),
        ([RELU, *BACKWARD], 2 + 2 + 3, 1),
        (["void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int>", RELU], 3 + 2, 2),
        ([ADD, ADD, ADD], 9, 4),
    ],
)
def test_what_fusing_spares(names, moved, spared):
    evidence = queued([K(CONVOLUTION, 100), *(K(name) for name in names), K(CONVOLUTION, 100)])
    (chain,) = evidence.facts.chains
    assert (chain.moved, chain.spared) == (moved, spared)


def test_two_elementwise_kernels_are_no_chain():
    assert queued([K(CONVOLUTION), K(ADD), K(RELU)]).facts.chains == ()


def test_batch_normalization_of_pytorch_counts_for_the_layout_where_it_is_in_nchw():
    (rule,) = (each for each in load_rules() if each.name == "layout_conversion")
    spans = [
        diagnose(under_amp(name), [rule]).findings[0].improvement_pct
        for name in (NATIVE, CHANNELS_LAST)
    ]
    assert spans[0].low <= 42.1 <= spans[0].high, "what a network under AMP gained"
    assert spans[0].width <= 30
    assert spans[1].high < 12


def test_a_chain_ends_with_its_step():
    made = Made()
    for step in range(2):
        begin = 1000.0 * step
        made.range(f"ProfilerStep#{step}", (begin, 1000), Range.STEP)
        for place in range(4):
            at = begin + 900 + 20 * place
            made.launched(ADD, call=(at, 5), runs=(at + 150, 20))
    assert [len(each.rows) for each in Facts(made.profile()).chains] == [4, 4]


def test_a_chain_ends_where_the_step_of_an_optimizer_begins_and_where_it_ends():
    """Its kernels are of different parameters, and another rule's."""
    made = Made()
    for number in range(40):
        made.launched(ADD, call=(10.0 * number, 5), runs=(1000 + 10.0 * number, 9))
    made.range("Optimizer.step#SGD.step", (48, 300), Range.USER)
    found = Facts(made.profile()).chains
    assert [(len(each.rows), each.in_optimizer) for each in found] == [
        (5, False), (30, True), (5, False),
    ]  # fmt: skip
    (told,) = unfused_elementwise.check(Evidence(Facts(made.profile())))
    assert "2 chains" in told.summary and "up to 5 in a row" in told.summary


def added(*shapes, operator="aten::add_"):
    return [K(ADD, operator=operator, shapes=str([each, each, []])) for each in shapes]


def test_a_loop_over_parameters_is_no_chain():
    """A word language model that updates each parameter by itself: "29 in a row"."""
    assert queued(added([33001, 200], [600, 200], [600], [200, 200], [200])).facts.chains == ()


@pytest.mark.parametrize(
    "kernels",
    [
        added([600, 200], [600, 200], [600, 200], [600, 200]),
        added([600, 200], [600], [200], [600, 200], operator="aten::add"),
        [K(ADD), K(ADD), K(ADD), K(ADD)],
        [*added([600, 200]), K(RELU), *added([600]), K(RELU)],
    ],
    ids=["of one size", "not in place", "nothing is told", "another operator is between"],
)
def test_what_may_be_of_one_tensor_is(kernels):
    (chain,) = queued(kernels).facts.chains
    assert len(chain.rows) == 4


def test_copies_beside_the_products_of_attention_are_told_apart_from_others():
    steps = [COPIED, SCORES, SCALED, NORMALISED, COPIED, VALUES, COPIED, LINEAR, COPIED, LINEAR]
    found = queued(steps * 2).facts.attention
    assert found.times == 2
    # The copy within is a part of it; the one before the last product is somebody else's.
    assert found.between.tolist() == [2, 3, 4, 12, 13, 14]
    assert found.copies.tolist() == [0, 6, 10, 16]


def test_copies_beside_attention_are_saved_at_most():
    with_copies, without = (
        next(iter(check(queued(steps * 4))))
        for steps in (
            [COPIED, SCORES, NORMALISED, VALUES, LINEAR],
            [SCORES, NORMALISED, VALUES, LINEAR],
        )
    )
    copied_ns = 4 * 700_000
    assert with_copies.saving.high_ns >= without.saving.high_ns + 0.99 * copied_ns
    assert with_copies.saving.low_ns <= 1.01 * without.saving.low_ns


@pytest.mark.parametrize(
    ("reads", "spared"),
    [
        ("[[64, 512], [], []]", 1),
        ("[[64, 16], [], []]", None),  # another tensor
        ("", None),  # no shapes
    ],
)
def test_a_sum_of_what_was_just_written_ends_a_chain(reads, spared):
    total = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>"
    evidence = queued(
        [
            K(CONVOLUTION),
            K(ADD, 100, "aten::mul", "[[64, 512], [512]]"),
            K(total, 100, "aten::sum", reads),
        ]
    )
    assert [each.spared for each in evidence.facts.chains] == ([] if spared is None else [spared])


@pytest.mark.parametrize(
    ("others", "advice"),
    [
        ([], "Compile the model, or"),
        (
            [K("triton_poi_fused_add_0", 300)],
            "Compile what is not compiled yet (PyTorch's compiler made 50% of the kernel time",
        ),
    ],
)
def test_of_a_program_that_is_compiled_in_part_the_rest_is_to_be_compiled(others, advice):
    (found,) = unfused_elementwise.check(queued([K(ADD), K(MUL), K(ADD), *others] * 5))
    assert found.advice.startswith(advice)
