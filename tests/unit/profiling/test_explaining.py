"""What two profiles show of a slow-down: what is named, what is not, and what is left open."""

from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.explanation import CauseKind
from gpuadvisor.domain.finding import RUN, Category, Diagnosis, Finding
from gpuadvisor.domain.gate import GateResult, GateRun, GateSide, GateVerdict
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.profile import Range
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.profiling import explaining
from gpuadvisor.profiling.explaining import Profiled, agreed, explain, explanation_of, is_plain
from gpuadvisor.profiling.project_files import project_files
from gpuadvisor.reports.gate.explanation import cause_sentence, lead
from gpuadvisor.rules.facts.functions import function_times
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.trials.trial_runner import Side
from tests.profiles import Made
from tests.simulation import measurement

CPU = Device("cpu", 0, "CPU", cores=2)


def own(file):
    return file if file in ("train.py", "net.py") else None


def profiled(functions, steps=4, kernels=(), stall_us=0.0, findings=(), **more):
    """A profile of equal steps: calls of functions by their frames, each with operators in it.

    Times are in us; the first step stalls for so long in the first function.
    """
    made, at = Made(), 0.0
    begin_module = made.range
    begun = []
    for number in range(steps):
        begin, extra = at, stall_us if number == 0 else 0.0
        for frame, calls in functions:
            length = sum(time for _, time in calls) + extra
            made.range(frame, (at, length), Range.PYTHON)
            for name, time in calls:
                if name:
                    made.operator(name, (at, time))
                    for kernel, runs in kernels:
                        if kernel.startswith(name):
                            made.launched(kernel, call=(at, 1), runs=(at + 1, runs))
                at += time
            at, extra = at + extra, 0.0
        begun.append((begin, at - begin))
    for number, when in enumerate(begun):
        begin_module(f"ProfilerStep#{number}", when, Range.STEP)
    made.range("train.py(40): <module>", (-5, at + 10), Range.PYTHON)
    profile = made.profile()
    diagnosis = Diagnosis(tuple(findings))
    return Profiled(Facts(profile), function_times(profile, own), diagnosis, own, **more)


STEP, FORWARD = "train.py(5): step", "net.py(7): forward"
BASE = [(STEP, [("aten::mm", 1000), ("", 200)]), (FORWARD, [("aten::add", 800)])]
SLOW = [BASE[0], (FORWARD, [("aten::add", 800), ("aten::nonzero", 500)])]


def test_the_function_with_its_place_and_what_is_new_in_it():
    found = explanation_of(profiled(BASE), profiled(SLOW), 0.4)
    (cause,) = found.causes
    assert (cause.kind, cause.name, cause.source) == (CauseKind.FUNCTION, "forward", "net.py:7")
    assert (cause.more_ms, cause.head_count) == (pytest.approx(0.5), 1)
    assert [(each.name, each.base_count, each.head_count) for each in cause.inside] == [
        ("aten::nonzero", 0, 1)
    ]
    assert found.unexplained_ms == pytest.approx(0)
    assert cause_sentence(cause, found) == (
        "net.py:7 in forward: +500 µs a step (100% of the slow-down); of this aten::nonzero "
        "+500 µs (new)"
    )


def test_what_the_profiles_do_not_show_stays_unexplained():
    found = explanation_of(profiled(BASE), profiled(BASE), 0.4)
    assert (found.causes, found.unexplained_ms) == ((), 0.4)
    assert "Nothing" not in lead(found)
    assert "No cause of that is clear: nothing differs in both pairs of profiles by" in lead(found)
    half = explanation_of(profiled(BASE), profiled(SLOW), 1.0)
    assert half.unexplained_ms == pytest.approx(0.5)
    assert "Of 1.00 ms more, 50% are explained here, 500 µs are not." in lead(half)


def test_one_stall_is_no_cause_however_long():
    found = explanation_of(profiled(BASE), profiled(BASE, stall_us=9000), 0.1)
    assert found.causes == ()
    assert found.unexplained_ms == pytest.approx(9 / 4)


def test_a_function_that_takes_four_times_as_long_is_named_beside_a_stall():
    """The stall is longer than all that differs: by means and their errors nothing would be."""
    step = [(STEP, [("aten::mm", 1000), ("", 200)])]
    slower = [(STEP, [("aten::mm", 4000), ("", 200)])]
    base, head = profiled(step, steps=10), profiled(slower, steps=10, stall_us=60_000)
    for found in (explanation_of(base, head, 3.0), explanation_of(head, base, 3.0)):
        (cause,) = found.causes
        assert (cause.source, cause.name) == ("train.py:5", "step")
    held_up = profiled(step, steps=10, stall_us=60_000)
    assert explanation_of(held_up, profiled(slower, steps=10), 3.0).causes == ()  # not by means


def test_of_what_a_function_calls_new_things_are_named_when_they_are_small():
    head = [BASE[0], (FORWARD, [("aten::add", 1100), ("aten::sort", 60), ("aten::exp", 10)])]
    (cause,) = explanation_of(profiled(BASE), profiled(head), 0.4).causes
    assert [each.name for each in cause.inside] == ["aten::add", "aten::sort"]


def test_a_function_that_moved_in_its_file_is_the_same():
    moved = [(frame.replace("(7)", "(99)"), calls) for frame, calls in BASE]
    assert explanation_of(profiled(BASE), profiled(moved), 0.4).causes == ()


def test_of_several_of_one_name_the_slower_one_is_named():
    many = [*BASE, ("net.py(30): forward", [("aten::add", 300)])]
    slower = [(f.replace("(30)", "(31)"), [(n, 3 * t) for n, t in c] if "(30)" in f else c)
              for f, c in many]  # fmt: skip
    (cause,) = explanation_of(profiled(many), profiled(slower), 0.6).causes
    assert cause.source == "net.py:31"
    (cause,) = explanation_of(profiled(BASE), profiled(many), 0.3).causes
    assert cause.source == "net.py"  # which one is not known


def test_more_often_new_and_gone():
    base = [(STEP, [("aten::mm", 100)]), ("net.py(9): old", [("aten::add", 100)])]
    head = [*[(STEP, [("aten::mm", 100)])] * 3, ("net.py(9): fresh", [("aten::add", 100)])]
    found = explanation_of(profiled(base), profiled(head), 0.2)
    said = [cause_sentence(each, found) for each in found.causes]
    assert [each.partition(" of the")[0] for each in said] == [
        "train.py:5 in step: +200 µs a step (100%",
        "net.py:9 in fresh: +100 µs a step (50%",
        "net.py:9 in old: -100 µs a step (-50%",
    ]
    assert "runs 3 times instead of 1" in said[0]
    assert said[1].endswith("new; of this aten::add +100 µs (new)")


def test_on_a_gpu_kernels_with_the_line_that_launched_them():
    base = profiled(BASE, kernels=[("aten::add_k", 100)])
    head = profiled(BASE, kernels=[("aten::add_k", 100), ("aten::mm_new", 150)])
    found = explanation_of(base, head, 0.15)
    (cause,) = found.causes
    assert (cause.kind, cause.source) == (CauseKind.KERNEL, "train.py:5")
    assert (cause.more_ms, cause.base_count, cause.head_count) == (pytest.approx(0.15), 0, 1)
    assert found.unexplained_ms == pytest.approx(0)


def test_on_a_gpu_that_waits_for_the_cpu_the_function():
    kernels = [("aten::add_k", 100)]
    found = explanation_of(profiled(BASE, kernels=kernels), profiled(SLOW, kernels=kernels), 0.5)
    assert [(each.kind, each.source) for each in found.causes] == [(CauseKind.FUNCTION, "net.py:7")]


def finding(rule, severity=Severity.WARNING):
    return Finding(
        rule, Category.SYNC, severity, RUN, "It waits", (), None, None, "", "Do not.",
        source="net.py:8",
    )  # fmt: skip


def test_findings_that_only_the_head_has():
    base = profiled(BASE, findings=[replace(finding("a"), hidden_by="b")])
    all_ = [finding("a"), finding("c"), finding("d", Severity.INFO)]
    head = profiled(BASE, findings=[*all_, replace(finding("e"), hidden_by="c")])
    assert [each.rule for each in explanation_of(base, head, 0.4).findings] == ["c"]


def test_what_else_used_the_machine_is_said():
    found = explanation_of(profiled(BASE), profiled(SLOW, disturbance="others used 2 cores"), 0.4)
    assert "While a version was profiled, others used 2 cores: what takes longer" in lead(found)


@pytest.mark.parametrize("cores", [2, 3])
def test_what_else_used_the_machine_beside_both_pairs_is_said_once(cores):
    one, two = (
        explanation_of(profiled(BASE), profiled(SLOW, disturbance=f"others used {n} cores"), 0.4)
        for n in (2, cores)
    )
    assert agreed(one, two).note == one.note


def test_files_of_the_project_are_told_from_others(tmp_path):
    top = tmp_path / "repo"
    for name in (
        "examples/train.py",
        "src/timm/model.py",
        ".venv/lib/python3.11/site-packages/x.py",
    ):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).touch()
    (top / ".git").touch()
    folder = top / "examples"
    place = project_files(folder, "train.py")
    assert place("train.py") == "examples/train.py"
    assert place("timm/model.py") == "src/timm/model.py"  # as `sys.path` cut it off
    assert place(str(top / "src/timm/model.py")) == "src/timm/model.py"
    assert place(str(top / ".venv/lib/python3.11/site-packages/x.py")) is None
    assert place("torch/nn/functional.py") is None
    assert place(__file__) is None
    assert project_files(folder, "train.py", whole=False)("train.py") == "train.py"
    assert project_files(top, "examples/train.py")("train.py") == "examples/train.py"


class Silent:
    def on_message(self, sentence):
        pass


SIDE = Side(Command("python", "train.py"), CPU)
NOBODY = GateSide("", None, (), "")


def explained(runs=(), cancelled=lambda: False):
    found = GateResult(GateVerdict.FAIL, "", NOBODY, NOBODY, runs=runs)
    return explain(Silent(), cancelled, SIDE, SIDE, GateOptions(SIDE.command), found)


def test_what_cannot_be_profiled_is_a_note(monkeypatch):
    def fail(request, **more):
        raise ZeroDivisionError("no")

    monkeypatch.setattr(explaining.record.__module__ + ".run_script", fail, raising=True)
    assert explained().note == "it was not profiled: ZeroDivisionError: no: report this bug"


def test_steps_of_other_sizes_are_not_compared():
    runs = []
    for side, samples in (("base", 80.0), ("head", 160.0)):
        made = measurement([], windows=(StepWindow(10, 1.0, samples=samples),))
        runs.append(GateRun(side, Trial(0, {}, "proof", TrialState.COMPLETE, "", made)))
    assert explained(tuple(runs)).note.endswith("steps of both versions are of 8 and 16 samples")


def test_ctrl_c_ends_it_and_the_verdict_stands(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert explained(cancelled=lambda: True).note == "it was not profiled: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_what_load_does_to_one_of_the_profiles_is_not_named():
    base, slow = profiled(BASE), profiled(SLOW)
    loaded = profiled([(STEP, [("aten::mm", 4000), ("", 900)]), *SLOW[1:]])
    one = explanation_of(base, loaded, 0.5)
    assert [each.name for each in one.causes] == ["step", "forward"]
    for found in (agreed(one, explanation_of(base, slow, 0.5)),
                  agreed(explanation_of(base, slow, 0.5), one)):  # fmt: skip
        assert [each.name for each in found.causes] == ["forward"]
        assert found.explained_ms == pytest.approx(0.5)
        assert found.unexplained_ms == pytest.approx(0)
        assert found.steps == 8
        assert "left out is one thing that only one of two profiles" in found.note


def test_of_both_pairs_the_smaller_difference_counts():
    base = profiled(BASE)
    more = profiled([BASE[0], (FORWARD, [("aten::add", 800), ("aten::nonzero", 900)])])
    small, large = (explanation_of(base, each, 0.4) for each in (profiled(SLOW), more))
    for found in (agreed(small, large), agreed(large, small)):
        (cause,) = found.causes
        assert (cause.more_ms, cause.inside[0].more_ms) == (pytest.approx(0.5), pytest.approx(0.5))
        assert (found.of_ms, found.note) == (small.of_ms, "")


def test_where_no_cause_is_left_the_largest_that_one_pair_shows_is_told():
    base, slow = profiled(BASE), profiled(SLOW)
    found = agreed(explanation_of(base, slow, 0.4), explanation_of(base, base, 0.4))
    assert found.causes == ()
    told = "only one of two profiles of each version shows (net.py:7 in forward, +0.5 ms)"
    assert found.note.endswith(told)


def test_what_got_slower_in_one_pair_and_faster_in_the_other_is_nothing():
    base, slow = profiled(BASE), profiled(SLOW)
    there, back = explanation_of(base, slow, 0.4), explanation_of(slow, base, 0.4)
    assert agreed(there, back).causes == ()


def test_one_pair_is_enough_where_kernels_explain_it_and_nothing_else_was_there():
    base, slow = (profiled(BASE, kernels=[("aten::mm_kernel", runs)]) for runs in (100, 900))
    found = explanation_of(base, slow, 0.8)
    assert {each.kind for each in found.causes} == {CauseKind.KERNEL}
    assert is_plain(found)
    assert not is_plain(explanation_of(base, slow, 4.0))  # a fifth of it
    assert not is_plain(explanation_of(base, replace(slow, disturbance="others used a core"), 0.8))
    assert not is_plain(explanation_of(profiled(BASE), profiled(SLOW), 0.5))
    assert not is_plain(explanation_of(base, base, 0.8))
