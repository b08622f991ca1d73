"""Positions on the roofline: operators by shapes and types, kernels by what was counted."""

import json
from pathlib import Path

import pytest

from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.facts.roofline import ATTENTION, Bound, bound, position, product, rows_of
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

PROFILES = Path(__file__).parents[3] / "data" / "profiles"
CEILINGS = {"dram": 1e12, "fp32": 1e13, "tf32": 1e14, "bf16": 2e14}


@pytest.mark.parametrize(
    ("operator", "shapes", "types", "flops", "moved"),
    [
        ("aten::mm", "[[4, 8], [8, 2]]", '["float", "float"]', 128, (32 + 16 + 8) * 4),
        ("aten::addmm", "[[2], [4, 8], [8, 2], [], []]", '["c10::BFloat16", "c10::BFloat16"]', 128,
         (32 + 16 + 8) * 2),
        ("aten::bmm", "[[3, 4, 8], [3, 8, 2]]", '["double", "double"]', 384, 3 * 56 * 8),
        ("aten::mm", "[[4, 8], [8, 2]]", "", 128, None),
    ],
)  # fmt: skip
def test_matrix_products(operator, shapes, types, flops, moved):
    made = product(operator, shapes, types)
    assert (made.flops, made.bytes) == (flops, moved)


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("aten::add", "[[4, 8], [8, 2]]"),
        ("aten::mm", "[[4, 8], [9, 2]]"),
        ("aten::mm", "[[4, 8]]"),
        ("aten::mm", "[[4, 8], []]"),
        ("aten::mm", "[[4, -8], [-8, 2]]"),
        ("aten::mm", "[[4, true], [1, 2]]"),
        ("aten::mm", '[[4, "8"], ["8", 2]]'),
        ("aten::mm", "{}"),
        ("aten::mm", "[[4, 8], [8, 2"),
        ("aten::mm", "[" * 100_000),
        ("aten::mm", ""),
        ("aten::bmm", "[[3, 4, 8], [2, 8, 2]]"),
    ],
)
def test_what_is_no_matrix_product(operator, shapes):
    assert product(operator, shapes, "") is None


@pytest.mark.parametrize(
    ("compute", "memory", "expected"),
    [
        (0.8, 0.3, Bound.COMPUTE),
        (0.3, 0.8, Bound.MEMORY),
        (0.3, 0.2, Bound.LATENCY),
        (None, 0.8, Bound.MEMORY),
        (0.8, None, Bound.COMPUTE),
        (0.3, None, Bound.UNKNOWN),  # the other one may be what limits
        (None, None, Bound.UNKNOWN),
    ],
)
def test_what_limits(compute, memory, expected):
    assert bound(compute, memory) is expected


def test_a_position():
    placed = position(1e-3, 8e9, 2e8, "fp32", CEILINGS)
    assert (placed.flops_per_s, placed.bytes_per_s) == (8e12, pytest.approx(2e11))
    assert placed.intensity_flops_per_byte == pytest.approx(40)
    assert (placed.compute_share, placed.memory_share) == (
        pytest.approx(0.8),
        pytest.approx(0.2),
    )
    assert placed.bound is Bound.COMPUTE


def test_no_ceilings_no_shares():
    placed = position(1e-3, 8e9, 2e8, "fp32", {})
    assert placed.compute_share is None
    assert placed.bound is Bound.UNKNOWN


def test_nothing_is_divided_by_no_time():
    assert position(0.0, 8e9, 2e8, "fp32", CEILINGS).flops_per_s is None


def facts_of(
    kernel,
    types='["float", "float"]',
    flops=float("nan"),
    name="aten::mm",
    ceilings=CEILINGS,
):
    made = Made()
    for begin in (0, 1000):
        made.operator(name, (begin, 30), shapes="[[1000, 1000], [1000, 1000]]", types=types,
                      flops=flops)  # fmt: skip
        made.launched(kernel, call=(begin + 10, 5), runs=(begin + 60, 400))
    return Facts(made.profile(), ceilings).rooflines


def test_operators_of_the_same_shapes_stand_together():
    (only,) = facts_of("sgemm")
    assert (only.count, only.device_ns, only.flops) == (2, 800_000, 4e9)
    assert only.position.flops_per_s == pytest.approx(5e12)
    assert only.position.compute_share == pytest.approx(0.5)
    assert only.position.intensity_flops_per_byte == pytest.approx(2e9 / 12e6)


@pytest.mark.parametrize(
    ("kernel", "types", "precision"),
    [
        ("ampere_sgemm_128x64_tn", '["float", "float"]', "fp32"),
        ("cutlass_80_tensorop_s1688gemm_128x128", '["float", "float"]', "tf32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32", '["float", "float"]', "tf32"),
        ("nvjet_hsh", '["c10::BFloat16", "c10::BFloat16"]', "bf16"),
        ("strange", '["Scalar"]', ""),
    ],
)
def test_the_ceiling_is_that_of_the_precision(kernel, types, precision):
    (only,) = facts_of(kernel, types)
    assert only.precision == precision


def test_products_stand_against_the_ceiling_of_products():
    doubles, ceilings = '["double", "double"]', {"fp64": 1e12, "fp64_tensor": 2e13}
    (only,) = facts_of("dgemm", doubles, ceilings=ceilings)
    assert (only.precision, only.position.compute_share) == ("fp64_tensor", pytest.approx(0.25))
    (only,) = facts_of("dgemm", doubles, ceilings={"fp64": 1e13})
    assert (only.precision, only.position.compute_share) == ("fp64", pytest.approx(0.5))
    (only,) = facts_of("conv", doubles, 5e8, "aten::conv2d", ceilings)
    assert (only.precision, only.position.compute_share) == ("fp64", pytest.approx(1.25))


def test_the_profilers_own_count_goes_first():
    (only,) = facts_of("implicit_gemm", flops=7e9, name="aten::conv2d")
    assert (only.flops, only.bytes) == (14e9, None)


def of_shapes(*inputs, others=0):
    return json.dumps([*map(list, inputs), *[[]] * others])


def of_values(**places):
    told = [""] * (1 + max(int(name[1:]) for name in places))
    for name, value in places.items():
        told[int(name[1:])] = value
    return json.dumps(told)


HEADS_FIRST, ROWS_FIRST = (2, 12, 512, 64), (2, 512, 12, 64)
FULL = 2 * 2 * 12 * 512 * 512 * (64 + 64)
"""Multiplications and additions of two products of 512 rows by 512, of 24 heads of 64."""
ONE = 2 * 12 * 512 * 64
"""Elements of one tensor."""


@pytest.mark.parametrize(
    ("operator", "shapes", "inputs", "flops", "elements", "at_most"),
    [
        ("aten::_scaled_dot_product_flash_attention", of_shapes(*[HEADS_FIRST] * 3),
         of_values(_4="False"), FULL, 4 * ONE, False),
        ("aten::_scaled_dot_product_flash_attention", of_shapes(*[HEADS_FIRST] * 3),
         of_values(_4="True"), FULL / 2, 4 * ONE, False),
        ("aten::_scaled_dot_product_flash_attention", of_shapes(*[HEADS_FIRST] * 3), "",
         FULL, 4 * ONE, True),
        ("aten::_scaled_dot_product_efficient_attention", of_shapes(*[HEADS_FIRST] * 3),
         of_values(_4="False", _6="True"), FULL / 2, 4 * ONE, False),
        ("aten::_scaled_dot_product_cudnn_attention", of_shapes(*[HEADS_FIRST] * 3),
         of_values(_6="False"), FULL, 4 * ONE, False),
        ("aten::_flash_attention_forward", of_shapes(*[ROWS_FIRST] * 3, others=6),
         of_values(_8="True", _11=""), FULL / 2, 4 * ONE, False),
        ("aten::_efficient_attention_forward", of_shapes(*[ROWS_FIRST] * 3, others=6),
         of_values(_9="1"), FULL / 2, 4 * ONE, False),
        ("flash_attn::_flash_attn_forward", of_shapes(*[ROWS_FIRST] * 3),
         of_values(_5="True", _6="-1"), FULL / 2, 4 * ONE, False),
        ("flash_attn::_flash_attn_forward", of_shapes(*[ROWS_FIRST] * 3),
         of_values(_5="False", _6="128"), FULL, 4 * ONE, True),
        ("aten::_scaled_dot_product_flash_attention_backward",
         of_shapes(*[HEADS_FIRST] * 5), of_values(_11="True"), 1.25 * FULL, 8 * ONE, False),
        ("flash_attn::_flash_attn_backward", of_shapes(*[ROWS_FIRST] * 5),
         of_values(_11="False", _12="-1"), 2.5 * FULL, 8 * ONE, False),
        # One query of a sequence that goes on: causal leaves out nobody knows what.
        ("aten::_scaled_dot_product_flash_attention",
         of_shapes((2, 12, 1, 64), HEADS_FIRST, HEADS_FIRST), of_values(_4="True"),
         FULL / 512, 2 * ONE + 2 * ONE / 512, True),
        # Four queries share a key.
        ("aten::_scaled_dot_product_flash_attention",
         of_shapes(HEADS_FIRST, (2, 3, 512, 64), (2, 3, 512, 64)), of_values(_4="False"),
         FULL, 2 * ONE + 2 * ONE / 4, False),
    ],
)  # fmt: skip
def test_attention(operator, shapes, inputs, flops, elements, at_most):
    types = json.dumps(["c10::BFloat16"] * 5)
    made = product(operator, shapes, types, inputs)
    assert (made.flops, made.bytes, made.at_most) == (flops, 2 * elements, at_most)


@pytest.mark.parametrize(
    "schema", [each for each in ATTENTION if each.startswith("aten::")], ids=lambda e: e[6:]
)
def test_inputs_are_where_pytorch_has_them(schema):
    ops = pytest.importorskip("torch").ops.aten
    names = [each.name for each in getattr(ops, schema[6:]).default._schema.arguments]
    places = ATTENTION[schema]
    assert names[places.query : places.query + 3] == ["query", "key", "value"]
    assert names[places.causal] in ("is_causal", "custom_mask_type")
    if places.lengths is not None:
        assert names[places.lengths] in ("cum_seq_q", "cu_seqlens_q")
    if places.window is not None:
        assert names[places.window] in ("window_size_left", "window_size")
    assert places.is_backward == ("grad" in names[0])


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("aten::_scaled_dot_product_flash_attention", of_shapes(*[HEADS_FIRST] * 2)),
        ("aten::_scaled_dot_product_flash_attention", of_shapes(*[(512, 12, 64)] * 3)),
        ("aten::_scaled_dot_product_flash_attention", of_shapes(*[(2, 0, 512, 64)] * 3)),
        ("aten::_scaled_dot_product_flash_attention",
         of_shapes(HEADS_FIRST, (2, 5, 512, 64), (2, 5, 512, 64))),
        ("aten::_scaled_dot_product_flash_attention",
         of_shapes(HEADS_FIRST, HEADS_FIRST, (2, 12, 511, 64))),
        ("aten::_flash_attention_forward", of_shapes(*[ROWS_FIRST] * 3, (9,), (9,))),
        ("aten::_flash_attention_forward", "[[1, 2"),
        ("aten::scaled_dot_product_attention", of_shapes(*[HEADS_FIRST] * 3)),
    ],
)  # fmt: skip
def test_what_is_no_attention_that_shapes_tell(operator, shapes):
    assert product(operator, shapes, "", "") is None


def test_of_attention_within_attention_the_outer_one_stands_there():
    made = Made()
    types = json.dumps(["c10::BFloat16"] * 3)
    made.operator("aten::_scaled_dot_product_flash_attention", (0, 90), types=types,
                  shapes=of_shapes(*[HEADS_FIRST] * 3), inputs=of_values(_4="False"))  # fmt: skip
    made.operator("aten::_flash_attention_forward", (10, 60), types=types,
                  shapes=of_shapes(*[ROWS_FIRST] * 3), inputs=of_values(_8="False"))  # fmt: skip
    made.launched("flash_fwd_kernel", call=(20, 5), runs=(100, 50))
    made.launched("other", call=(120, 5), runs=(200, 50))
    facts = Facts(made.profile(), CEILINGS)
    (only,) = facts.rooflines
    assert (only.operator, only.device_ns) == (
        "aten::_scaled_dot_product_flash_attention", 50_000)  # fmt: skip
    assert only.position.compute_share == pytest.approx(FULL / 50e-6 / 2e14)
    rows = facts.launching.work_within(rows_of(facts.profile, only))
    assert [facts.work.describe(row) for row in rows.tolist()] == ["flash_fwd_kernel"]


def test_attention_of_a_real_trace():
    """Twelve layers of a vision transformer: 4 images of 197 patches, 12 heads of 64."""
    facts = Facts(read_profile(PROFILES / "h100_vit_falconsai.json.gz"))
    found = [each for each in facts.rooflines if each.operator in ATTENTION]
    (only,) = found
    assert (only.operator, only.count, only.precision, only.at_most) == (
        "aten::_scaled_dot_product_flash_attention", 12, "bf16", False)  # fmt: skip
    assert only.flops == 12 * 2 * 4 * 12 * 197 * 197 * 128
    kernels = [each for each in facts.kernels if "flash_fwd" in each.name]
    assert only.device_ns == sum(each.time_ns for each in kernels)


def counted(**values):
    made = Made()
    made.kernel("healthy_copy", (0, 1))
    made.kernel("other", (0, 1))
    for metric, value in values.items():
        made.row("metrics", kernel=0, metric=metric.replace("9", "."), value=value)
    return Facts(made.profile()).ncu_kernels


def test_kernels_that_were_counted():
    (only,) = counted(**{
        "gpu__time_duration9sum": 1e-3,
        "dram__bytes_read9sum": 6e8,
        "dram__bytes_write9sum": 2e8,
        "sm__throughput9avg9pct_of_peak_sustained_elapsed": 20.0,
        "gpu__compute_memory_throughput9avg9pct_of_peak_sustained_elapsed": 85.0,
        "smsp__cycles_elapsed9avg9per_second": 1e9,
        "smsp__sass_thread_inst_executed_op_ffma_pred_on9sum9per_cycle_elapsed": 100.0,
        "smsp__sass_thread_inst_executed_op_fadd_pred_on9sum9per_cycle_elapsed": 50.0,
    })  # fmt: skip
    assert (only.row, only.name, only.bound) == (0, "healthy_copy", Bound.MEMORY)
    assert only.bandwidth_bytes_per_s == pytest.approx(8e11)
    assert only.flops_per_s == pytest.approx(250e9)
    assert only.intensity_flops_per_byte == pytest.approx(250 / 800)


def test_metrics_that_were_not_collected_are_not_known():
    (only,) = counted(**{"sm__throughput9avg9pct_of_peak_sustained_elapsed": 20.0})
    assert (only.seconds, only.dram_bytes, only.flops_per_s) == (None, None, None)
    assert only.bound is Bound.UNKNOWN
