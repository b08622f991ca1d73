"""What a diagnosis promises, tried on made-up runs: it may say nothing that its account denies."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuadvisor.domain.profile import CallKind, DeviceLimits, Range
from gpuadvisor.domain.severity import Severity
from gpuadvisor.reports.diagnosis.account import near_bound_ns
from gpuadvisor.reports.diagnosis.document import diagnosis_lines
from gpuadvisor.reports.json_documents import diagnosis_json
from gpuadvisor.rules.engine import NS_PER_MS, diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.kernel_families import kind_of, short_name
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.paces import longer_with_profiler
from gpuadvisor.rules.registry import load_rules
from tests.diagnoses import diagnosis_report
from tests.profile_reports import report
from tests.profiles import Made
from tests.unit.reports.test_account_wording import said
from tests.unit.rules.facts.test_account import REAL, facts_of

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
PRODUCT = {"shapes": "[[4096, 4096], [4096, 4096]]", "types": '["c10::BFloat16", "c10::BFloat16"]'}
"""Takes 139 us at the peak rate of an H100 (989 TFLOP/s)."""
NAMES = (
    "my_kernel",
    "void solve<float>(float*)",
    GEMM,
    "ampere_sgemm_128x64_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>()",
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>()",
    "flash_fwd_kernel",
)
H100 = DeviceLimits(0, "NVIDIA H100 80GB HBM3", compute_capability=(9, 0), sm_count=132)

kernels = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([1.0, 30.0, 160.0, 3_000.0]),  # us that it takes
        st.sampled_from([0.0, 0.0, 0.0, 5.0, 400.0, 20_000.0]),  # us until it is launched
        st.sampled_from(["", "", "", "", "sync", "free", "copy", "loader"]),  # what comes before
    ),
    min_size=1,
    max_size=5,
)
runs = st.tuples(
    kernels,
    st.integers(1, 12),  # rounds
    st.sampled_from(["", "operators", "ranges", "steps"]),  # what else of the host is recorded
    st.sampled_from(["kineto", "nsys"]),
)


def made_up(run):
    """A run whose host launches each kernel when the one before is done, or ahead of it."""
    every, rounds, host, source = run
    made, at, device = Made(), 0.0, 0.0
    for number in range(rounds):
        begun = at
        for name, took, pause, before in every:
            at, device = _before(made, before, at, device)
            at = max(at, device + pause) if pause else at
            begins = max(device, at + 8)
            if host == "operators":
                shapes = PRODUCT if name == GEMM else {}
                made.operator("aten::mm" if shapes else "aten::add", (at - 1, 7), **shapes)
            made.launched(name, (at, 5), (begins, took))
            at, device = at + 6, begins + took
        if host == "ranges":
            made.range("work", (begun, at - begun))
        if host == "steps":
            made.range(f"ProfilerStep#{number}", (begun, at - begun), Range.STEP)
    return made.profile(source=source, devices=(H100,))


def _before(made, what, at, device):
    """Add what the host does before a launch; until when, and until when the device works."""
    if what == "sync":
        made.call("cudaDeviceSynchronize", (at, max(device - at, 1)), CallKind.SYNCHRONIZE)
        return max(device, at + 1), device
    if what == "free":
        made.call("cudaFree", (at, 300), CallKind.FREE)
        return at + 301, device
    if what == "copy":
        begins = max(device, at + 8)
        made.copied((at, 5), (begins, 50), bytes=1_000_000)
        return at + 6, begins + 50
    if what == "loader":
        made.range("enumerate(DataLoader)#_Single.__next__", (at, 500), Range.LOADER)
        return at + 501, device
    return at, device


QUIET = ([("my_kernel", 3_000.0, 0.0, "")], 12, "", "nsys")
FAST = ([(GEMM, 160.0, 0.0, "")], 12, "operators", "kineto")
SLOW = ([(GEMM, 3_000.0, 0.0, "")], 12, "operators", "kineto")


@given(runs)
@example(QUIET)
@example(FAST)
@example(SLOW)
def test_nothing_is_fine_but_work_that_is_known_to_be_near_what_the_gpu_can_do(run):
    found, text = said(made_up(run))
    facts = found.profile.facts
    near = near_bound_ns(facts.rooflines) / facts.window.run_ns
    assert near >= 0.95 or "Nothing worth fixing" not in text


def test_products_near_the_peak_rate_are_fine():
    assert "Nothing worth fixing was found" in said(made_up(FAST))[1]


@given(runs)
@example(QUIET)
@example(SLOW)
def test_a_kernel_with_most_of_the_work_is_in_a_finding_or_named_with_its_share(run):
    found, text = said(made_up(run))
    facts = found.profile.facts
    name, time_ns = max(facts.account.kernels_ns.items(), key=lambda each: each[1])
    share = time_ns / facts.account.span_ns
    is_product = str(kind_of(name).family) in ("gemm", "convolution")
    near = near_bound_ns(facts.rooflines) if is_product else 0
    if 2 * time_ns <= sum(facts.account.kernels_ns.values()):
        return
    if (time_ns - near) / facts.account.span_ns <= 0.05:
        return
    to_fix = [
        each
        for each in found.diagnosis.findings
        if each.severity is not Severity.INFO or each.hidden_by is not None
    ]
    told = {part for each in to_fix for part in each.parts} | {e.scope.name for e in to_fix}
    if not {name, f"kernel/{name}"} & told:
        named = re.escape(short_name(name)[:50])
        shown = re.search(rf"^{named}.* has ([\d.]+) % of the run", text, re.M)
        assert shown is not None and abs(float(shown[1]) - 100 * share) < 0.06
        tells_how = "reads the hardware counters" in text or "reads its hardware counters" in text
        assert tells_how is (facts.too_short is None)


@given(runs)
@example(([("my_kernel", 30.0, 20_000.0, "")], 12, "", "nsys"))
def test_no_work_of_a_cpu_is_told_of_which_nothing_was_recorded(run):
    profile = made_up(run)
    _, text = said(profile)
    if not profile.rows("operators") and not profile.rows("ranges"):
        assert "other work of the CPU" not in text
    else:
        assert "CPU in no call into CUDA" not in text


def test_what_would_tell_fits_what_recorded():
    every = [("my_kernel", 30.0, 20_000.0, "")]
    _, text = said(made_up((every, 12, "", "nsys")))
    assert "idle: CPU in no call into CUDA" in text and "--trace=cuda,nvtx,osrt" in text
    _, text = said(made_up((every, 12, "", "kineto")))
    assert "--trace" not in text and "(gpuadvisor profile SCRIPT)" in text
    _, text = said(made_up(QUIET))
    assert "ncu --set full -k my_kernel -c 3 -o counted PROGRAM" in text


def diagnosed(source, kernel, **more):
    """A recording of some launches of a kernel."""
    made = Made()
    for number in range(3):
        made.launched(kernel, (100.0 * number, 5), (100.0 * number + 8, 50))
    profile = made.profile(source=source, devices=(H100,))
    diagnosis = diagnose(Evidence(Facts(profile)), load_rules())
    return diagnosis_report(report(profile), diagnosis, rules=load_rules(), **more)


def advised(found):
    """How to measure what is missing."""
    text = "\n".join(line.text for line in diagnosis_lines(found))
    return text[text.index("Not measured, so not known") :]


OF_PYTORCH = "void at::native::reduce_kernel<512, 1>(float*)"


@pytest.mark.parametrize(
    ("source", "kernel", "script", "of_program"),
    [
        ("nsys", "solve(double*)", (), True),
        ("ncu", "solve(double*)", (), True),
        ("nsys", OF_PYTORCH, (), False),
        ("ncu", OF_PYTORCH, (), False),
        ("nsys", "solve(double*)", ("train.py",), False),
        ("kineto", "solve(double*)", (), False),
    ],
)
def test_nobody_is_sent_to_profile_a_program_as_a_python_script(source, kernel, script, of_program):
    found = diagnosed(source, kernel, script=script)
    text = advised(found)
    ways = {each["how"] for each in diagnosis_json(found)["not_measured"]}
    assert all(f"{each}: " in text for each in ways), "in JSON as in the text"
    assert ("gpuadvisor profile " in text) is not of_program
    assert ("nsys profile --trace=cuda,nvtx -o timeline PROGRAM" in text) is of_program
    assert ("only of programs of PyTorch: " in text) is of_program
    if source == "nsys":
        assert ("ncu --set full -o counted PROGRAM" in text) is of_program


@pytest.mark.parametrize("has_operators", [True, False])
def test_operators_that_are_recorded_are_not_what_would_tell(has_operators):
    made = Made()
    for number in range(20):
        if has_operators:
            made.operator("aten::add", (200.0 * number, 60))
        made.launched("my_kernel", (200.0 * number + 50, 5), (200.0 * number + 60, 100))
    profile = made.profile(devices=(H100,))
    diagnosis = diagnose(Evidence(Facts(profile)), [])
    found = diagnosis_report(report(profile), diagnosis, rules=[])
    text = "\n".join(line.text for line in diagnosis_lines(found))
    assert ("--stacks SCRIPT names the lines that launch" in text) is has_operators
    assert "records the operators that launch" not in text


def within_the_account(facts, diagnosis):
    """No finding saves more time than the account has of what the finding shortens, nor a larger
    share of the run than that is without the profiler."""
    account, idle = facts.account, [1 - each.busy_share for each in facts.time_breakdowns.values()]
    for finding in diagnosis.findings:
        if finding.improvement_pct is None:
            continue
        held = account.held_ns(finding.parts)
        assert held is not None, finding.rule
        assert finding.saving_ms is None or finding.saving_ms * NS_PER_MS <= held * (1 + 1e-9) + 1
        saved = finding.improvement_pct.high / 100 * facts.window.run_ns
        most = held * longer_with_profiler(facts, finding.parts)
        assert saved <= most * (1 + 1e-9) + 1, (finding.rule, finding.improvement_pct)
        for figure in finding.evidence:
            if figure.metric.startswith("gpu_idle"):
                assert figure.value <= 100 * max(idle) + 0.06, (finding.rule, figure)


@given(runs)
def test_no_finding_saves_more_than_the_account_has(run):
    found, _ = said(made_up(run))
    within_the_account(found.profile.facts, found.diagnosis)


@pytest.mark.parametrize("name", REAL)
def test_no_finding_of_a_real_trace_saves_more_than_the_account_has(name):
    facts = facts_of(name)
    within_the_account(facts, diagnose(Evidence(facts), load_rules()))


LOOPS = {
    "sync_in_loop", "allocator_churn", "launch_bound", "host_bound", "cuda_graphs",
    "pageable_copies", "exposed_copies",
}  # fmt: skip


@given(runs, st.permutations(NAMES), st.integers(1, 2))
@example(([("", 30.0, 20_000.0, "free")] * 5, 2, "", "nsys"), NAMES, 2)
def test_events_that_come_once_are_told_as_such_first_and_taken_for_no_loop(run, names, rounds):
    every, _, host, source = run
    every = [(name, *each[1:]) for name, each in zip(names, every, strict=False)]
    host = "operators" if host == "steps" else host
    found, text = said(made_up((every, rounds, host, source)))
    facts = found.profile.facts
    data = sum(each.causes_ns[Cause.WAITING_FOR_DATA] for each in facts.idle)
    idle = sum(each.idle_ns for each in facts.idle)
    begins = text.splitlines()[1]
    if facts.fitness.note or idle <= 0.06 * facts.window.run_ns or 2 * data >= 0.9 * idle:
        return
    told = (
        "This recording shows single events",
        "All work in this recording",
        "This recording has",
    )
    assert begins.startswith(told)
    assert not LOOPS & {each.rule for each in found.diagnosis.findings}


def test_a_loop_is_no_single_event():
    every = [("my_kernel", 30.0, 0.0, "free"), (GEMM, 160.0, 400.0, "")]
    found, text = said(made_up((every, 12, "operators", "kineto")))
    assert "single events" not in text and "All work in this recording" not in text
    assert LOOPS & {each.rule for each in found.worth_fixing}


@pytest.mark.parametrize(("kernel_us", "told"), [(9.0, True), (12.0, False)])
def test_gaps_after_short_kernels_are_told_with_what_leaves_them_out(kernel_us, told):
    """Launched long before they run, as those of a CUDA graph; counters would tell little."""
    made = Made()
    for number in range(40):
        begin_us = 1_000.0 + (kernel_us + 1.5) * number
        made.launched("my_kernel", (number, 1), (begin_us, kernel_us))
    _, text = said(made.profile(devices=(H100,)))
    assert "the largest part is 1" in text and "from one kernel to the next" in text
    sentence = (
        "On average that is 1.46 µs after each of its 40 kernels, of which 100 % run for less than"
        " 10 µs: fewer kernels that do more each, fused or of more samples at once, leave out such"
        " gaps."
    )
    assert (sentence in text) is told
    assert ("fewer kernels that do more each" in text) is told
