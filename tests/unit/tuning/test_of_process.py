"""How the command line of a running process becomes a `gpuadvisor tune` that does the same."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.live.of_process import Process, of, proposal

PYTHON = os.path.realpath(sys.executable)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with scripts, in which a process was started."""
    for name in ("train.py", "my script.py", "sub/train.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    return tmp_path


def process(line, folder, **changes):
    told = {"folder": str(folder), "executable": PYTHON, "environment": {}, **changes}
    return Process((PYTHON, *shlex.split(line)), **told)


@pytest.mark.parametrize(
    ("line", "tuned"),
    [
        ("train.py", "train.py"),
        ("train.py --epochs 1 -- -m x", "train.py -- --epochs 1 -- -m x"),
        ("'my script.py' 'a b' ''", "'my script.py' -- 'a b' ''"),
        ("-u -O ./train.py", "./train.py"),
        ("-W ignore -X dev train.py", "train.py"),
        ("-Wignore -Xdev -- train.py", "train.py"),
        ("--check-hash-based-pycs never train.py", "train.py"),
        ("-m package.train --lr 0.1", "-m package.train -- --lr 0.1"),
        ("-um package.train -c x", "-m package.train -- -c x"),
        ("-mpackage.train", "-m package.train"),
    ],
)
def test_a_study_runs_what_the_process_runs(line, tuned, folder):
    found = of(process(line, folder))
    assert found.command.folder == str(folder)
    expected = ["tune", "--python", PYTHON, "--scratch", *shlex.split(tuned)]
    assert found.words(scratch=True) == expected
    assert shlex.split(found.line(scratch=False))[1:] == [w for w in expected if w != "--scratch"]


def test_options_of_python_become_variables_and_what_cannot_is_told(folder):
    given = {"PYTHONWARNINGS": "error", "HOME": "/home/ada", "GPUADVISOR_HOME": "/elsewhere"}
    found = of(process("-uOO -B -W once -X importtime -E train.py", folder, environment=given))
    assert found.environment == {
        "PYTHONWARNINGS": "error,once", "HOME": "/home/ada", "PYTHONUNBUFFERED": "1",
        "PYTHONOPTIMIZE": "2", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    assert found.dropped == ("-X importtime", "-E")
    assert "HOME" not in found.mattering()
    assert found.on("GPU-7").mattering()["CUDA_VISIBLE_DEVICES"] == "GPU-7"


def test_a_process_that_left_its_folder_is_tuned_where_it_was_started(folder):
    away = folder / "outputs"
    away.mkdir()
    found = of(process("train.py", away, environment={"PWD": str(folder)}))
    assert found.command.folder == str(folder)
    # a PWD of whoever started it means nothing where its script is in its own folder
    found = of(process("train.py", folder / "sub", environment={"PWD": str(folder)}))
    assert found.command.folder == str(folder / "sub")


def test_a_virtual_environment_is_kept(folder):
    link = folder / "venv" / "bin" / "python"
    link.parent.mkdir(parents=True)
    link.symlink_to(PYTHON)
    for words, environment in (
        ((str(link),), {}),
        (("venv/bin/python",), {}),
        (("python",), {"PATH": str(link.parent)}),
        (("renamed",), {"VIRTUAL_ENV": str(folder / "venv")}),
    ):
        found = of(Process((*words, "train.py"), str(folder), PYTHON, environment))
        assert Path(found.command.python) == link
    other = Process(("python", "train.py"), str(folder), PYTHON, {"PATH": "/nowhere"})
    assert of(other).command.python == PYTHON


@pytest.mark.parametrize(
    ("line", "changes", "why"),
    [
        ("", {}, "standard input"),
        ("-", {}, "standard input"),
        ("-c 'import torch'", {}, "after -c"),
        ("-uc 'import torch'", {}, "after -c"),
        ("gone.py", {}, "there is no script gone.py"),
        ("sub", {}, "sub is a folder"),
        ("train.py", {"executable": "/usr/bin/solver"}, "runs solver, and no Python script"),
        ("train.py", {"executable": "/gone/python3"}, "its Python /gone/python3 is gone"),
        ("-m torch.distributed.run train.py", {}, "several processes"),
        ("/usr/bin/torchrun train.py", {}, "several processes"),
        ("-u train.py", {"environment": {"WORLD_SIZE": "8"}}, "several processes"),
        ("train.py", {"environment": {"TORCHELASTIC_RUN_ID": "1"}}, "several processes"),
        ("-m ipykernel_launcher -f k.json", {}, "a notebook's"),
        ("-m gpuadvisor watch", {}, "gpuadvisor itself"),
        ("train.py", {"environment": {"GPUADVISOR_SPECIFICATION": "{}"}}, "gpuadvisor started it"),
    ],
)  # fmt: skip
def test_what_is_no_script_of_one_process_is_a_sentence(line, changes, why, folder):
    with pytest.raises(UsageError, match=why):
        of(process(line, folder, **changes))


def test_a_deleted_folder_and_an_ended_process_are_sentences(folder):
    gone = f"{folder}/gone"
    with pytest.raises(UsageError, match=r"its folder .*gone is gone"):
        of(process(str(folder / "train.py"), gone))
    with pytest.raises(UsageError, match="has ended"):
        proposal(2**22 + 1)  # above the greatest number that Linux gives
