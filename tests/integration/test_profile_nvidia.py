"""`gpuadvisor profile --nsys` and `--ncu`, with programs in the place of NVIDIA's that write
prepared files."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.integration.program import Running, run

PROFILES = Path(__file__).parents[1] / "data" / "profiles"

NSYS = """#!{python}
import os, pathlib, shutil, subprocess, sys
options = [word for word in sys.argv[1:] if word.startswith("-")]
pathlib.Path({log!r}).write_text(" ".join(sys.argv))
output = next(o for o in options if o.startswith("--output=")).partition("=")[2]
program = sys.argv[2:]
while program[0].startswith("-"):
    program.pop(0)
{before}
status = subprocess.call(program)
shutil.copyfile({prepared!r}, output + ".sqlite")
sys.exit(status)
"""
NCU = """#!{python}
import pathlib, subprocess, sys
words = sys.argv[1:]
if words[0] == "--import":
    sys.stdout.write(pathlib.Path({prepared!r}).read_text())
    sys.exit(0)
pathlib.Path({log!r}).write_text(" ".join(sys.argv))
{before}
print("==PROF== Connected to process 1")
status = subprocess.call(words[words.index("--kill") + 2:])
report = next(w for w in words if w.startswith("--export=")).partition("=")[2]
pathlib.Path(report).write_text("report")
sys.exit(status)
"""
FORBIDDEN = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0."
)


@pytest.fixture
def tools(tmp_path):
    """A folder for PATH, and a function that puts a tool there."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, packed in (("sqlite", "a100_cloverleaf.sqlite"), ("csv", "h100_planted.raw.csv")):
        with gzip.open(PROFILES / f"{packed}.gz") as source:
            (folder / f"prepared.{name}").write_bytes(source.read())

    def install(name: str, text: str, before: str = "") -> Path:
        prepared = str(folder / f"prepared.{'sqlite' if name == 'nsys' else 'csv'}")
        log = folder / f"{name}.log"
        path = folder / name
        path.write_text(
            text.format(python=sys.executable, log=str(log), prepared=prepared, before=before)
        )
        path.chmod(0o755)
        return log

    return folder, install


def profile(run, tmp_path: Path, folder: Path, *words: str):
    return run(tmp_path, "profile", *words, PATH=f"{folder}:{os.environ['PATH']}")


def test_nsys_profiles_any_program(tmp_path, tools):
    folder, install = tools
    log = install("nsys", NSYS)
    kept = tmp_path / "kept.sqlite"
    answer = profile(
        run, tmp_path, folder, "--nsys", "--json", "--output", str(kept), "--", "true", "x"
    )
    assert answer.status == 0, answer.err
    told = json.loads(answer.out)
    assert told["tool"] == "nsys"
    assert told["profile"]["source"] == "nsys"
    assert told["profile"]["name"] == "true"
    assert told["profile"]["rows"]["kernels"] == 1312
    assert told["time"]["devices"][0]["busy_share"] > 0
    assert told["time"]["kernels"][0]["share"] > 0
    called = log.read_text()
    assert "profile --trace=cuda,nvtx,osrt " in called
    assert "--export=sqlite" in called
    assert called.endswith(f"{shutil.which('true')} x")
    assert kept.read_bytes() == (folder / "prepared.sqlite").read_bytes()


def test_nsys_ends_a_program_after_the_seconds(tmp_path, tools, here):
    folder, install = tools
    log = install("nsys", NSYS)
    assert profile(here, tmp_path, folder, "--nsys", "true", "--seconds", "3").status == 0
    assert "--duration=3" in log.read_text()


def test_ncu_looks_at_the_dominant_kernels_that_nsys_found(tmp_path, tools, here):
    folder, install = tools
    install("nsys", NSYS)
    log = install("ncu", NCU)
    answer = profile(here, tmp_path, folder, "--ncu", "--json", "--", "true")
    assert answer.status == 0, answer.err
    told = json.loads(answer.out)
    assert told["profile"]["source"] == "ncu"
    assert told["profile"]["rows"]["metrics"] > 0
    called = log.read_text()
    assert "--kernel-name regex:^(" in called
    assert "--launch-count" in called
    assert "--set full " in called  # the rules need its tables
    assert "the counters of " in answer.err


def test_ncu_without_nsys_looks_at_the_first_launches(tmp_path, tools, here):
    folder, install = tools
    log = install("ncu", NCU)
    answer = here(tmp_path, "profile", "--ncu", "true", PATH=f"{folder}:/usr/bin:/bin")
    if shutil.which("nsys", path="/usr/bin:/bin"):
        pytest.skip("nsys is installed here")
    assert answer.status == 0, answer.err
    assert "--launch-count 20" in log.read_text()
    assert "--kernel-name" not in log.read_text()


@pytest.mark.parametrize(
    ("tool", "before", "status", "sentence"),
    [
        ("ncu", f"print({FORBIDDEN!r}); sys.exit(1)", 1, "NVreg_RestrictProfilingToAdminUsers=0"),
        (
            "ncu",
            "print('==WARNING== No kernels were profiled.'); sys.exit(0)",
            1,
            "/true: does it use the GPU?",
        ),
        (
            "nsys",
            "print('unrecognised option --trace'); sys.exit(1)",
            1,
            "nsys left no result: it said 'unrecognised option --trace'",
        ),
        ("nsys", "sys.exit(7)", 1, "nsys left no result: its exit status was 7"),
    ],
    ids=["forbidden", "no kernel", "own error", "silent"],
)
def test_what_a_tool_cannot_do_is_said_in_its_own_words(
    tmp_path, tools, tool, before, status, sentence, here
):
    folder, install = tools
    install(tool, NSYS if tool == "nsys" else NCU, before)
    answer = here(tmp_path, "profile", f"--{tool}", "true", PATH=f"{folder}:/usr/bin:/bin")
    assert answer.status == status
    assert sentence in answer.sentence


def test_a_tool_that_is_not_installed(tmp_path, here):
    for tool, name in (("nsys", "Nsight Systems"), ("ncu", "Nsight Compute")):
        if shutil.which(tool):
            pytest.skip(f"{tool} is installed here")
        answer = here(tmp_path, "profile", f"--{tool}", "true")
        assert answer.status == 2
        assert f"--{tool} needs NVIDIA {name}" in answer.sentence


def test_there_is_no_such_program(tmp_path, tools, here):
    folder, install = tools
    install("nsys", NSYS)
    answer = profile(here, tmp_path, folder, "--nsys", "./a.out")
    assert answer.status == 2
    assert "the program ./a.out does not exist" in answer.sentence


def left(folder: Path) -> list[psutil.Process]:
    """The processes in a folder, but for the one of the tests."""
    every = psutil.process_iter(["cwd", "pid"])
    return [p for p in every if (p.info["cwd"], p.pid == os.getpid()) == (str(folder), False)]


def test_a_program_that_takes_too_long_is_ended_with_its_tool(tmp_path, tools, here):
    folder, install = tools
    install("nsys", NSYS)
    words = ("--nsys", "--timeout", "1", "--", "sleep", "300")
    answer = profile(here, tmp_path, folder, *words)
    assert answer.status == 1
    assert "nsys left no result: its time was over" in answer.sentence
    assert not left(tmp_path)


def test_ctrl_c_ends_the_tool_and_the_program(tmp_path, tools):
    folder, install = tools
    log = install("nsys", NSYS)
    path = f"{folder}:{os.environ['PATH']}"
    running = Running(tmp_path, "profile", "--nsys", "--", "sleep", "300", PATH=path)
    while not log.exists() and running.process.poll() is None:
        time.sleep(0.01)
    running.process.send_signal(2)
    answer = running.end()
    assert answer.status == 130
    assert "interrupted: nothing was kept" in answer.err
    assert not left(tmp_path)


def test_a_script_that_uses_no_gpu_is_nothing_for_nvidias_tools(tmp_path, tools, here):
    pytest.importorskip("torch")
    folder, install = tools
    install("nsys", NSYS)
    (tmp_path / "train.py").write_text(
        "import time, torch\n"
        "model = torch.nn.Linear(8, 1)\n"
        "for _ in range(1000):\n"
        "    model(torch.ones(4, 8)).mean().backward()\n"
        "    time.sleep(0.02)\n"
    )
    answer = profile(here, tmp_path, folder, "--nsys", "train.py")
    assert answer.status == 3
    assert "it had used no GPU when it was warm" in answer.err
    assert not left(tmp_path)
