"""Triton kernels of an unmodified script, tuned through the real program, with a Triton that needs
no GPU: each program of a grid takes a millisecond of a clock that is ours, so that what is found is
known.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from gpuadvisor.collectors.script.inquiry import ScriptWitness, patient
from gpuadvisor.collectors.script.request import Command, Limits
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.domain.inquiry import Ended, Found
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective, Plan
from gpuadvisor.errors import Interrupted
from gpuadvisor.tuners.knobs._triton.launches import parse_lines
from gpuadvisor.tuning.plans.file import read_plan, write_plan
from tests.integration import program, runs
from tests.integration.runs import (
    PATIENT,
    QUICK,
    TO_THE_END,
    request,
    triton_kernels_of,
)

FAKE = f"{Path(__file__).parents[1] / 'fake_triton'}:{program.CLOCK}"
KNOB = "gpuadvisor.tuners.knobs.triton_kernels:KNOB"
PATIENCE_S = 300.0
"""Ends a search that hangs; a busy machine takes its time."""
TIMED = {"PYTHONPATH": FAKE, "FAKE_TRITON_PROGRAM_S": "0.001"}
WHOLE = Specification(seed=1, schedule=TO_THE_END)
SHAPE = ("cpu", "4", "256")
"""A step of 150 programs, of which four are those of a softmax whose block is its row."""


@pytest.fixture(scope="module")
def torch_imported():
    """Of which scripts are forked that have the fake Triton and its clock."""
    with runs.torch_imported(**TIMED) as template:
        yield template


@pytest.fixture(scope="module")
def asked(torch_imported):
    """A function that returns the request of a run of a script."""

    def asked(script: str, *args: str, folder: Path = program.SCRIPTS, limits: Limits = PATIENT):
        command = Command(sys.executable, script, args, folder=str(folder))
        return replace(request(command, QUICK, limits, **TIMED), template=torch_imported)

    return asked


@pytest.fixture(scope="module")
def found(asked) -> Found:
    return triton_kernels_of(asked("triton_layers.py", "100000", *SHAPE), PATIENCE_S)


def plan_of(value: str, path: Path) -> None:
    settings = {"triton_kernels": value}
    level, objective = Level.CONSERVATIVE, Objective.THROUGHPUT
    write_plan(Plan("triton_layers.py", (), settings, None, level, objective), path)


@pytest.fixture
def planned(found, tmp_path) -> Path:
    """A folder with the script and a plan of what was found."""
    shutil.copy(program.SCRIPTS / "triton_layers.py", tmp_path)
    plan_of(found.value, tmp_path / "it.toml")
    return tmp_path


def test_larger_blocks_are_found_where_programs_are_what_takes_time(found):
    lines = {line.kernel.partition("@")[0]: line for line in parse_lines(found.value)}
    swish, scale = (lines[f"__main__.{name}_kernel"] for name in ("swish", "scale"))
    assert swish.arguments == {
        "x": "float32[4, 256]",
        "out": "tensor",
        "n": "1024",
        "BLOCK": "16",
    }
    assert swish.values["BLOCK"] == 64
    assert scale.values["BLOCK"] >= 64, "beyond the autotuner's own list"
    assert "BLOCK" not in scale.arguments
    softmax = lines.get("__main__.softmax_kernel")
    assert softmax is None or softmax.values["BLOCK"] >= 256, "its block is its row"


def test_what_was_found_is_said(found):
    said = next(each for each in found.sentences if each.startswith("swish_kernel("))
    assert "n: 1024, BLOCK: 16), " in said
    assert " with BLOCK 64" in said
    assert "others tried" in said


def test_the_plan_applies_to_a_script_and_leaves_what_was_edited_since_alone(planned, asked):
    script = planned / "triton_layers.py"
    text = script.read_text()
    script.write_text(text.replace("value * tl.sigmoid(value)", "tl.sigmoid(value) * value"))
    assert script.read_text() != text
    args = ("30", *SHAPE)
    plain = run_script(replace(asked(script.name, *args, folder=planned), specification=WHOLE))
    words = ("run", "--plan", "it.toml", script.name, "--", *args)
    answer = program.run(planned, *words, **TIMED)
    assert answer.status == 0, answer.err
    assert "swish_kernel is launched as it is: its text is not that for which" in answer.err
    own, fast = (json.loads(each.splitlines()[-1]) for each in (plain.output, answer.out))
    assert fast["loss"] == pytest.approx(own["loss"], rel=1e-5)
    assert fast["step_ms"] < 0.9 * own["step_ms"], "by what the other kernels get"


@pytest.fixture(scope="module")
def tuned(cpu, tmp_path_factory) -> tuple[Path, dict]:
    home = tmp_path_factory.mktemp("tuned")
    shutil.copy(program.SCRIPTS / "triton_layers.py", home)
    words = ("triton_layers.py", "--only", "triton_kernels", "--budget", "6m", "--json")
    words += ("--plan", "it.toml")
    answer = program.run(home, "tune", *words, "--", "3000", *SHAPE, **TIMED)
    assert answer.status == 0, answer.err
    return home, json.loads(answer.out)


@pytest.mark.slow
class TestStudy:
    """The whole of it: found, screened, tried, proven, rehearsed and kept."""

    def test_the_gain_is_proven_in_fresh_processes(self, tuned):
        _, result = tuned
        assert result["verdict"] in ("faster", "faster_unverified")
        assert result["speedup"]["ci99_low"] > 1.2
        assert list(result["best"]["knobs"]) == ["triton_kernels"]

    def test_no_result_is_another_than_that_of_the_unchanged_script(self, tuned):
        _, result = tuned
        assert result["equivalence"]["status"] != "wrong"
        assert result["dropped"] == []

    def test_the_plan_has_a_line_for_each_launch(self, tuned):
        home, result = tuned
        text = (home / "it.toml").read_text()
        assert 'triton_kernels = """\n__main__.' in text
        assert read_plan(home / "it.toml").settings == result["best"]["knobs"]

    def test_what_was_found_and_left_alone_is_in_the_notes(self, tuned):
        _, result = tuned
        assert any(note.startswith("swish_kernel(") for note in result["notes"])
        assert any("softmax_kernel" in note for note in result["notes"])


# -- launches that are asked about one by one ------------------------------------------------------


@pytest.fixture(scope="module")
def odd(asked) -> Found:
    return triton_kernels_of(asked("triton_odd.py", "100000"), PATIENCE_S)


def said_of(found, kernel):
    return next(each for each in found.sentences if each.startswith(f"{kernel} ("))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("prepared", "its autotuner's configurations have hooks"),
        ("fatal", "the script ended as it was tried"),
    ],
)
def test_what_cannot_be_changed_is_named_with_its_reason(odd, kernel, reason):
    assert reason in said_of(odd, kernel)


def test_a_grid_of_numbers_keeps_its_blocks_and_that_is_said(odd):
    said = next(each for each in odd.sentences if each.startswith("scale("))
    assert "grid: numbers" in said
    assert "blocks that its grid counts left alone as that is given as numbers" in said


def test_launches_past_the_brackets_are_named(odd):
    assert any(
        each.startswith("launches of largest, unread without `kernel[grid]`")
        for each in odd.sentences
    ), odd


def test_a_launch_that_aborts_costs_itself_alone(odd):
    assert odd.value is not None, odd
    assert "add_in_place" in odd.value
    assert "fatal" not in odd.value


def test_blocks_that_are_part_of_the_arithmetic_stay(odd):
    for line in parse_lines(odd.value):
        assert "totals_of_blocks" not in line.kernel or line.values["BLOCK"] == 16
        assert "softmax" not in line.kernel or line.values["BLOCK"] >= 32, "a row has 32"


def test_a_seed_that_always_changes_is_no_part_of_the_launch(odd):
    (line,) = [each for each in odd.value.splitlines() if "with_seed" in each]
    assert "seed:" not in line


def test_a_script_without_triton_has_nothing_to_be_found(asked, tmp_path):
    (tmp_path / "plain.py").write_text(
        "import torch\nm = torch.nn.Linear(2, 2)\n"
        "while True:\n    m(torch.ones(2)).sum().backward()\n"
    )
    found = triton_kernels_of(asked("plain.py", folder=tmp_path), PATIENCE_S)
    assert found.why == "the script imports no Triton"


def test_a_script_without_steps_cannot_be_asked(asked, tmp_path):
    (tmp_path / "none.py").write_text("import torch\n")
    wanted = asked("none.py", folder=tmp_path, limits=patient(PATIENT, 30))
    with ScriptWitness(wanted, KNOB, 30) as witness, pytest.raises(Ended):
        witness.begin()


def test_a_process_that_gives_no_answer_is_ended(asked):
    wanted = asked("triton_layers.py", "100000", limits=patient(PATIENT, 60))
    with ScriptWitness(wanted, KNOB, 60) as witness:
        witness.begin()
        with pytest.raises(Ended, match="no answer within 1 s"):
            witness.ask({"do": "nothing of the kind"}, 1.0)


def test_a_study_that_is_cancelled_leaves_no_process(asked):
    wanted = asked("triton_layers.py", "100000", limits=patient(PATIENT, 60))
    stop, others = [], psutil.Process().children(recursive=True)
    wanted = replace(wanted, cancelled=lambda: bool(stop))
    with ScriptWitness(wanted, KNOB, 60) as witness:
        witness.begin()
        stop.append(True)
        with pytest.raises(Interrupted):
            witness.ask({"do": "nothing of the kind"}, 30.0)
    assert psutil.Process().children(recursive=True) == others


INTERPRETED = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n
    tl.store(out + place, 2 * tl.load(x + place, mask=mask), mask=mask)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    value = tl.load(x + row * columns + column, mask=mask, other=float("-inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * columns + column, power / tl.sum(power, 0), mask=mask)


def timed(call, quantiles):
    call()
    return [0.0 for _ in quantiles]


@triton.heuristics({"SHIFTED": lambda given: given["shift"] is not None})
@triton.autotune([triton.Config({"BLOCK": b}) for b in (8, 16)], key=["n"], do_bench=timed)
@triton.jit
def around_kernel(x, shift, out, n, BLOCK: tl.constexpr, SHIFTED: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n)
    if SHIFTED:
        value = value + tl.load(shift + place, mask=place < n)
    tl.store(out + place, value, mask=place < n)


@triton.autotune([triton.Config({})], key=["n"])
@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"]) // 32})
@triton.jit
def within_kernel(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, 3 * tl.load(x + place, mask=place < n), mask=place < n)


model = torch.nn.Linear(64, 64)
while True:
    x = torch.rand(8, 64)
    scaled, out = torch.empty_like(x), torch.empty_like(x)
    around_kernel[lambda meta: (triton.cdiv(512, meta["BLOCK"]),)](x, x, scaled, 512)
    within_kernel[lambda meta: (triton.cdiv(512, meta["BLOCK"]),)](scaled, out, 512)
    scale_kernel[lambda meta: (triton.cdiv(512, meta["BLOCK"]),)](x, scaled, 512, BLOCK=16)
    softmax_kernel[lambda meta: (8,)](scaled, out, 64, BLOCK=64)
    model(out).sum().backward()
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_real_triton_launches_as_is_expected_in_its_interpreter(tmp_path):
    (tmp_path / "interpreted.py").write_text(INTERPRETED)
    command = Command(sys.executable, "interpreted.py", folder=str(tmp_path))
    found = triton_kernels_of(request(command, QUICK, TRITON_INTERPRET="1"), 90)
    assert found.value is not None, found
    lines = {line.kernel.partition("@")[0]: line for line in parse_lines(found.value)}
    assert lines["__main__.scale_kernel"].values["BLOCK"] > 16
    assert lines["__main__.around_kernel"].values["BLOCK"] > 16, "heuristics around an autotuner"
    assert lines["__main__.within_kernel"].values["BLOCK"] > 16, "a block that a rule computes"
    softmax = lines.get("__main__.softmax_kernel")
    assert softmax is None or softmax.values["BLOCK"] >= 64
