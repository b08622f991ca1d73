"""The processes of a kernel's study, around kernels that are simulated: who compiles and measures
what and when, what fails, and what is kept when it is cut off.
"""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

import gpuadvisor
from gpuadvisor import best_points
from gpuadvisor.cli import main
from gpuadvisor.storage.kernel_caches import read
from tests import simulated_kernels
from tests.simulated_kernels import BAD, DEFAULT, read_log

HANGLESS = {**BAD, "hang": None}
"""Each point that hangs takes the whole time-out, which has to suit a slow machine."""
POINTS = 40
TOO_MANY_REGISTERS = 2
"""Points of more than 512 threads of 128 registers."""


@pytest.fixture
def tune(tmp_path, capsys, monkeypatch):
    """Tune the simulated kernel, and return the result and the log."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    file = tmp_path / "kernels.py"
    file.touch()

    def run(*arguments, status=0, **changes):
        python, log = simulated_kernels.python(tmp_path, **{"bad": HANGLESS, **changes})
        command = ["tune-kernel", str(file), "--python", str(python), "--json"]
        assert main([*command, *arguments]) == status
        return json.loads(capsys.readouterr().out)["kernels"], read_log(log)

    return run


def of(log, what):
    return [each for each in log if each[0] == what]


def test_what_fails_is_counted_and_takes_nothing_with_it(tune):
    (found,), log = tune("--jobs", "2", "--timeout", "8", bad=BAD)
    assert found["states"] == {
        "complete": POINTS - 5 - TOO_MANY_REGISTERS,
        "crashed": 1,
        "hung": 1,
        "wrong": 2,
        "unsupported": 1 + TOO_MANY_REGISTERS,
    }
    assert found["restarts"] == 2
    assert found["best"] == {"block": 128, "tile": 4}  # the one before it is wrong at second sight
    (late,) = [e for e in read_record(found).evaluations if dict(e.point) == BAD["later"]]
    assert (late.state, late.time_ms) == ("wrong", None)
    assert late.reason == "on other inputs than in its first check: element 0 is 1"
    assert any("3 points were left out" in each for each in found["remarks"])
    measured = [each[2] for each in of(log, "measure")]
    assert BAD["uncompiled"] not in measured
    assert not any(each["block"] > 512 and each["tile"] == 16 for each in measured)
    reasons = {e.reason for e in read_record(found).evaluations if e.state == "unsupported"}
    assert any("128 registers need more than the 65,536" in each for each in reasons)


def test_a_default_that_fails_takes_no_other_problem_with_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    file = tmp_path / "kernels.py"
    file.touch()
    settings = {"sizes": [8, 16, 32], "failing": [1], "bad": HANGLESS}
    python, _ = simulated_kernels.python(tmp_path, **settings)
    command = ["tune-kernel", str(file), "--python", str(python), "--jobs", "0", "--budget", "5"]
    assert main([*command, "--json"]) == 2
    out, error = capsys.readouterr()
    assert [each["problem"] for each in json.loads(out)["kernels"]] == [{"n": 8}, {"n": 32}]
    assert "kernel simulated, n=16: the default is wrong: element 0 is 1" in error
    settings["failing"] = [0, 1, 2]
    simulated_kernels.python(tmp_path, **settings)
    assert main(command) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("the default is wrong") == 3


def test_a_proof_that_crashes_loses_nothing_and_proves_nothing(tune):
    (found, other), _ = tune("--jobs", "0", sizes=[8, 16], proof_crashes=True)
    assert (found["verdict"], found["best"], found["speedup"]) == ("not_tried", None, None)
    assert found["states"] == other["states"]
    assert found["states"]["complete"] == POINTS - 2  # crash, wrong at first sight
    assert any("cannot be run again" in each for each in found["remarks"])


def test_what_was_found_is_kept_for_programs_and_for_a_page(tune, tmp_path, monkeypatch, capsys):
    (found,), _ = tune("--jobs", "0", "--kernel", "simulated", bytes=4.8e6)
    place = found["roofline"]["best"]
    assert place["bytes_per_s"] == pytest.approx(4.8e9 / found["best_ms"])
    assert [each["name"] for each in found["parameters"]] == ["block", "tile"]
    best_points.forget()
    point = gpuadvisor.best("simulated", gpu="NVIDIA H200", n=8)
    assert (point, point.found) == (found["best"], "tuned")
    assert gpuadvisor.best("simulated", gpu="9.0", n=16).found == "nearest_gpu"
    assert main(["kernels", "simulated", "--json"]) == 0
    (stored,) = json.loads(capsys.readouterr().out)["kernels"]
    assert {**stored, "evaluations": 0} == {**found, "evaluations": 0}
    monkeypatch.chdir(tmp_path)
    assert main(["report", "simulated"]) == 0
    assert "3 points were left out" in (tmp_path / "simulated.html").read_text()


def test_points_are_compiled_while_others_are_measured(tune):
    (found,), log = tune("--jobs", "3", compile_s=0.2, measure_s=0.02)
    compiled, measured = of(log, "compile"), of(log, "measure")
    assert len({each[5] for each in compiled}) == 3
    assert len(compiled) == sum(found["states"].values()) == POINTS
    assert min(each[3] for each in measured) < max(each[4] for each in compiled)
    complete = [each for each in read_record(found).evaluations if each.state == "complete"]
    assert all(each.compile_ms == 200 for each in complete)


def test_two_gpus_measure_side_by_side_and_nothing_twice(tune):
    _, log = tune("--jobs", "2", "--gpus", "0,1", measure_s=0.1)
    measured = of(log, "measure")
    assert {each[1] for each in measured} == {0, 1}
    points = [json.dumps(each[2]) for each in measured]
    assert len(points) == len(set(points))
    first, second = ([each for each in measured if each[1] == gpu] for gpu in (0, 1))
    assert any(one[3] < other[4] and other[3] < one[4] for one in first for other in second)
    for one, other in pairwise(sorted(first, key=lambda each: each[3])):
        assert one[4] <= other[3]  # a GPU does one thing at a time


def test_different_gpus_are_not_mixed(tune, capsys):
    with pytest.raises(json.JSONDecodeError):
        tune("--gpus", "0,1", status=2, devices=["NVIDIA H200", "NVIDIA L4"])


def test_without_processes_that_compile_all_is_done_where_it_is_measured(tune):
    (found,), log = tune("--jobs", "0", "--budget", "9")
    assert not of(log, "compile")
    assert sum(found["states"].values()) == len(of(log, "measure")) == 9


def test_compilers_that_fail_by_themselves_refuse_nothing(tune):
    (found,), log = tune("--jobs", "2", "--budget", "9", compiler_fails=True)
    assert len(of(log, "compile")) >= 9
    assert sum(found["states"].values()) == len(of(log, "measure")) == 9


@pytest.mark.parametrize(
    "goal, work, ends",
    [
        # 4.8 TB/s: the default of 1.4375 ms moves 3.45 GB at half of it.
        ("50", {"bytes": 3.45e9}, True),
        ("2.4TB/s", {"bytes": 3.45e9}, True),
        # 66.9 TFLOP/s of float32: 48.1e9 operations take half of the roofline's time.
        ("50%", {"flops": 48.2e9}, True),
        ("33 TFLOP/s", {"flops": 48.2e9}, True),
        # What is limited by its memory is not judged by its arithmetic, nor the other way round.
        ("50", {"bytes": 3.45e9, "flops": 1e6}, True),
        ("50", {"bytes": 1e3, "flops": 48.2e9}, True),
        ("99", {"bytes": 1.7e9, "flops": 24e9}, False),
    ],
)
def test_a_search_ends_at_the_share_of_the_roofline_that_is_asked_for(tune, goal, work, ends):
    (found,), _ = tune("--jobs", "0", "--stop-at", goal, **work)
    assert (sum(found["states"].values()) == 1) is ends
    assert any("good enough" in each for each in found["remarks"]) is ends


@pytest.mark.parametrize(
    "goal, changes, said",
    [
        ("fast", {}, "--stop-at fast: give a percentage of the roofline or a rate above zero"),
        ("0", {}, "--stop-at 0: give a percentage of the roofline or a rate above zero"),
        ("50", {}, "--stop-at: kernel simulated has neither bytes= nor flops="),
        ("2TB/s", {"flops": 1e9}, "--stop-at: kernel simulated has no bytes="),
        ("2TFLOP/s", {"bytes": 1e9}, "--stop-at: kernel simulated has no flops="),
        (
            "50",
            {"bytes": 1e9, "devices": ["NVIDIA Q9"]},
            "the memory bandwidth of NVIDIA Q9 is not known: give a rate, as 2TB/s",
        ),
    ],
)
def test_a_goal_that_nothing_can_be_measured_by_is_refused(tmp_path, capsys, goal, changes, said):
    python, _ = simulated_kernels.python(tmp_path, **changes)
    file = tmp_path / "kernels.py"
    file.touch()
    command = ["tune-kernel", str(file), "--python", str(python), "--jobs", "0"]
    assert main([*command, "--stop-at", goal]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_model_without_progress_ends_where_little_effort_is_asked_for(tune):
    strategy = ("--strategy", "model", "--jobs", "0")
    (quick,), _ = tune(*strategy, "--effort", "quick")
    (full,), _ = tune(*strategy)
    assert sum(quick["states"].values()) <= sum(full["states"].values()) == POINTS


def test_a_search_begins_with_what_was_best_for_another_size(tune):
    (_, large), log = tune("--jobs", "0", sizes=[8, 1024])
    began = [each[2] for each in of(log, "measure")][POINTS:]
    assert DEFAULT in began[:1]
    assert {"block": 128, "tile": 4} in began[1:3]
    assert any("best for another size" in each for each in large["remarks"])
    assert "what was best for n=8 takes 1.00 times the best one's time" in large["remarks"]


def test_a_search_begins_with_what_a_profile_of_the_kernel_asks_for(tune, tmp_path, capsys):
    planted = Path(__file__).parents[1] / "data" / "profiles" / "h100_planted.raw.csv.gz"
    (tmp_path / "planted.csv").write_bytes(gzip.decompress(planted.read_bytes()))
    assert main(["import", str(tmp_path / "planted.csv")]) == 0
    capsys.readouterr()
    search = ("--jobs", "0", "--strategy", "model", "--budget", "6")
    spills = {"name": "spill_local", "devices": ["NVIDIA H100 80GB HBM3"]}
    (found,), log = tune(*search, **spills)
    began = [each[2] for each in of(log, "measure")]
    assert began[:2] == [DEFAULT, {"block": 512, "tile": 1}]
    assert any(
        each.startswith("the profile planted finds local_memory") for each in found["remarks"]
    )
    (elsewhere,), _ = tune(*search, name="spill_local")
    assert not any("profile" in each for each in elsewhere["remarks"])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_was_evaluated_is_kept_and_not_evaluated_again(tune, tmp_path, monkeypatch, how):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    python, log = simulated_kernels.python(tmp_path, measure_s=0.4, bad=HANGLESS)
    command = [sys.executable, "-m", "gpuadvisor", "tune-kernel", str(tmp_path / "kernels.py")]
    process = subprocess.Popen(
        [*command, "--python", str(python), "--jobs", "2", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "GPUADVISOR_HOME": str(tmp_path / "home"),
            "TMPDIR": str(temporary),
        },
    )
    until = time.monotonic() + 120
    while len(of(read_log(log), "measure")) < 4 and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(how)
    out, _ = process.communicate(timeout=120)
    processes = {each[5] for each in read_log(log)}
    (record,) = (tmp_path / "home" / "kernels").rglob("*.json")
    kept = [dict(each.point) for each in read(record).evaluations]
    assert len(kept) >= 3
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert json.loads(out)["kernels"][0]["interrupted"] == "interrupted"
        assert not any(is_alive(each) for each in processes)
        assert not list(temporary.iterdir())
    before = len(read_log(log))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr("gpuadvisor.collectors.script.run_folder.YOUNG_S", 0.0)
    (found,), _ = tune("--resume", "--jobs", "2", measure_s=0.0)
    assert not list(temporary.iterdir())  # not even what a killed study left there
    assert sum(found["states"].values()) == POINTS
    again = [each[2] for each in of(read_log(log)[before:], "measure")]
    assert not [point for point in again if point in kept]


@pytest.fixture
def tune_beside_a_driver(tmp_path, nvml_environ):
    """Tune the simulated kernel in a process that has a driver's library, for clocks and energy."""
    devices = ["NVIDIA H100 80GB HBM3"]
    python, _ = simulated_kernels.python(tmp_path, devices=devices, bad=HANGLESS)
    (tmp_path / "kernels.py").touch()

    def run(*arguments, **environment):
        command = [sys.executable, "-m", "gpuadvisor", "tune-kernel", str(tmp_path / "kernels.py")]
        return subprocess.run(
            [*command, "--python", str(python), "--jobs", "0", *arguments],
            capture_output=True,
            text=True,
            env={**nvml_environ, "GPUADVISOR_HOME": str(tmp_path / "home"), **environment},
        )

    return run


def test_clocks_and_energy_are_read_from_the_driver(tune_beside_a_driver):
    done = tune_beside_a_driver("--objective", "energy", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["kernels"]
    assert found["best"] == {"block": 128, "tile": 4}
    assert found["speedup"]["ratio"] == pytest.approx(1.4375, rel=1e-3)
    assert any("mJ a launch of the default" in each for each in found["remarks"])
    assert any("SM clock" in each and "MHz in" in each for each in found["remarks"])
    complete = [e for e in read_record(found).evaluations if e.state == "complete"]
    # The driver's counter goes up by 1.5 J between two readings.
    for each in complete:
        ratio = each.default_energy_mj / each.energy_mj
        assert ratio == pytest.approx(each.default_ms[0] / each.time_ms, rel=1e-3)
    assert all(e.clock_mhz for e in complete)


def test_energy_that_is_not_counted_is_said(tune_beside_a_driver):
    done = tune_beside_a_driver(
        "--objective", "energy", FAKE_NVML_FAULTS="nvmlDeviceGetTotalEnergyConsumption=3"
    )
    assert done.returncode == 2
    assert "--objective energy: the energy of NVIDIA H100" in done.stderr
    assert "is not measured" in done.stderr


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def read_record(found):
    return read(Path(found["record"]))
