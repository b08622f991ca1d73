"""What is computed only to be fetched goes with the fetch."""

from dataclasses import replace

from gpuadvisor.domain.profile import CallKind, Direction, Memory, Range
from gpuadvisor.rules.catalogue import sync_in_loop
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made
from tests.rules.building import timeline
from tests.rules.lacking import Lacking
from tests.rules.programs import Program

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


def looped(fetches, between_us=0.0, marked=True):
    """Three steps of a product whose elements are fetched one by one, with an operator of the CPU
    that lasts so long after each; steps are marked or not."""
    ran = Program()
    for _ in range(3):
        began = ran.now
        ran.launches("product", runs=400)
        for _ in range(fetches):
            ran.item()
            if between_us:
                ran.computes("aten::sort", between_us)
        if marked:
            ran.made.range("ProfilerStep#0", (began, ran.now - began), Range.STEP)
    ran.launches("last", runs=10)
    return timeline(ran.made)


def saved(evidence):
    """Return the least and the most of the run that the finding says is saved."""
    (said,) = sync_in_loop.check(evidence)
    return said.saving.low_ns / evidence.run_ns, said.saving.high_ns / evidence.run_ns, said.advice


def test_a_loop_that_fetches_one_by_one_is_saved_but_for_one_fetch():
    evidence = looped(60)
    low, high, advice = saved(evidence)
    busy = evidence.known_facts.window.busy_share
    # Were all fetched at once, the products were all that is left, and they take 400 us each.
    left = 3 * 400e3 / evidence.run_ns
    assert low >= 0.8 * (1 - busy) * 0.9
    assert low <= 1 - left <= high
    assert "at once" in advice


def test_fetches_in_a_row_are_a_loop_where_no_steps_are_marked():
    marked, bare = looped(60), looped(60, marked=False)
    assert saved(bare)[0] >= 0.9 * saved(marked)[0]
    assert "at once" in saved(bare)[2]


def test_two_fetches_in_a_row_are_no_loop_where_no_steps_are_marked():
    assert "at once" in saved(looped(3, marked=False))[2]
    assert "at once" not in saved(looped(2, marked=False))[2]


def test_a_loop_of_fetches_is_told_first_only_where_most_waits_are_of_one():
    ran = Program()
    for number in range(40):
        ran.launches("product", runs=100, times=3)
        for _ in range(3 if number % 10 == 0 else 1):
            ran.item()
    ran.launches("last", runs=10)
    assert "at once" not in saved(timeline(ran.made))[2]


def test_a_program_that_is_none_of_pytorch_is_not_told_in_its_words():
    (said,) = sync_in_loop.check(looped(60))
    assert "tolist" in said.advice and "at once; fetch values" in said.program_advice


def test_single_fetches_are_none_where_no_steps_are_marked():
    ran = Program()
    for _ in range(20):
        ran.launches("product", runs=100, times=3)
        ran.item()
    ran.launches("last", runs=10)
    (said,) = sync_in_loop.check(timeline(ran.made))
    assert "at once" not in said.advice


def test_long_work_between_fetches_may_be_what_they_are_for():
    assert not list(sync_in_loop.check(looped(60, between_us=2000)))


def test_one_fetch_a_step_is_not_a_loop():
    assert "at once" not in saved(program(fetches=1))[2]


def test_without_operators_waits_are_told_and_nothing_that_is_computed_for_them():
    evidence = program()
    less = replace(evidence, facts=Facts(Lacking(evidence.known_facts.profile, "operators")))
    assert kernels(less)[0] == [] and saved(less)[1] < saved(evidence)[1]
