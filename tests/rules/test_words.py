"""What rules advise: never what the program does already, nor of a kind of work that it has not."""

import re

import pytest

from gpuadvisor.domain.profile import Direction, Memory
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.catalogue import (
    allocator_churn,
    cuda_graphs,
    exposed_communication,
    exposed_copies,
    host_bound,
    input_bound,
    launch_bound,
    managed_memory,
    many_small_copies,
    pageable_copies,
    sync_in_loop,
    tail_effect,
    uneven_ranks,
)
from tests.profiles import Made
from tests.rules.building import timeline
from tests.rules.cases import cuda_graphs as graph_cases
from tests.rules.cases.exposed_copies import both_ways
from tests.rules.cases.straggler_rank import ranks
from tests.rules.cases.tail_effect import rounds
from tests.rules.cases.uneven_ranks import in_turns
from tests.rules.programs import Program

NCCL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"


def communicates(kernel, *operators):
    made = Made()
    for number in range(10):
        at = 1_000.0 * number
        for operator in operators:
            made.operator(operator, (at, 4))
        made.launched("gemm", call=(at, 2), runs=(at + 5, 700))
        made.launched(kernel, call=(at + 2, 2), runs=(at + 710, 250), stream=9)
    (found,) = exposed_communication.check(timeline(made))
    return found


BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


@pytest.mark.parametrize(
    ("kernel", "operators", "of_gradients"),
    [
        ("AllReduce_Sum_f32_RING_LL", (), True),
        ("AllReduce_Sum_f32_RING_LL", ("aten::mm", BACKWARD), True),
        ("AllReduce_Sum_f32_RING_LL", ("aten::mm",), False),
        ("SendRecv", (), False),
        ("SendRecv", (BACKWARD,), False),
        ("Generic_4", (), True),
    ],
)
def test_gradients_are_named_only_where_they_may_travel(kernel, operators, of_gradients):
    found = communicates(NCCL.format(kernel), *operators)
    assert ("backward pass" in found.advice) is of_gradients
    assert ("collectives" in found.summary) is of_gradients
    assert (found.knobs is None) is of_gradients


@pytest.mark.parametrize(
    ("pauses_us", "seldom"), [([0] * 9 + [20_000], True), ([2000] * 10, False)]
)
def test_a_pause_that_comes_once_is_told_as_such(pauses_us, seldom):
    program = Program()
    for number, pause in enumerate((*pauses_us, 0)):
        began = program.now
        program.works(pause)
        program.launches("kernel", runs=500, times=4)
        program.works(2000)  # the GPU is at it
        program.step(number, began)
    (found,) = host_bound.check(timeline(program.made))
    told = "most of that is in gaps that come once or twice, the longest of 2" in found.summary
    assert told is seldom


@pytest.mark.parametrize(
    ("computed_us", "told"),
    [
        ({"aten::sort": 1800}, ", mostly aten::sort"),
        ({"aten::sort": 100}, "% of that in no operator: in Python and what that"),
        ({"aten::copy_": 1100, "aten::add": 350, "aten::sort": 500}, ", aten::sort for 37%"),
    ],
)
def test_mostly_is_said_of_what_takes_most_of_the_time(computed_us, told):
    """What ran for a little of a pause that was else Python was named as what takes most of it."""
    program = Program()
    for number in range(6):
        began = program.now
        for name, us in computed_us.items():
            program.computes(name, us)
        program.works(2000 - sum(computed_us.values()))
        program.launches("kernel", runs=200, times=4)
        program.step(number, began)
    (found,) = host_bound.check(timeline(program.made))
    assert told in found.summary


def test_of_a_program_without_operators_its_own_ranges_or_samples_tell_what_the_cpu_does():
    for marked, sampled in ((True, False), (False, True), (False, False)):
        made = Made()
        for number in range(30):
            at = 1_000.0 * number
            made.launched("solve", call=(at, 5), runs=(at + 8, 200), grid_x=100)
            if marked:
                made.range("parses", (at + 210, 780))
            if sampled:
                made.row("samples", time_ns=round(1000 * (at + 500)), process=1, thread=1,
                         function="parse", module="app")  # fmt: skip
        (found,) = host_bound.check(timeline(made, source="nsys"))
        assert (", in parses for " in found.summary) is marked
        assert (", in parse in " in found.summary) is sampled
        assert ("Record what the CPU does" in found.advice) is not (marked or sampled)
        assert (found.saving.low_ns, found.knobs) == (0.0, ())


@pytest.mark.parametrize(
    ("operator", "knob"), [("aten::nonzero", None), ("Torch-Compiled Region: 0/0", "graphs")]
)
def test_what_is_compiled_is_not_to_be_compiled(operator, knob):
    program = Program()
    for number in range(10):
        began = program.now
        program.computes(operator, 3000)
        program.launches("kernel", runs=500, times=4)
        program.step(number, began)
    (found,) = host_bound.check(timeline(program.made))
    assert operator in found.summary
    assert ("reduce-overhead" in found.advice) is (knob is not None)
    assert ("compile_cudagraphs" in (found.knobs or ())) is (knob is not None)


@pytest.mark.parametrize("where", ["none", "operator", "range", "kernels", "few", "graphs"])
def test_a_compiled_model_is_not_advised_to_be_compiled(where):
    """Region by region, as an operator or as a range, or by the names of the kernels."""
    program = Program()
    for number in range(10):
        began = program.now
        name = f"triton_{number}" if where == "kernels" else f"kernel_{number}"
        if where == "graphs":
            program.replays(name, runs=3, kernels=20, op=100)
        program.launches(name, runs=3, times=8 + number, op=20)
        if where in ("operator", "graphs") or (where == "few" and number < 4):
            program.made.operator("Torch-Compiled Region: 0/0", (began, program.now - began))
        elif where == "range":
            program.marks("## Call CompiledFxGraph fxyz ##", began)
    (found,) = launch_bound.check(timeline(program.made))
    is_compiled = where in ("operator", "range", "kernels")
    assert ("compile the model" in found.advice) is (where in ("none", "few"))
    assert ("reduce-overhead" in found.advice) is is_compiled
    assert ("compile" in found.knobs) is (where in ("none", "few"))
    assert ("compile_cudagraphs" in found.knobs) is (where != "graphs")
    assert ("parts of CUDA graphs already" in found.program_advice) is (where == "graphs")


def test_who_launches_a_graph_does_not_launch_its_kernels():
    program = Program()
    for number in range(10):
        program.replays("node", runs=3, kernels=20, op=100)
        program.launches(f"kernel_{number}", runs=3, times=10, op=20)
    (found,) = launch_bound.check(timeline(program.made))
    assert "to launch its 100 kernels and 10 CUDA graphs (of 200 more) than they run" in (
        found.summary
    )


def test_launching_is_worth_no_more_at_the_least_than_the_gpu_is_idle_for_it():
    """In the first half of the run the host waits after each kernel, and launches then."""
    program = Program()
    for _ in range(500):
        program.launches("kernel", runs=2, op=60)
        program.item()
    program.launches("kernel", runs=2, times=500, op=60)
    evidence = timeline(program.made)
    (found,) = launch_bound.check(evidence)
    idle_for_it = ("gpu_idle_launching", "gpu_idle_other_host")
    idle_pct = sum(each.value for each in found.evidence if each.metric in idle_for_it)
    assert 0 < 100 * found.saving.low_ns / evidence.run_ns <= idle_pct


def brings_back(piece, call=""):
    """A kernel, and 64 MiB of results that go back to the host at 13 GB/s, in pieces."""
    made = Made()
    if call:
        made.call(call, (0, 5))
    made.launched("add", (10, 5), (20, 3_000))
    took = piece / 13e3
    for number in range((64 << 20) // piece):
        made.copy(
            (3_030 + number * took, took), direction=Direction.MIGRATION,
            source=Memory.DEVICE, destination=Memory.MANAGED, bytes=piece,
        )  # fmt: skip
    (found,) = managed_memory.check(timeline(made))
    return found


@pytest.mark.parametrize(
    ("piece", "call", "is_prefetched"),
    [
        (2 << 20, "cudaMemPrefetchAsync_v8000", True),
        (2 << 20, "", False),
        (64 << 10, "cudaMemPrefetchAsync_v8000", False),  # that was of other arrays
    ],
)
def test_what_is_prefetched_to_the_host_is_not_to_be_prefetched(piece, call, is_prefetched):
    found = brings_back(piece, call)
    assert ("cudaCpuDeviceId" in found.advice) is not is_prefetched
    assert ("the program prefetches" in found.summary) is is_prefetched
    assert ("only waits for pages" in found.summary) is not is_prefetched


@pytest.mark.parametrize(("piece", "may_wait"), [(64 << 10, True), (2 << 20, False)])
def test_a_kernel_that_faults_may_wait_for_more_pages_than_a_recording_has(piece, may_wait):
    """Pages that nobody touched before move nothing; those that are prefetched meanwhile do."""
    made = Made()
    made.launched("stencil", (0, 5), (10, 10_000))
    for number in range(60):
        made.copy(
            (5_000 + 10 * number, 8), direction=Direction.MIGRATION,
            source=Memory.MANAGED, destination=Memory.DEVICE, bytes=piece,
        )  # fmt: skip
    evidence = timeline(made)
    (found,) = managed_memory.check(evidence)
    assert (evidence.share(found.saving.high_ns) > 0.9) is may_wait
    assert ("are in no recording" in found.method) is may_wait
    assert (found.severity is Severity.NOTICE) is may_wait


@pytest.mark.parametrize(
    ("allocate", "free", "whose"),
    [
        ("cudaMalloc", "cudaFree", "GPU memory"),
        ("cudaHostAlloc", "cudaFreeHost", "pinned memory of the CPU"),
        ("cuMemHostAlloc", "cuMemFreeHost", "pinned memory of the CPU"),
        ("cudaMalloc", "cudaFreeHost", "memory of the GPU and pinned memory of the CPU"),
    ],
)
def test_pinned_memory_is_not_called_the_gpus_and_keeps_no_pool_of_it(allocate, free, whose):
    program = Program()
    for _ in range(8):
        program.allocates(300, call=allocate)
        program.launches("kernel", runs=200, times=4, op=20)
        program.allocates(300, free=True, call=free)
    program.launches("last", runs=10)
    (found,) = allocator_churn.check(timeline(program.made))
    assert found.summary.startswith(f"The run allocates or frees {whose} 15 times")
    of_gpu = "GPU" in whose
    assert ("empty_cache" in found.advice) is of_gpu
    assert ("cudaMallocAsync" in found.program_advice) is of_gpu
    assert (found.knobs is None) is of_gpu


def test_a_run_is_not_called_longer_by_the_share_that_it_would_save():
    """A run that would be shorter by three quarters is four times as long for what it does."""
    program = Program()
    for _ in range(8):
        program.allocates(600)
        program.launches("kernel", runs=200, op=20)
        program.allocates(600, free=True)
    program.launches("last", runs=10)
    (found,) = allocator_churn.check(timeline(program.made))
    saved = next(each for each in found.evidence if each.metric == "run_saved_without_them")
    assert saved.value > 50
    assert found.summary.endswith(f"and would be {saved.value:.0f}% shorter without these calls")


@pytest.mark.parametrize("rule", [pageable_copies, exposed_copies])
@pytest.mark.parametrize(
    ("passes", "runs", "severity"),
    [(1, 500, Severity.NOTICE), (1, 500_000, Severity.INFO), (4, 500, None)],
)
def test_copies_of_a_program_that_does_nothing_again_are_no_more_than_a_notice(
    rule, passes, runs, severity
):
    program, pinned = Program(), rule is exposed_copies
    for _ in range(passes):
        program.copies(64 << 20, 6, pinned=pinned)
        program.launches("kernel", runs=runs, op=20)
        program.copies(64 << 20, 6, pinned=pinned, to_host=True)
    (found,) = rule.check(timeline(program.made))
    assert found.severity == severity
    assert ("no kernel comes 3 times" in found.summary) is (severity is not None)


@pytest.mark.parametrize("rule", [pageable_copies, exposed_copies])
@pytest.mark.parametrize(
    ("back_mib", "told"),
    [(0, "only copies from "), (4, "only copies, mostly from "), (64, " and ")],
)
def test_copies_are_told_by_all_their_directions(rule, back_mib, told):
    program, pinned = Program(), rule is exposed_copies
    for _ in range(4):
        program.copies(64 << 20, 6, pinned=pinned)
        program.launches("kernel", runs=500, op=20)
        if back_mib:
            program.copies(back_mib << 20, 6, pinned=pinned, to_host=True)
    (found,) = rule.check(timeline(program.made))
    assert told in found.summary


@pytest.mark.parametrize(("copies", "severity"), [(1, Severity.NOTICE), (6, None)])
def test_a_program_that_only_copies_is_not_judged_by_one_copy(copies, severity):
    program = Program()
    for _ in range(copies):
        program.copies(512 << 20, 5)
    (found,) = pageable_copies.check(timeline(program.made))
    assert found.severity == severity


@pytest.mark.parametrize(
    ("kernel_us", "at_once", "low", "high"), [(5, False, 0.24, 0.485), (400, True, 0.0, 0.01)]
)
def test_copies_both_ways_are_worth_what_is_not_at_the_same_time_yet(kernel_us, at_once, low, high):
    """Where a link is full in both directions and kernels lie beside copies, nothing is left."""
    evidence = both_ways(kernel_us, at_once=at_once)
    (found,) = exposed_copies.check(evidence)
    assert re.search("only copies (to|from) the host and (to|from) the host", found.summary)
    assert "in both directions at once" in found.advice
    assert evidence.share(found.saving.low_ns) == pytest.approx(low, abs=0.01)
    assert evidence.share(found.saving.high_ns) == pytest.approx(high, abs=0.01)


@pytest.mark.parametrize(
    ("waits", "begins"),
    [(Program.waits, "Leave out calls that only synch"), (Program.item, "Fetch values from the")],
)
def test_only_who_fetches_values_is_told_to_fetch_them_later(waits, begins):
    program = Program()
    for _ in range(10):
        program.launches("kernel", runs=30, times=10, op=20)
        waits(program)
    (found,) = sync_in_loop.check(timeline(program.made))
    assert found.advice.startswith(begins)


@pytest.mark.parametrize(("kernels", "keeps"), [(1, False), (4, True)])
def test_more_allocations_than_kernels_are_of_no_allocator_that_keeps_memory(kernels, keeps):
    program = Program()
    for _ in range(8):
        program.allocates(300)
        program.launches("kernel", runs=200, times=kernels, op=20)
        program.allocates(300, free=True)
    program.launches("last", runs=10)
    (found,) = allocator_churn.check(timeline(program.made))
    assert ("hardly any memory is kept" not in found.advice) is keeps


def prepares():
    program = Program()
    for _ in range(4):
        program.works(4_000)
        program.copies(64 << 20, 6)
        program.launches("kernel", runs=500, op=20)
    return timeline(program.made)


def receives(us):
    """Batches, each received from another process for a part of the 4 ms before its copy."""
    program = Program()
    for _ in range(4):
        began = program.now
        program.works(us)
        if us:
            program.marks("MPI_Recv", began)
        program.works(4_000 - us)
        program.copies(64 << 20, 6)
        program.launches("kernel", runs=10)
    made = program.made
    made.rows["operators"].clear()
    return timeline(made, source="nsys")


@pytest.mark.parametrize(
    ("us", "told", "advice"),
    [
        (0, "; what the CPU does then was not recorded", "Record what"),
        (800, "MPI_Recv for 20% of it, and what else it does was not recorded", "Record what"),
        (3_200, "MPI_Recv for 80% of it, and what else it does was not recorded", "MPI_Irecv"),
    ],
)
def test_of_messages_that_were_recorded_it_is_not_said_that_nothing_was(us, told, advice):
    (found,) = input_bound.check(receives(us))
    assert told in found.summary
    assert advice in found.advice
    assert found.saving.low_ns == 0


def many():
    program = Program()
    for _ in range(5):
        for _ in range(40):
            program.works(10)
            program.copies(8, 1)
        program.launches("kernel", runs=100, times=10, op=5)
    return timeline(program.made)


@pytest.mark.parametrize(("rule", "made"), [(input_bound, prepares), (many_small_copies, many)])
def test_programs_that_are_none_of_pytorch_are_advised_in_their_own_words(rule, made):
    (found,) = rule.check(made())
    assert found.program_advice
    assert not {"DataLoader", "device='cuda'", "tensor"} & {*found.program_advice.split()}


@pytest.mark.parametrize("computes", [True, False])
def test_ranks_whose_gpus_are_idle_are_not_told_to_share_their_work(computes):
    (found,) = uneven_ranks.check(ranks(in_turns, computes=computes))
    assert ("alike work" in found.advice) is computes
    assert ("what holds up the CPU" in found.advice) is not computes
    assert (found.knobs == ()) is not computes


def test_a_step_of_one_kernel_has_no_kernels():
    (found,) = cuda_graphs.check(graph_cases.FIRES["one kernel"]())
    assert "the same kernel, 100% of the times shorter" in found.summary


# -- of counted kernels ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "resident", "words"),
    [
        (133, 1, "the GPU takes 132 at a time: 50% of the places in 2 rounds stay empty"),
        (133, 8, "which all run at once: 2 on some of the 132 multiprocessors and 1 on others"),
        (275, 3, "which all run at once: 3 on some of the 132 multiprocessors and 2 on others"),
    ],
)
def test_rounds_are_told_only_where_blocks_wait_for_others(blocks, resident, words):
    (found,) = tail_effect.check(rounds(blocks, 0.48, resident))
    assert words in found.summary
    waves = next(each.value for each in found.evidence if each.metric == "waves")
    assert waves == pytest.approx(blocks / (132 * resident), abs=0.01)
