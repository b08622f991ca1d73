"""What is tried first on a machine with GPUs: each step ends, and what failed is told."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpuadvisor.domain.kernel_records import Evaluation, KernelResult
from gpuadvisor.domain.study import TrialState, Verdict
from gpuadvisor.reports.kernel import document as kernels_document

ROOT = Path(__file__).parents[2]
FILE = ROOT / "benchmarks" / "gpu_smoke.py"
LOADED = importlib.util.spec_from_file_location("gpu_smoke", FILE)
sys.modules["gpu_smoke"] = module = importlib.util.module_from_spec(LOADED)
LOADED.loader.exec_module(module)
Smoke, Step, failures, STEPS = module.Smoke, module.Step, module.failures, module.STEPS
WHEELS = ROOT / "benchmarks" / "gpu_wheels.sh"


def step(name, line, **more):
    return Step(name, ("bash", "-c", line), **more)


def said_of(*steps, gpus=("0",), seconds=300.0):
    smoke = Smoke(steps, gpus, seconds)
    smoke.run()
    return "\n".join(failures(smoke.ended, steps))


def test_steps_are_named_once_and_what_they_run_is_there():
    assert len({each.name for each in STEPS}) == len(STEPS)
    words = [word for each in STEPS for line in each.words for word in line.split()]
    named = [word for word in words if word.startswith(("benchmarks/", "examples/", "tests/"))]
    assert len(named) >= 20
    assert not [word for word in named if not (ROOT / word.partition("::")[0]).exists()]


@pytest.mark.parametrize("path", sorted({w for s in STEPS for w in s.words if "::" in w}))
def test_a_test_of_a_step_is_there(path):
    file, _, name = path.partition("::")
    text = (ROOT / file).read_text("utf-8")
    last = name.rpartition("::")[2].partition("[")[0]
    assert re.search(rf"^\s*(def|class) {last}\b", text, re.MULTILINE)


def test_what_fails_is_told_with_its_last_lines_in_the_order_of_steps(tmp_path):
    said = said_of(
        step("slow", "sleep 600", limit_s=0.5),
        step("status", "echo begun; echo why; exit 3"),
        step("well", "echo fine"),
        step("skipped", "echo 1 skipped", wrong=module.SKIPPED),
        step("both are fine", "exit 1", statuses=(0, 1)),
    )
    slow, status, skipped = re.split(r"\n(?=\n-- )", said)
    assert "-- slow: too long" in slow
    assert status.splitlines()[1].startswith("-- status: status 3, after")
    assert status.splitlines()[2:] == ["begun", "why"]
    assert "-- skipped: it says '1 skipped'" in skipped


@pytest.mark.parametrize(
    ("state", "is_fault"),
    [(TrialState.CRASHED, True), (TrialState.HUNG, True), (TrialState.WRONG, True),
     (TrialState.OUT_OF_MEMORY, True), (TrialState.UNSUPPORTED, False)],
)  # fmt: skip
def test_points_that_fail_are_a_fault_unless_no_gpu_could_run_them(state, is_fault):
    point = {"block": 32}
    evaluations = (
        Evaluation(point, TrialState.COMPLETE, times_ms=(1.0,), default_ms=(1.0,)),
        Evaluation({"block": 64}, state, "why"),
    )
    result = KernelResult("add", {}, "H100", 2, point, Verdict.NOT_TRIED, evaluations=evaluations)
    said = "\n".join(kernels_document.lines(result))
    ended = module.Ended(module.kernels("transpose"), 0, 1.0, said)
    assert bool(ended.fault) == is_fault, said


def test_a_step_that_wants_a_gpu_alone_has_the_last_one(tmp_path):
    kept = tmp_path / "said"
    line = f"echo {{}} $CUDA_VISIBLE_DEVICES $GPUADVISOR_HOME >> {kept}"
    steps = [step(f"{n}", line.format(n), is_alone=n == 0) for n in range(6)]
    assert said_of(*steps, gpus=("4", "7")) == ""
    found = [each.split() for each in kept.read_text().splitlines()]
    assert {number: gpu for number, gpu, _ in found} == {"0": "7"} | dict.fromkeys("12345", "4")
    assert len({home for _, _, home in found}) == len(steps)
    kept.unlink()
    assert said_of(*steps) == ""
    assert kept.read_text().splitlines()[-1].startswith("0 0 ")  # after the others


def test_what_there_was_no_time_for_is_told():
    said = said_of(step("first", "sleep 600"), step("alone", "true", is_alone=True), seconds=0.5)
    assert "-- first: too long" in said
    assert "-- alone: too long, after 0 s\nthe time was up before it began" in said


def test_without_a_gpu_nothing_is_tried(tmp_path):
    run = subprocess.run(
        [sys.executable, str(FILE)],
        env={"CUDA_VISIBLE_DEVICES": "", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (1, "no GPU is visible: nothing of this can be tried\n")


def test_wheels_are_carried_of_all_that_an_image_with_torch_lacks():
    """Whoever adds a dependency says whether it has to be carried."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = pyproject["dependency-groups"]
    asked = [*pyproject["project"]["dependencies"], *groups["test"], *groups["kernels"]]
    names = {re.match(r"[\w.-]+", each)[0].replace("_", "-").lower() for each in asked}
    text = WHEELS.read_text("utf-8")
    known = " ".join(
        re.search(rf'^{name}="([^"]+)"', text, re.M)[1] for name in ("carried", "there")
    )
    left_out = set(re.findall(r'"([\w-]+)"', re.search(r"left_out = \{(.+)\}", text)[1]))
    assert names - left_out <= set(known.split())


def test_a_wrong_call_of_the_script_for_wheels_says_how_it_is_called():
    run = subprocess.run(["bash", WHEELS, "nothing"], capture_output=True, text=True)
    assert run.returncode == 2
    assert "gpu_wheels.sh install FOLDER [PYTHON]" in run.stderr
