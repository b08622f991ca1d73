"""Blocks that are computed again within the backward pass, and backward passes as they are."""

from gpuadvisor.domain.profile import Range
from tests.profiles import Made
from tests.rules.building import H100, timeline

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT"
NODE = "autograd::engine::evaluate_function: AddmmBackward0"
GIB = 2**30
FORWARD, BACKWARD = 1, 2
STEP_US = 2_000


def training(
    again=("aten::linear",), reserved_gib=20.0, kept_gib=4.0, node=NODE, us=300.0, recorded=True
):
    """Three steps of a block forward, and of its backward pass with some of it again."""
    made = Made()
    for step in range(3):
        begin = step * STEP_US
        made.range(f"ProfilerStep#{step}", (begin, STEP_US), Range.STEP)
        made.operator("aten::linear", (begin + 10, 20))
        made.launched(GEMM, (begin + 15, 5), (begin + 30, us))
        made.operator(node, (begin + 40, 100), thread=BACKWARD)
        before = begin + 40
        for number, name in enumerate(again):
            at = begin + 50 + 10 * number
            made.operator(name, (at, 8), thread=BACKWARD)
            made.launched(GEMM, (at + 1, 5), (begin + 400 + us * number, us), thread=BACKWARD)
        made.operator("aten::mm", (begin + 110, 20), thread=BACKWARD)
        made.launched(GEMM, (begin + 115, 5), (begin + 1200, us), thread=BACKWARD)
        if recorded:
            allocated(made, before - 5, reserved_gib, 10 * GIB)
            allocated(made, begin + 45, reserved_gib, (10 + kept_gib) * GIB)
            allocated(made, begin + 135, reserved_gib, 10 * GIB)
    return timeline(made, H100)


def allocated(made, time_us, reserved_gib, held):
    made.row(
        "memory", time_ns=round(1000 * time_us), device=0, bytes=1,
        allocated_bytes=round(held), reserved_bytes=round(reserved_gib * GIB),
    )  # fmt: skip


FIRES = {
    "a layer": training,
    "a convolution": lambda: training(("aten::convolution",)),
    "attention and what is around it": lambda: training(
        ("aten::layer_norm", "aten::scaled_dot_product_attention")
    ),
    "by another node": lambda: training(node="autograd::engine::evaluate_function: GeluBackward0"),
}
SILENT = {
    "products of the backward pass": lambda: training(("aten::mm", "aten::sum")),
    "nothing again": lambda: training(()),
    "no room for what would be kept": lambda: training(reserved_gib=70.0),
    "much would be kept": lambda: training(kept_gib=50.0),
    "a module called within no node": lambda: training(node="my_node"),
    "nothing tells what would be kept": lambda: training(kept_gib=0.0),
}
