"""What each step of a profile does, counted."""

from gpuadvisor.domain.profile import UNKNOWN, Direction, Range
from gpuadvisor.rules.facts.counts import counts
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"


def two_steps():
    made = Made()
    for number in (1, 2):
        made.range(f"ProfilerStep#{number}", (100 * number, 100), Range.STEP)
    return made


def test_kernels_belong_to_the_step_that_launched_them():
    made = two_steps()
    made.operator("aten::mm", (110, 30))
    made.launched("gemm", call=(120, 5), runs=(250, 10))  # long after its step
    made.launched("gemm", call=(150, 5), runs=(260, 10))  # outside of all operators
    made.operator("aten::relu_", (210, 30))
    made.operator("aten::clamp_min_", (212, 20))
    made.launched(ADD, call=(220, 5), runs=(280, 10))
    made.launched("late", call=(320, 5), runs=(330, 5))  # after the last step
    found = counts(Facts(made.profile()))
    assert found["kernels"] == {
        "gemm (aten::mm)": (1, 0),
        "gemm": (1, 0),
        "vectorized_elementwise_kernel [CUDAFunctor_add] (aten::relu_)": (0, 1),
    }


def test_copies_and_memsets_stand_apart():
    made = two_steps()
    made.copied(call=(110, 5), runs=(120, 5))
    made.copied(call=(210, 5), runs=(220, 5), direction=Direction.DEVICE_TO_HOST)
    made.copied(call=(230, 5), runs=(240, 5), direction=Direction.MEMSET)
    found = counts(Facts(made.profile()))
    assert found == {
        "copies": {"host to device": (1, 0), "device to host": (0, 1), "memset": (0, 1)}
    }


def test_operators_count_where_no_other_calls_them():
    made = two_steps()
    made.operator("Torch-Compiled Region: 0/0", (105, 90))
    made.operator("aten::linear", (110, 50))
    made.operator("aten::addmm", (120, 20))
    made.operator("autograd::engine::evaluate_function: ReluBackward0", (210, 50), thread=2)
    made.operator("ReluBackward0", (211, 40), thread=2)
    made.operator("aten::threshold_backward", (212, 10), thread=2)
    made.operator("own::op", (230, 5))
    found = counts(Facts(made.profile()))
    assert found == {
        "operators": {
            "aten::linear": (1, 0),
            "aten::threshold_backward": (0, 1),
            "own::op": (0, 1),
        }
    }


def test_what_is_allocated_counts_though_it_is_freed():
    made = two_steps()
    for at, size in ((110, 64), (120, -64), (130, 32), (210, 8)):
        made.row("memory", time_ns=1000 * at, bytes=size, device=UNKNOWN)
    made.row("memory", time_ns=220_000, bytes=512, device=0)
    found = counts(Facts(made.profile()))
    assert found == {"allocated_bytes": {"host": (96, 8), "GPU 0": (0, 512)}}


def test_nothing_is_counted_without_steps():
    made = Made()
    made.operator("aten::mm", (110, 30))
    assert counts(Facts(made.profile())) == {}
