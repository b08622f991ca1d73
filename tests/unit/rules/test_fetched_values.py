"""What is computed only to be fetched goes with the fetch."""

from gpuadvisor.domain.profile import CallKind, Direction, Memory, Range
from gpuadvisor.rules.catalogue import sync_in_loop
from tests.profiles import Made
from tests.rules.building import timeline

NORM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, NormTwoOps> >(int)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT"


def program(operator="aten::linalg_vector_norm", name=NORM, fetches=4, elsewhere=0):
    """Three steps of a product, and of some values that are fetched one by one."""
    made, at, free = Made(), 10.0, 0.0

    def launch(kernel, took, by):
        nonlocal at, free
        made.operator(by, (at - 2, 12))
        free = max(free, at + 6)
        made.launched(kernel, (at, 4), (free, took))
        free += took
        at += 15

    for step in range(3):
        began = at
        launch(GEMM, 100, "aten::addmm")
        for _ in range(elsewhere):
            launch(name, 20, operator)
            launch(GEMM, 10, "aten::addmm")
        for _ in range(fetches):
            launch(name, 20, operator)
            free = max(free, at + 6)
            made.copied(
                (at, 4), (free, 2), bytes=4, direction=Direction.DEVICE_TO_HOST,
                source=Memory.DEVICE, destination=Memory.PAGEABLE,
            )  # fmt: skip
            free += 2
            made.call("cudaStreamSynchronize", (at + 5, free - at - 4), CallKind.SYNCHRONIZE)
            at = free + 5
        made.range(f"ProfilerStep#{step}", (began - 5, at - began), Range.STEP)
    launch(GEMM, 100, "aten::addmm")
    return timeline(made)


def kernels(evidence):
    """Return the names of the kernels that the finding is about, and the sentence on its worth."""
    (said,) = sync_in_loop.check(evidence)
    parts = [each.removeprefix("kernel/") for each in said.saving.parts if "kernel/" in each]
    return parts, said.method


def test_norms_that_are_fetched_one_by_one_are_saved_with_their_fetches():
    names, method = kernels(program())
    assert names == [NORM]
    assert "nowhere else" in method


def test_what_is_computed_elsewhere_too_is_needed():
    assert kernels(program(elsewhere=8))[0] == []


def test_a_product_is_needed_however_it_is_fetched():
    assert kernels(program("aten::addmm", GEMM))[0] == []


def test_one_value_a_step_is_needed():
    assert kernels(program(fetches=1))[0] == []
