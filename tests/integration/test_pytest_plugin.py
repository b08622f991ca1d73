"""The pytest plugin on real functions: of a GPU, and of two versions of a repository."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.integration import program

pytest_plugins = ["pytester"]
PLUGIN = ("-p", "gpuadvisor.pytest_plugin", "-q")


@pytest.fixture(autouse=True)
def alone(monkeypatch, pytester, tmp_path):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]")


MATRICES = """
import pytest, torch

def test_long(gpu_benchmark):
    a = torch.randn(4096, 4096, device="cuda")
    gpu_benchmark(torch.mm, a, a)

@pytest.mark.gpu_benchmark(flush_l2=True)
def test_flushed(gpu_benchmark):
    a = torch.randn(1 << 20, device="cuda")  # 4 MiB, which the L2 cache holds
    gpu_benchmark(torch.add, a, 1)

def test_held(gpu_benchmark):
    a = torch.randn(1 << 20, device="cuda")
    gpu_benchmark(torch.add, a, 1)
"""


@pytest.mark.gpu
def test_on_a_gpu_events_are_compared(pytester):
    """A product of matrices takes what its operations need, and not what it takes to start."""
    pytester.makepyfile(test_it=MATRICES)
    result = pytester.runpytest_subprocess(*PLUGIN, "--gpu-benchmark-json=found.json")
    result.assert_outcomes(passed=3)
    written = json.loads((pytester.path / "found.json").read_text())["benchmarks"]
    found = {each["name"]: each for each in written}
    assert {each["options"]["timer"] for each in written} == {"cuda_event"}
    median_s = {name: each["stats"]["median"] for name, each in found.items()}
    # 2 x 4096^3 operations at 10 to 1000 TFLOP/s; what only starts it would take microseconds.
    assert 0.00014 < median_s["test_long"] < 0.014
    assert found["test_held"]["stats"]["iterations"] > 1
    assert median_s["test_flushed"] > 1e-6


WORK = "def work():\n    return sum(range({}))\n"
TESTS = """
from pathlib import Path
from built import times
from lib import work

def test_work(gpu_benchmark):
    assert (times, Path("data").read_text()) == (2, "linked")
    gpu_benchmark(work)

def test_other():
    pass
"""


def git(folder, *words):
    line = ["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=n@n", *words]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def commit(folder):
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "base")


@pytest.mark.slow
def test_what_got_slower_since_a_commit_fails(pytester, cpu):
    """Each version gets what git does not hold, and builds what it needs."""
    (pytester.path / ".gitignore").write_text("data\nbuilt.py\n__pycache__\n")
    pytester.makepyfile(lib=WORK.format(20_000), test_it=TESTS)
    commit(pytester.path)
    pytester.makepyfile(lib=WORK.format(60_000), built="times = 2")
    (pytester.path / "data").write_text("linked")
    result = pytester.runpytest_subprocess(
        *PLUGIN,
        "--gpuadvisor-base=HEAD",
        "--gpuadvisor-link=data",
        "--gpuadvisor-setup-cmd=echo 'times = 2' > built.py",
        "--gpu-benchmark-max-time=0.1",
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*% longer than in HEAD (*) (+* in * pairs of fresh processes)*"])
    assert len(git(pytester.path, "worktree", "list").splitlines()) == 1


LONG = """
import os, subprocess, sys, time
from pathlib import Path

def test_long(gpu_benchmark):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {child.pid} end")
    gpu_benchmark(time.sleep, 600)
"""


def test_ctrl_c_leaves_no_process_no_folder_and_no_work_tree(pytester, tmp_path, cpu):
    pytester.makepyfile(test_it=LONG)
    commit(pytester.path)
    pids, scratch = tmp_path / "pids", tmp_path / "scratch"
    scratch.mkdir()
    line = [*program.alone(), sys.executable, "-m", "pytest", *PLUGIN, "--gpuadvisor-base=HEAD"]
    variables = {**os.environ, "PIDS": str(pids), "TMPDIR": str(scratch)}
    process = subprocess.Popen(
        line, cwd=pytester.path, env=variables, stdout=subprocess.PIPE, text=True
    )
    until = time.monotonic() + program.PATIENCE_S
    while not (pids.exists() and pids.read_text().endswith("end")):
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.05)
    assert any(scratch.iterdir()) and git(pytester.path, "worktree", "list").count("\n") == 3
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=program.PATIENCE_S)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert not [pid for pid in map(int, pids.read_text().split()[:2]) if is_alive(pid)]
    assert list(scratch.iterdir()) == []
    assert git(pytester.path, "worktree", "list").count("\n") == 1


def is_alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
