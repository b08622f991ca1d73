"""What `gpuadvisor diagnose` says on the terminal, to the letter."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gpuadvisor.domain.finding import Diagnosis, Place, Scope, ScopeKind, Span
from gpuadvisor.domain.profile import (
    CUT_OFF,
    FAILED_CALLS,
    LOST,
    CallKind,
    FailedCalls,
    failed_calls_told,
)
from gpuadvisor.domain.severity import Severity
from gpuadvisor.reports.diagnosis import finding as finding_wording
from gpuadvisor.reports.diagnosis import wording
from gpuadvisor.reports.diagnosis.document import diagnosis_lines, print_diagnosis
from gpuadvisor.reports.render_text import Line, wrapped
from tests.diagnoses import (
    DIAGNOSIS,
    GEMM,
    INPUT,
    KERNEL,
    NOTHING,
    REMARK,
    RULES,
    SYMPTOM,
    diagnosis_report,
    of_telemetry,
)
from tests.profile_reports import HOSTILE, counted, empty, report, whole
from tests.profiles import Made

PIPED = """\
train: 4 steps in 4.00 ms on NVIDIA H100 80GB HBM3, recorded with torch 2.8
The GPU was busy 34.0 % of the run. 2 things to fix, together worth 37 to 65 % of the run.
The run's time: other 20.0 %, communicating only 10.0 %, copying only 4.0 %, idle: CPU is launching\
 7.0 %, idle: waiting for data 30.0 % (input_bound), idle: other work of the CPU 24.2 %, idle:\
 nothing more to do 4.8 %.
No finding to fix is about 36.0 % of the run, in which the GPU was idle; the largest part is 24.2\
 %, other work of the CPU. Its longest gap: 502 µs, from 810 µs to 1.31 ms after the recording\
 began, between ncclDevKernel_AllReduce_Sum_f32 and copy host to device; the same gap comes 3\
 times (502 µs each, 58.8 % of it). gpuadvisor profile --stacks SCRIPT shows what the CPU does\
 then.

1. critical: input_bound
   The GPU is idle for 61% of the run because the script waits for its next batch.
   where     the run, train.py:42
   evidence  gpu_idle_waiting_for_data 61.2 % (threshold 2 %)
             workers 0
   worth     32 to at most 61 % of the run, about 1.84 ms of 4.00 ms
             At most all of the waiting.
   do        Load batches in more worker processes.
   try       gpuadvisor tune SCRIPT --only dataloader_workers
             then pin_memory or prefetch_factor

2. warning: uncoalesced_loads
   The kernel reads 32 bytes for each 4 that it uses.
   where     kernel cutlass::Kernel
   evidence  bytes_read 768 MiB
             pattern strided
   worth     10 to 14 % of the run, about 480 µs of 4.00 ms
             What is left at the DRAM roof.
   do        Let neighbouring threads read neighbouring places.

Not shown: 1 symptom of another finding (launch_bound of input_bound), 1 remark; --all shows them.

Not measured, so not known (3 rules could not look):
   gpuadvisor profile --ncu SCRIPT: tail_effect and divergence (no hardware counters of kernels)
   gpuadvisor profile SCRIPT: memory_growth (the profile has no memory)
The rule broken failed: ZeroDivisionError: of zero

Why, and how it is estimated: gpuadvisor explain input_bound
"""
ALL = """\
Symptoms of other findings:
   launch_bound, of input_bound: The host launches late (the run)

Good to know:
   memory_room: Half of the GPU's memory is free (the run)

Not measured, so not known (3 rules could not look):
   gpuadvisor profile --ncu SCRIPT:
      no hardware counters of kernels (2 rules): tail_effect, divergence
   gpuadvisor profile SCRIPT:
      the profile has no memory (1 rule): memory_growth
"""
NARROW = """\
1. critical: input_bound
   The GPU is idle for 61% of the run because the
   script waits for its next batch.
   where     the run, train.py:42
   evidence  gpu_idle_waiting_for_data 61.2 %
             (threshold 2 %)
             workers 0
"""


def printed(diagnosed, *, everything=False, **console):
    file = io.StringIO()
    options = {"width": 50, "highlight": False, "color_system": None, **console}
    print_diagnosis(Console(file=file, **options), diagnosed, everything)
    return file.getvalue()


def said(diagnosed):
    return "\n".join(line.head + line.text for line in diagnosis_lines(diagnosed))


def of(profile, diagnosis=DIAGNOSIS, **more):
    return diagnosis_report(report(profile), diagnosis, **more)


def test_piped_it_is_plain_and_not_wrapped():
    assert printed(of(whole())) == PIPED


def test_all_of_it_where_that_is_asked_for():
    assert ALL in printed(of(whole()), everything=True)


def test_on_a_terminal_it_is_wrapped_below_its_labels():
    assert NARROW in printed(of(whole()), force_terminal=True)


def test_what_one_can_type_is_never_wrapped():
    text = printed(of(whole()), force_terminal=True)
    assert "try       gpuadvisor tune SCRIPT --only dataloader_workers\n" in text


def test_on_a_terminal_severities_have_colours(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    options = {"force_terminal": True, "color_system": "standard"}
    assert "\x1b[1;31m1. critical" in printed(of(whole()), **options)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in printed(of(whole()), **options)


def test_where_nothing_is_wrong_it_says_so_and_what_was_looked_at():
    lines = printed(of(whole(), NOTHING)).splitlines()
    assert lines[1] == (
        "The GPU was busy 34.0 % of the run. The largest part of the run, 30.0 %, is idle time"
        " (waiting for data). No rule found something to fix in the GPU's idle time; 2 of 5 rules"
        " could look, for coalescing, input bound."
    )
    assert not any("explain" in line for line in lines)


def test_remarks_are_shown_where_there_is_nothing_to_fix():
    text = printed(of(whole(), replace(NOTHING, findings=(REMARK,))))
    assert "Good to know:\n   memory_room: Half of the GPU's memory is free (the run)\n" in text
    assert "--all" not in text


def test_a_symptom_of_a_remark_that_is_not_shown_is_none_of_what_is_above():
    of_remark = replace(SYMPTOM, hidden_by=REMARK.rule)
    found = of(whole(), Diagnosis((INPUT, REMARK, of_remark, of_remark)))
    assert wording.more(found) == (
        "Not shown: 2 symptoms of other findings (launch_bound of memory_room), 1 remark"
    )
    assert "symptoms of what is above" not in said(found)


def test_at_most_three_findings_at_the_top():
    many = tuple(replace(KERNEL, rule=f"rule_{n}") for n in range(5))
    text = printed(of(whole(), replace(DIAGNOSIS, findings=many)))
    assert [line for line in text.splitlines() if line[:2] in ("3.", "4.")] == [
        "3. warning: rule_2"
    ]
    assert "Not shown: 2 more; --all shows them." in text


def test_the_script_stands_in_what_one_can_type():
    text = printed(of(whole(), script=("my train.py", "--epochs", "1")))
    assert "tune 'my train.py' --only dataloader_workers -- --epochs 1\n" in text
    assert "gpuadvisor profile --ncu 'my train.py' -- --epochs 1: tail_effect" in text
    assert "tune -m pkg.train --only" in printed(of(whole(), script=("-m", "pkg.train")))


def test_of_hardware_counters_each_improvement_is_the_kernels():
    text = said(of(counted(), replace(DIAGNOSIS, findings=(KERNEL,), run_ms=None)))
    assert text.startswith("train: 1 kernel, counted one by one on Tesla V100")
    assert "worth     10 to 14 % of this kernel's time, about 480 µs" in text
    assert "1 thing to fix." in text


def test_the_time_of_what_is_only_bounded_is_the_bound():
    found = replace(KERNEL, improvement_pct=Span(0.0, 20.0), saving_ms=0.4, method="At most all.")
    text = said(of(counted(), replace(DIAGNOSIS, findings=(found,), run_ms=None)))
    assert "worth     at most 20 % of this kernel's time, 800 µs of 4.00 ms" in text


@pytest.mark.parametrize(
    ("captured", "words"),
    [
        (Span(0.021, 0.047), " of this kernel's time, at most 0.047 % of all that was captured,"),
        (Span(0.0, 0.001), ", less than 0.01 % of all that was captured,"),
        (Span(5.0, 7.0), ", at most 7 % of all that was captured,"),
        (Span(10.0, 14.0), " of this kernel's time, about"),
    ],
)
def test_of_a_kernel_among_others_both_shares_are_said(captured, words):
    found = replace(KERNEL, captured_pct=captured)
    text = said(of(counted(), replace(DIAGNOSIS, findings=(found,), run_ms=None)))
    assert words in text


def test_a_remark_says_why_a_large_gain_of_a_kernel_is_none():
    little = replace(KERNEL, severity=Severity.INFO, captured_pct=Span(0.021, 0.047))
    text = said(of(counted(), replace(NOTHING, findings=(little,), run_ms=None)))
    assert "; 10 to 14 % of this kernel's time, at most 0.047 % of all that was captured)" in text


def test_a_recording_of_telemetry():
    lines = said(of_telemetry()).splitlines()
    assert lines[0] == "run.gpr: 3 min 12 s of telemetry of 1 GPU"


def test_a_profile_of_nothing():
    assert said(of(empty(), Diagnosis(()), rules=())).splitlines() == [
        "train: without a GPU, recorded with the torch profiler",
        "No work of a GPU was recorded, and no call that launches any.",
    ]


def test_a_recording_of_nsight_systems_without_cuda_says_what_records_it():
    text = said(of(Made().profile(source="nsys"), Diagnosis(()), rules=()))
    assert "no call that launches any: `nsys profile --trace=cuda,nvtx` records them" in text


def test_a_recording_without_the_gpus_part_says_what_was_launched():
    made = Made()
    for at in range(3):
        made.call("cudaLaunchKernel", (100 * at, 5), CallKind.LAUNCH)
    text = said(of(made.profile(), Diagnosis(()), rules=()))
    assert "recorded, though 3 calls launched some: they failed, or the recording lacks it." in text


def test_launches_of_which_some_failed_are_what_a_recording_without_work_lacks():
    made = Made()
    for at in range(3):
        made.call("cudaLaunchKernel", (100 * at, 5), CallKind.LAUNCH)
    failed = {FAILED_CALLS: failed_calls_told((FailedCalls("cudaLaunchKernel", 1, 1),))}
    text = said(of(made.profile(facts=failed), Diagnosis(()), rules=()))
    assert "though 3 calls launched some and not all of them returned an error: the recor" in text


def test_what_a_file_lacks_is_told_on_the_page_and_is_not_what_the_program_lacks():
    lacks = {CUT_OFF: "The file is 9 bytes shorter than it says", LOST: "Some events were lost."}
    text = said(of(Made().profile(facts=lacks), Diagnosis(()), rules=()))
    assert "The file is 9 bytes shorter than it says.\nSome events were lost." in text
    assert "No work of a GPU was recorded in what could be read of the file." in text


def test_launches_that_failed_are_told_first_and_nothing_else_is_judged():
    made = Made()
    for at in range(3):
        made.call("cudaLaunchKernel", (2_000 * at, 5), CallKind.LAUNCH)
        made.copied((2_000 * at + 100, 5), (2_000 * at + 110, 50), bytes=100)
    facts = {FAILED_CALLS: "3 x cudaLaunchKernel: 222"}
    lines = said(of(made.profile(source="nsys", facts=facts), Diagnosis(()), rules=RULES))
    assert lines.splitlines()[1].startswith("All 3 calls that launch kernels returned an error, so")
    assert "No kernel ran to its end, so nothing of the program can be judged" in lines


def test_a_recording_that_lacks_the_gpus_part_is_told_from_launches_that_failed():
    made = Made()
    made.call("cudaLaunchKernel", (0, 5), CallKind.LAUNCH)
    for told, words in (
        ("none", "and no call returned an error: the recording lacks it."),
        ("1 x cudaLaunchKernel: 209", "No work of a GPU was recorded."),
    ):
        profile = made.profile(source="nsys", facts={FAILED_CALLS: told})
        assert words in said(of(profile, Diagnosis(()), rules=()))


def test_no_control_character_reaches_the_terminal():
    odd = replace(KERNEL, scope=Scope(ScopeKind.KERNEL, HOSTILE), summary=HOSTILE)
    text = printed(of(whole(), replace(DIAGNOSIS, findings=(odd,))), force_terminal=True)
    assert "\x1b[31m" not in text


@pytest.mark.parametrize(
    ("span", "is_bound", "words"),
    [
        (Span(17.2, 33.9), False, "17 to 34 %"),
        (Span(17.2, 33.9), True, "17 to at most 34 %"),
        (Span(0.0, 33.9), True, "at most 34 %"),
        (Span(33.6, 33.9), False, "34 %"),
        (Span(0.21, 1.94), False, "0.2 to 1.9 %"),
    ],
)
def test_a_bound_is_called_one(span, is_bound, words):
    assert finding_wording.percents(span, is_bound) == words


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        (Scope(ScopeKind.KERNEL, GEMM), "kernel cutlass::Kernel"),
        (Scope(ScopeKind.OPERATOR, "aten::mm"), "operator aten::mm"),
        (Scope(ScopeKind.GPU, "GPU 3"), "GPU 3"),
        (Scope(ScopeKind.RANK, "3"), "rank 3"),
    ],
)
def test_where_it_is(scope, words):
    assert finding_wording.where(replace(INPUT, scope=scope, source=None)) == words


def test_a_line_with_next_to_nothing_of_it_is_not_where_it_is():
    little, much = (replace(INPUT, place=Place(source_share=each)) for each in (0.0126, 0.4))
    assert finding_wording.where(little) == "the run"
    assert finding_wording.where(much) == "the run, train.py:42 (40.0 % of it)"


def test_what_is_worth_nothing_says_so():
    free = replace(INPUT, improvement_pct=Span(0.0, 0.0))
    assert finding_wording.worth(free, DIAGNOSIS) == "nothing, as far as can be told"
    assert finding_wording.worth(REMARK, DIAGNOSIS) == ""


@pytest.mark.parametrize("width", [10, 40, 80])
def test_a_word_longer_than_the_line_is_no_endless_loop(width):
    assert "".join(wrapped(Line("x" * 300), width)).replace(" ", "") == "x" * 300


def test_the_first_finding_on_one_line():
    assert wording.first(of(whole())) == (
        "fix first: The GPU is idle for 61% of the run because the script waits for its next batch"
        " (input_bound, worth 32 to at most 61 % of the run)"
    )
    assert wording.first(of(whole(), NOTHING)) == (
        "no rule found something to fix in the GPU's idle time; the largest part of the run, 30.0"
        " %, is idle time (waiting for data); 2 of 5 rules could look"
    )


@pytest.mark.parametrize(
    ("low", "words"),
    [
        (1.0, "how much cannot be told from this recording"),
        (20.0, "at least 20 % of the run; how much more cannot be told from this recording"),
    ],
)
def test_a_range_too_wide_for_an_answer_is_no_headline(low, words):
    wide = replace(INPUT, improvement_pct=Span(low, 61.2), method="All of it.")
    found = diagnosis_report(report(whole()), Diagnosis((wide,), (), (), 4.0, Span(low, 61.2)))
    text = "\n".join(line.text for line in diagnosis_lines(found))
    assert (
        words in text
        and f"Estimated at {low:.0f} to 61 %, too wide a range to tell. All of it." in text
    )
    shown = "worth at least 20 % of the run" if low > 2 else "1 thing to fix."
    assert "worth how much" not in wording.first(found)
    assert shown in text and text.count("61") == 3  # besides the sentence and the figure of idle
