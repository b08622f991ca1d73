"""Commands that measure say what is wrong with what is asked before they say who else measures."""

import shlex
import sys
import uuid
from pathlib import Path

import pytest

from gpuadvisor import cli
from gpuadvisor.collectors.interpreter import Inspection, TargetPython, TorchGpu
from gpuadvisor.domain.device import Device
from gpuadvisor.storage.locks import device_locked
from gpuadvisor.tuning import preparation
from tests.unit.tuning.test_gate import commit, git

PLAN = """[plan]
format = 2
objective = "throughput"
script = "train.py"
level = "balanced"

[knobs]
tf32 = true
"""
OCCUPIED = "another gpuadvisor measures on "


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
    """What a command says on a GPU on which something else is measured; nothing runs there."""
    gpu = Device("cuda", 0, "NVIDIA H100", f"GPU-{uuid.uuid4()}")
    card = TorchGpu("NVIDIA H100", (9, 0), 80 << 30, gpu.uuid)
    python = TargetPython(sys.executable, "3.12.3", torch="2.9.0", gpus=(card,))
    monkeypatch.setattr(preparation, "describe_python", lambda python_, kept: python)
    monkeypatch.setattr(Inspection, "answer", lambda self: python)
    monkeypatch.setattr(preparation, "list_gpus", lambda: [gpu])
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    git("init", "--quiet", "-b", "main")
    commit("pass")
    commit("pass # again")
    Path("train.plan.toml").write_text(PLAN)

    def told(line):
        with device_locked(gpu.uuid):
            status = cli.main(shlex.split(line))
        said = [each for each in capsys.readouterr().err.splitlines() if "gpuadvisor: " in each]
        assert git("worktree", "list").count("\n") == 0
        return status, said[-1]

    return told


COMMANDS = [
    "gate --base HEAD train.py",
    "gate bisect HEAD~1..HEAD train.py",
    "gate init train.py",
    "gate record --name x train.py",
    "gate check --name x train.py",
    "tune train.py",
    "verify --plan train.plan.toml train.py",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_who_else_measures_is_told(told, line):
    status, said = told(line)
    assert status == 7
    assert OCCUPIED in said


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("gate --base lost train.py", "there is no commit lost"),
        ("gate --base HEAD --head lost train.py", "there is no commit lost"),
        ("gate --base HEAD lost.py", "there is no script lost.py"),
        ("gate --base HEAD --link data train.py", "--link data: there is no"),
        ("gate --base HEAD --metric fast train.py", "fast"),
        ("gate --base-folder . --head-folder lost train.py", "there is no folder lost"),
        ("gate bisect lost..HEAD train.py", "there is no commit lost"),
        ("gate bisect HEAD~1..HEAD --link data train.py", "--link data: there is no"),
        ("gate init --link data train.py", "--link data: there is no"),
        ("gate record --name x lost.py", "there is no script lost.py"),
        ("gate check --name x lost.py", "there is no script lost.py"),
        ("tune --resume train.py", "--resume: there is no unfinished study"),
        ("tune --resume --study lost train.py", "lost"),
        ("verify --plan train.plan.toml lost.py", "there is no script lost.py"),
        ("verify --plan lost.toml train.py", "lost.toml"),
    ],
)
def test_what_is_wrong_comes_first(told, line, sentence):
    status, said = told(line)
    assert status in (2, 5)
    assert sentence in said
    assert OCCUPIED not in said
