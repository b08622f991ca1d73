"""What is said of a run's account: nothing is fine as long as the GPU is idle without a cause."""

import math
import re
from dataclasses import replace

import pytest

from gpuadvisor.domain.finding import Diagnosis, Scope, Span
from gpuadvisor.domain.profile import SYSTEM_CALLS, CallKind, Direction, Memory, Range
from gpuadvisor.reports.diagnosis import wording as diagnosis_wording
from gpuadvisor.reports.diagnosis.account import headline
from gpuadvisor.reports.diagnosis.document import diagnosis_lines, diagnosis_markdown
from gpuadvisor.reports.profile.document import profile_markdown
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.estimates import short
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.registry import load_rules
from tests.diagnoses import KERNEL as FINDING
from tests.diagnoses import diagnosis_report
from tests.profile_reports import report
from tests.profiles import Made
from tests.rules.building import H100
from tests.rules.counted import ELAPSED, HEALTHY, QUIET, kernel
from tests.rules.programs import Program


def said(profile):
    made = report(profile)
    diagnosis = diagnose(Evidence(Facts(profile)), load_rules())
    found = diagnosis_report(made, diagnosis, rules=load_rules())
    return found, "\n".join(line.text for line in diagnosis_lines(found))


def idle_for(share):
    """A GPU that waits for what was launched long before."""
    made = Made()
    for number in range(40):
        begin = 1000.0 * number
        made.launched("gemm", call=(0.1 * number, 0.1), runs=(begin + 10, 1000 * (1 - share)))
    return made.profile()


@pytest.mark.parametrize("share", [0.98, 0.95, 0.5, 0.2, 0.06])
def test_an_idle_gpu_is_never_met_with_silence(share):
    _, text = said(idle_for(share))
    assert "Nothing worth fixing" not in text
    assert "No rule found something to fix in the GPU's idle time" in text
    assert "unexplained: launched, but not begun" in text
    assert re.search(
        r"from [\d.]+ .s to [\d.,]+ .s after the recording began, between gemm and", text
    )
    assert "; the same gap comes 39 times (" in text


def test_of_several_gpus_the_one_that_stands_still_is_named():
    made = Made()
    for number in range(40):
        begin = 1000.0 * number
        made.launched("gemm", call=(begin, 1), runs=(begin + 5, 990))
        made.launched("gemm", call=(begin + 1, 1), runs=(begin + 7, 100), device=1)
    _, text = said(made.profile())
    assert "in which the GPUs were idle (their mean); the largest part" in text
    assert "Its longest gap, on GPU 1: " in text


def test_a_product_with_one_vector_is_not_called_a_product_of_matrices():
    made = Made()
    for number in range(40):
        made.launched("gemv2T_kernel_val", call=(100.0 * number, 1), runs=(100 * number + 5, 90))
    _, text = said(made.profile())
    assert "gemv2T_kernel_val (product with one vector) has " in text
    assert "is one kernel, gemv2T_kernel_val (product with one vector)." in text
    assert "The run's time: product with one vector " in text and "gemm" not in text


def test_several_products_with_one_vector_are_told_as_such_and_beside_another_product_as_gemms():
    alike = {f"gemv{each}_kernel_val": 300.0 for each in ("2N", "2T", "NSP")}
    lines = "\n".join(busy_with(alike))
    assert "ernels of the kind product with one vector, gemv2" in lines and "gemm" not in lines
    lines = "\n".join(busy_with({**alike, "sgemm_128x64_nn": 300.0}))
    assert " is kernels of the kind gemm, " in lines


def test_what_the_cpu_does_in_idle_time_without_a_finding_is_named():
    """Made and copied twice only: that is no finding, but no secret either."""
    program = Program()
    for _ in range(2):
        program.computes("aten::normal_", 50_000)
        program.copies(4 << 20, 12)
        program.launches("kernel", runs=100, times=10, op=5)
    _, text = said(program.made.profile())
    assert "other work of the CPU (aten::normal_ for " in text
    assert "names the line that does that" in text and "the same gap" not in text


@pytest.mark.parametrize("has_stacks", [True, False])
def test_the_line_that_waits_is_named_where_stacks_were_recorded_and_else_what_would(has_stacks):
    program = Program()
    for _ in range(2):
        program.launches("kernel", runs=300, times=10)
        program.waits()
        program.works(400)
    program.launches("kernel", runs=300)
    if has_stacks:
        program.made.range("train.py(3): main", (-5, program.now + 10), Range.PYTHON)
    _, text = said(program.made.profile())
    assert ("after the CPU waited (train.py:3 in main)" in text) is has_stacks
    assert ("names the line that waits" in text) is not has_stacks


def test_work_that_begins_late_by_alike_times_is_told_to_look_like_turns():
    made, at = Made(), 0.0
    for number in range(12):
        made.launched(f"kernel{number % 3}", call=(at, 5), runs=(at + 2300 + 10 * number, 3000))
        at += 5400 + 10 * number
    _, text = said(made.profile())
    assert "Another program may have had the GPU (" in text
    assert "ms late: so alike are the turns of programs that share a GPU)" in text


@pytest.mark.parametrize(("kernel", "is_asked_for"), [("redzone_checker", False), ("mine", True)])
def test_a_kernel_of_a_search_for_algorithms_is_not_to_be_counted(kernel, is_asked_for):
    made = Made()
    for number in range(9):
        made.launched(kernel, call=(100 * number, 5), runs=(100 * number + 8, 90))
    _, text = said(made.profile())
    assert ("hardware counters of the kernels with most time" in text) is is_asked_for


def test_a_busy_one_is_told_so_and_what_a_timeline_does_not_tell():
    _, text = said(idle_for(0.01))
    assert "No rule found a gain of 2 % or more of the run" in text
    assert "gemm (gemm) has 99.0 % of the run" in text and "No finding to fix is about" not in text


def counted(evidence):
    return said(evidence.facts.profile)[1]


def test_launches_too_small_to_judge_are_not_fine():
    text = counted(kernel(QUIET, grid=264, ms=0.0052))
    assert "Nothing worth fixing" not in text and "1 thing to fix." in text
    assert "100% of the captured kernel time" in text and "Profile a real problem size" in text


def test_small_launches_leave_the_kernel_with_most_of_the_time_to_be_told_of():
    made = Made()
    levels = {**HEALTHY, f"gpu__dram_throughput{ELAPSED}": 76.0}
    for number, (name, us, grid) in enumerate((("pass", 25, 9000), ("end", 2, 1), ("last", 2, 1))):
        made.kernel(
            name, (0, us), grid_x=grid, grid_y=1, grid_z=1, block_x=256, block_y=1, block_z=1
        )
        for metric, value in {**levels, "gpu__time_duration.sum": us / 1e6}.items():
            made.row("metrics", kernel=number, metric=metric, value=value)
    alone = {"kernels.begin_ns": "kernels ran one by one"}
    text = said(made.profile(source="ncu", devices=(H100,), not_measured=alone))[1]
    assert "2 kernels: 2 launches" in text and "pass has 86.2 % of the captured" in text
    assert "end has" not in text


LIMITERS = ("blocks", "registers", "shared_mem", "warps")


def alone(metrics):
    """A single kernel with blocks for a third of the GPU, of which no rule says something."""
    made = Made()
    made.kernel("tiny", (0, 3.2), grid_x=640, grid_y=1, grid_z=1, block_x=20, block_y=1, block_z=1)
    for name, value in metrics.items():
        made.row("metrics", kernel=0, metric=name, value=value)
    return said(made.profile(source="ncu", devices=(H100,)))[1]


def test_a_launch_has_its_time_and_what_its_blocks_fill():
    text = alone({
        "gpu__time_duration.sum": 3.2e-6, f"sm__throughput{ELAPSED}": 0.1,
        **{f"launch__occupancy_limit_{what}": 16.0 for what in LIMITERS},
    })  # fmt: skip
    assert "A launch takes 3.20 µs" in text and "0.0 s" not in text
    assert "Its 640 blocks fill 30.3" in text


def test_a_report_in_which_nothing_was_counted_says_so():
    text = alone({"nvlink__bandwidth": 0.0, "gpu__time_duration.sum": math.nan})
    assert "neither the time of its kernel nor how busy a unit was" in text.splitlines()[1]
    text = alone({"gpu__time_duration.sum": 3.2e-6, f"sm__throughput{ELAPSED}": 0.1})
    assert "neither the time" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("void reduce_kernel<(int)512, Op<float>>(T1)", "reduce_kernel<(int)512, Op<float>>"),
        ("gemm(float*, int)", "gemm"),
        ("plain", "plain"),
    ],
)
def test_a_name_ends_at_its_arguments_and_not_at_a_bracket_of_its_template(name, words):
    assert short(name) == words


def test_a_kernel_at_the_roof_of_memory_is_not_said_to_need_all_its_bytes():
    text = counted(kernel())
    assert "Nothing worth fixing" not in text and "nothing to gain" not in text
    assert "No rule found a gain of 2 % or more of the captured kernel time" in text
    assert "faster only with fewer bytes" in text


def test_of_kernels_counted_one_by_one_the_longest_is_named():
    strided = {f"l1tex__throughput{ELAPSED}": 10.0, **QUIET}
    text = counted(kernel(strided, beside_ms=1000.0))
    assert "beside has 99.9 % of the captured kernel time; no rule can tell a gain." in text
    assert "1 thing to fix." not in text
    assert "beside has" not in counted(kernel(strided, beside_ms=0.001))


STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


@pytest.mark.parametrize(("levels", "told", "missing"), [
    ({"l1tex__throughput": 99.0, "l1tex__data_pipe_lsu_wavefronts": 99.0},
     "What limits it is the L1 cache, at 99.0 % of its peak (its data stage",
     "section MemoryWorkloadAnalysis_Tables"),
    ({"l1tex__throughput": 67.0}, "Its busiest unit is the L1 cache, at 67.0 %",
     "section WarpStateStats"),
    ({"l1tex__throughput": 25.0}, "No unit that was counted is busier than 25.0 %",
     "section WarpStateStats"),
    ({"l1tex__throughput": 25.0, STALLED.format("barrier"): 45.0},
     "Its warps wait longest at barriers, 45.0 %", None),
])  # fmt: skip
def test_a_kernel_without_finding_is_not_fine_its_levels_are_said(levels, told, missing):
    quiet = {name: value for name, value in QUIET.items() if "stalled" not in name}
    named = {name if "." in name else f"{name}{ELAPSED}": value for name, value in levels.items()}
    text = counted(kernel({**quiet, **named}, without="stalled_long"))
    assert told in text
    assert ("The report does not tell" in text) == (missing is not None)
    assert missing is None or missing in text


def test_a_kernel_whose_time_was_not_counted_may_matter_most():
    def with_untimed(name):
        return kernel(QUIET, {"sm__cycles_active.avg": 980_000.0}, beside_ms=0.5, untimed=name)

    assert "critical: imbalance" in counted(with_untimed(""))
    text = counted(with_untimed("main_kernel"))
    assert "main_kernel was captured, but its time was not counted" in text
    assert "notice: imbalance" in text and "of all that was captured" not in text


RANDOM = "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float, 4>(long)"


@pytest.mark.parametrize(("name", "other_ms", "is_told"), [
    (RANDOM, 0.0, True),
    (RANDOM, 0.001, True),
    (RANDOM, 1000.0, False),
    ("generate_seed_pseudo", 0.0, True),
    ("void at::native::vectorized_elementwise_kernel<4, NormFunctor>()", 0.0, False),
    ("random_access_kernel", 0.0, False),  # a program's own
    ("estimate(float *, curandStateXORWOW *)", 0.0, False),  # it computes with them
])  # fmt: skip
def test_of_kernels_that_only_make_random_numbers_the_first_line_says_so(name, other_ms, is_told):
    text = counted(kernel(QUIET, name=name, **({"beside_ms": other_ms} if other_ms else {})))
    assert ("fills tensors with random numbers" in text.splitlines()[1]) == is_told


def test_no_gpu_is_not_fine():
    made = Made()
    made.operator("aten::mm", (0, 100))
    _, text = said(made.profile())
    assert "Nothing worth fixing" not in text


@pytest.mark.parametrize("share", [0.98, 0.5, 0.01])
def test_no_two_figures_of_a_page_contradict_each_other(share):
    found, text = said(idle_for(share))
    account = found.profile.facts.account
    busy = sum(account.share(each) for each in account.entries if each.kind == "useful")
    told = [float(each) for each in re.findall(r"busy ([\d.]+) % of the run", text)]
    page = profile_markdown(found.profile)
    told += [float(each) for each in re.findall(r"([\d.]+) % of the run the GPU was busy", page)]
    told += [float(each) for each in re.findall(r"busy, together \| ([\d.]+) %", page)]
    assert len(told) == 3
    assert told == pytest.approx([100 * busy] * 3, abs=0.06)
    # Times of the host's steps and kernels' shares of the kernels' time are told as such.
    (idle,) = re.findall(r"It was idle for ([\d.]+) %", page)
    assert float(idle) == pytest.approx(100 * (1 - busy), abs=0.06)
    parts = [float(each) for each in re.findall(r"([\d.]+) %", diagnosis_wording.account(found)[0])]
    assert sum(parts) == pytest.approx(100, abs=0.06 * len(parts))
    assert diagnosis_wording.account(found)[0] in diagnosis_markdown(found)


def test_what_a_finding_claims_is_named_with_it_and_not_unexplained():
    made = Made()
    for number in range(60):  # a host that needs 40 us for each launch of 10 us of work
        made.launched("gemm", call=(50 * number, 5), runs=(50 * number + 8, 10))
    found, text = said(made.profile())
    assert found.worth_fixing[0].rule == "launch_bound"
    assert "idle: CPU is launching 79.7 % (launch_bound)" in text
    assert "No finding to fix is about" not in text
    told = {each.metric: each.value for each in found.worth_fixing[0].evidence}
    assert told["gpu_idle_launching"] == 79.7  # the finding's own figure is the account's


def test_steps_between_calls_of_an_optimizer_are_one_more_than_lie_between_them():
    made = Made()
    for number in range(4):
        made.launched("gemm", call=(1000 * number, 5), runs=(1000 * number + 8, 900))
        made.range("Optimizer.step#SGD.step", (1000 * number + 910, 20))
    assert said(made.profile())[1].startswith("train: 4 steps in 3.92 ms")


def rare(calls=0.0, copies=1_000.0):
    """Copies and kernels of 100 us with half a second between each, in which calls may last."""
    made = Made()
    for number in range(4):
        at = 500_000.0 * number
        made.copied((at, 5), (at + 10, copies), bytes=1 << 12)  # too few to be a batch
        made.launched("add", (at + 10, 5), (at + 10 + copies, 100))
        if calls:
            made.call("cudaStreamQuery", (at + 20_000, calls))
    return made.profile(source="nsys", devices=(H100,))


def waits_in(name, us, thread=1):
    """A GPU that is idle for 900 us each millisecond, as the CPU is in a call for so many."""
    made = Made()
    for number in range(20):
        at = 1_000.0 * number
        made.launched("solve", (at, 5), (at + 8, 92))
        made.range(name, (at + 100, us), Range.SYSTEM, thread=thread)
    recorded = {SYSTEM_CALLS: "recorded"}
    return said(made.profile(source="nsys", devices=(H100,), facts=recorded))[1]


def test_waiting_in_the_operating_system_explains_idle_time():
    text = waits_in("poll", 850)
    assert "The CPU is in no call into CUDA then. Of its own time the CPU is in calls of" in text
    assert "operating system: poll 94.4 % (waits for a file, a pipe, a socket," in text
    assert "--trace=cuda,nvtx,osrt" not in text and "--sample" not in text
    text = waits_in("fwrite_unlocked", 850)
    assert "system: fwrite_unlocked 94.4 %." in text and "(waits for" not in text


def test_little_of_it_leaves_the_cpu_computing_and_the_recording_is_not_asked_for_again():
    text = waits_in("pwrite", 90)
    assert "were recorded take 10.0 % of the CPU's own time (pwrite): else it computes" in text
    assert "the CPU does then (nsys profile --sample=process-tree PROGRAM)" in text
    assert "--trace=cuda,nvtx,osrt" not in text
    text = waits_in("poll", 850, thread=2)
    assert "No call into the operating system was recorded in its own time: it" in text
    assert "--trace=cuda,nvtx,osrt" not in text


def executes(samples, module="libparse.so"):
    """A GPU that is idle for 900 us each millisecond, in some of which the CPU was sampled."""
    made = Made()
    for number in range(60):
        at = 1_000.0 * number
        made.launched("solve", (at, 5), (at + 8, 92))
        if number < samples:
            made.row("samples", time_ns=round(1000 * (at + 500)), process=1, thread=1,
                     function="parse", module=module)  # fmt: skip
    return said(made.profile(source="nsys", devices=(H100,)))[1]


def test_samples_of_the_cpu_say_what_it_executes_and_are_not_asked_for():
    text = executes(50)
    assert "Of 50 samples of the launching thread in its own time, 93 to 100 % are in" in text
    assert "in libparse.so; by function, 93 to 100 % are in parse of libparse.so. Samp" in text
    assert "--sample" not in text
    assert "libcupti.so.12 (of the profiler)" in executes(50, "libcupti.so.12")


def test_few_samples_are_told_once_and_none_are_asked_for():
    text = executes(3)
    assert text.count("too few to tell") == 1 and "in that time: 3, too few" in text
    assert "libparse" not in text
    text = executes(0)
    assert "amples of" not in text and "--sample=process-tree" in text


@pytest.mark.parametrize(("calls", "is_quiet"), [(0.0, True), (1_000.0, True), (400_000.0, False)])
def test_a_cpu_that_makes_no_call_then_is_told_so(calls, is_quiet):
    text = said(rare(calls))[1]
    assert "CPU in no call into CUDA" in text or not is_quiet
    if is_quiet:
        assert re.search("he CPU is in no call into CUDA( then|[.]$)", text, re.M)
    else:
        assert "The CPU is in no call into CUDA then" not in text


def test_a_gpu_that_mostly_copies_is_told_so():
    assert (
        "of the time in which the GPU works it only copies (4.00 ms, mostly host" in said(rare())[1]
    )
    assert "it only copies" not in said(rare(copies=50.0))[1]


@pytest.mark.parametrize(("kernel_us", "is_full"), [(400, True), (990, False), (5, False)])
def test_copies_that_run_all_the_time_are_only_shortened_by_fewer_bytes(kernel_us, is_full):
    made = Made()
    for at in range(0, 20_000, 1_000):
        made.copied((at - 10, 2), (at, 990), stream=9, bytes=12_000_000)
        made.launched("kernel", (at - 3, 2), (at, kernel_us))
    text = said(made.profile(source="nsys", devices=(H100,)))[1]
    assert ("run for 99.0 % of the run, in part beside kernels: more of that" in text) is is_full
    assert ("or work that goes on meanwhile" in text) is (kernel_us == 5)


def busy_with(kernels_us, copies_us=0.0, fills_us=0.0, gpus=1, times=20):
    """GPUs that do the same things again and again."""
    made = Made()
    for device in range(gpus):
        at = 0.0
        for _ in range(times):
            for name, us in kernels_us.items():
                if us:
                    made.launched(name, (at, 2), (at + 4, us), device=device)
                    at += us + 4
            for us, more in ((copies_us, {}), (fills_us, FILL)):
                if us:
                    made.copied((at, 2), (at + 4, us), device=device, bytes=1 << 20, **more)
                    at += us + 4
    return said(made.profile(devices=(H100,)))[1].splitlines()


FILL = {"direction": Direction.MEMSET, "source": Memory.NOT_KNOWN}


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (({"solve": 900.0, "other": 50.0},), "one kernel, solve."),
        (({"one": 300.0, "two": 300.0, "three": 300.0},), "do not tell what they do"),
        (({"solve": 50.0}, 0.0, 900.0), "setting memory only"),
        (({"solve": 10.0}, 900.0), "copying only"),
    ],
)
def test_the_largest_part_of_a_run_heads_the_page(run, words):
    outcome = next(line for line in busy_with(*run) if line.startswith("The GPU was busy"))
    assert re.search(r"The largest part of the run, \d\d\.\d %, is .*" + re.escape(words), outcome)


def test_of_a_finding_about_the_largest_part_no_other_line_comes_first():
    _, text = said(waits_for_batches())
    assert "1. critical: input_bound" in text and "The largest part" not in text


def waits_for_batches():
    program = Program()
    for _ in range(10):
        program.loads(5_000)
        program.launches("kernel", runs=100, times=5, op=5)
    return program.made.profile(devices=(H100,))


def test_time_in_calls_that_pin_memory_is_not_called_allocation_on_the_gpu():
    made = Made()
    for number in range(20):
        at = 1_000.0 * number
        made.call("cudaHostAlloc", (at, 700), CallKind.ALLOCATE)
        made.launched("solve", (at + 710, 5), (at + 720, 270))
    _, text = said(made.profile(source="nsys", devices=(H100,)))
    assert "idle: memory is allocated or freed" in text
    assert "GPU memory is allocated" not in text and "frees GPU memory" not in text


def test_memory_that_is_set_is_told_apart_from_copies():
    lines = busy_with({"solve": 50.0}, 5.0, 900.0)
    told = next(line for line in lines if line.startswith("For "))
    assert "it only sets memory (18.0 ms, mostly memset: 20 times, 20.0 MiB" in told
    assert not any("only copies" in line for line in lines)
    assert any("Setting less memory" in line for line in lines)


def test_the_time_of_two_gpus_is_never_more_than_the_run():
    lines = busy_with({"solve": 20.0}, 900.0, gpus=2)
    (told,) = (line for line in lines if line.startswith("For "))
    assert "(18.0 ms on each of 2 GPUs, on average" in told and "takes 400 µs" in told


@pytest.mark.parametrize(("mib", "beyond"), [(64, True), (1, False)])
def test_a_gain_that_is_only_remarked_is_not_denied(mib, beyond):
    """Copies around a kernel that comes once: a remark, however much of the run they are."""
    program = Program()
    program.copies(mib << 20, 6)
    program.launches("kernel", runs=60_000)
    text = said(program.made.profile())[1]
    told = "No rule found a gain of 2 % or more of the run"
    assert told in text
    assert (f"{told} beyond what is only remarked (pageable_copies)" in text) is beyond


def late(**kernel):
    """A GPU that is slow to begin what was launched long before."""
    made = Made()
    for number in range(40):
        at = 1_000.0 * number
        made.launched(kernel.get("name", "gemm"), (0.1 * number, 0.1), (at + 10, 500),
                      **({"graph_node": 5} if "graph" in kernel else {}))  # fmt: skip
    made.call("cudaDeviceSynchronize", (10, 39_600), CallKind.SYNCHRONIZE)
    return said(made.profile(source="nsys", devices=(H100,)))[1]


@pytest.mark.parametrize(
    ("name", "thread", "told"),
    [
        ("<built-in function sleep>", 1, "of it), which waits for a time to pass"),
        ("<built-in method read of _io.FileIO object at 0x7f>", 1, "Python's FileIO.read then"),
        ("<built-in function sleep>", 2, None),  # of a thread that launches nothing
        ("train.py(3): load", 1, None),
    ],
)
def test_a_function_in_which_python_waits_while_the_gpu_is_idle_is_named(name, thread, told):
    made = Made()
    for number in range(2):
        at = 12_000.0 * number
        made.launched("gemm", (at, 5), (at + 8, 1_000))
        made.range(name, (at + 1_100 + number, 10_500), Range.PYTHON, thread=thread)
        made.range("train.py(9): main", (at, 11_900), Range.PYTHON)
    text = said(made.profile())[1]
    assert "other work of the CPU" in text
    assert ("Python's" in text) is (told is not None)
    assert told is None or told in text


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.mark.parametrize(
    ("kernel", "graphs", "gpus"),
    [({}, False, False), ({"graph": True}, True, False), ({"name": NCCL}, False, True)],
)
def test_what_kept_work_from_beginning_is_no_graph_or_gpu_that_is_not_there(kernel, graphs, gpus):
    text = late(**kernel)
    assert ("ernels of CUDA graphs may be missing" in text) is graphs
    assert ("nother GPU may have been waited for" in text) is gpus
    assert ("nother program may have had the GPU" in text) is not (graphs or gpus)
    assert "The CPU is in cudaDeviceSynchronize then." in text


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ((), "The recording has no calls into CUDA, which `nsys profile --trace=cuda PROGRAM`"),
        (
            range(30, 40),
            "A recording that begins some steps earlier has the launches, and what the CPU did"
            " then.",
        ),
        (range(0, 40, 4), "The recording lacks the calls that launched what came next."),
    ],
)
def test_what_launched_something_is_not_sought_where_it_cannot_be(calls, words):
    made = Made()
    for number in range(40):
        at = 2_000.0 * number
        if number in calls:
            made.launched("gemm", (at, 5), (at + 10, 1_000))
        else:
            made.kernel("gemm", (at + 10, 1_000))
    assert words.replace("`", "") in said(made.profile(source="nsys", devices=(H100,)))[1]


@pytest.mark.parametrize(
    ("operator", "is_of_gpu"),
    [
        ("aten::cudnn_convolution", True),
        ("aten::_cudnn_rnn", True),
        ("aten::miopen_convolution", True),
        ("aten::cudnn_is_acceptable", False),
        ("aten::conv2d", False),
    ],
)
def test_operators_of_a_gpu_did_not_run_without_one(operator, is_of_gpu):
    made = Made()
    made.operator("aten::conv2d", (0, 100))
    made.operator(operator, (10, 50))
    _, text = said(made.profile())
    assert ("without a GPU" not in text) is is_of_gpu
    assert ("ProfilerActivity.CUDA" in text) is is_of_gpu
    assert ("on a machine with a GPU" not in text) is is_of_gpu


@pytest.mark.parametrize(
    ("blocks", "runs_us", "kernels_each", "is_told"),
    [
        (1, 15, 1, True),
        (131, 15, 1, True),
        (132, 15, 1, False),  # one for each multiprocessor
        (1, 60, 1, False),  # long enough for a finding
        (1, 0.5, 1, False),  # little of the run
        (1, 15, 2, False),  # others run beside them
    ],
)
def test_short_launches_of_few_blocks_are_said_to_leave_the_gpu_empty(
    blocks, runs_us, kernels_each, is_told
):
    made = Made()
    shape = {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "xyz"}
    shape |= {"block_x": 128, "registers": 32, "shared_bytes": 0}
    for number in range(100):
        at = 60.0 * number
        for stream in range(kernels_each):
            runs = (100 + at, runs_us)
            made.launched("solve", (at, 1), runs, **{**shape, "grid_x": blocks, "stream": stream})
    made.launched("large", (6_000, 1), (6_100, 1_000), **{**shape, "grid_x": 500})
    _, text = said(made.profile(source="nsys", devices=(H100,)))
    told = "Launches with fewer blocks than the GPU has multiprocessors (132) are "
    assert (told in text) is is_told


@pytest.mark.parametrize("direction", [Direction.PEER_TO_PEER, Direction.MEMSET])
def test_a_gpu_that_only_moved_data_was_there(direction):
    """No kernel and no description of a GPU: what it did beside kernels is work of one as well."""
    made = Made()
    for number in range(4):
        made.copy((1_000.0 * number, 990), bytes=1 << 20, direction=direction)
    _, text = said(made.profile())
    assert "The GPU was busy" in text
    assert "without a GPU" not in text


@pytest.mark.parametrize(
    "launch", ["hipLaunchKernel", "hipExtModuleLaunchKernel", "cudaLaunchKernel"]
)
def test_no_tool_of_nvidia_is_advised_for_a_gpu_of_amd(launch):
    made = Made()
    for number in range(20):
        at = 1_000.0 * number
        made.kernel("Cijk_gemm", (at + 10, 990), correlation=number)
        made.call(launch, (at, 5), CallKind.LAUNCH, correlation=number)
    _, text = said(made.profile())
    of_amd = launch.startswith("hip")
    assert ("profile --ncu" not in text) is of_amd
    assert ("daemon start" not in text) is of_amd
    assert ("rocprof-compute" in text) is of_amd


def of_finding(parts, span, kernel_us=600.0):
    """A run of one kernel, and copies for the rest, with a finding about a part of it."""
    made = Made()
    for number in range(20):
        at = 1_000.0 * number
        made.launched("solve", (at, 2), (at + 4, kernel_us))
        made.copied((at, 2), (at + 4 + kernel_us, 990 - kernel_us), bytes=1 << 20)
    finding = replace(FINDING, parts=parts, improvement_pct=Span(*span), scope=Scope())
    diagnosis = Diagnosis((finding,))
    return headline(Facts(made.profile()).account, diagnosis)


@pytest.mark.parametrize(
    ("parts", "span", "told"),
    [
        (("copy/exposed",), (6.0, 12.0), "no finding to fix is about it"),
        (("copy/exposed",), (30.0, 38.0), None),  # of the same weight
        (("kernel/solve",), (3.0, 4.0), None),
        ((), (3.0, 4.0), "no finding to fix is about it"),
    ],
)
def test_a_lesser_finding_does_not_hide_the_largest_part(parts, span, told):
    words = of_finding(parts, span)
    assert (words is None) is (told is None)
    assert told is None or f"one kernel, solve; {told}" in words


def test_a_finding_about_some_of_the_largest_kernels_is_told_with_its_part_of_them():
    made = Made()
    for number in range(20):
        for place, (name, us) in enumerate((("solve", 400.0), ("scan", 350.0), ("sort", 240.0))):
            at = 1_000.0 * number + 330 * place
            made.launched(name, (at, 2), (at + 4, us * 0.8))
    finding = replace(FINDING, parts=("kernel/scan",), improvement_pct=Span(3, 4), scope=Scope())
    words = headline(Facts(made.profile()).account, Diagnosis((finding,)))
    assert "solve first; finding 1 is about 35.4 % of it" in words


def test_idle_time_that_may_be_a_start_heads_no_page():
    account = Facts(idle_for(0.9)).account
    assert "idle time (launched, but not begun)" in headline(account, None)
    assert headline(account, None, with_idle=False) is None
