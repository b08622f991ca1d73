"""Files that runs leave are named, and no others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.tuning.trials import leftovers
from gpuadvisor.tuning.trials.leftovers import left_since, look, written_since


@pytest.fixture
def command(tmp_path):
    for name in ("train.py", "data/a", "data/b", ".git/index", "venv/pyvenv.cfg", "venv/x"):
        path = tmp_path / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return Command("python", "train.py", folder=str(tmp_path / "work"))


def write(command: Command, name: str, text: str = "1") -> Path:
    path = Path(command.folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_new_and_changed_files_are_left(command):
    before = look(command)
    write(command, "data/a", "other")
    write(command, "runs/1/last.pt")
    write(command, "log.txt")
    write(command, "data/b").unlink()
    assert left_since(before, command, ()) == ("data/a", "log.txt", "runs/1/last.pt")


def test_what_was_written_since_a_time(command):
    write(command, "old.txt")
    for path in Path(command.folder).rglob("*"):
        os.utime(path, (1e9, 1e9))
    write(command, "run.lock")
    assert written_since(1.5e9, command, ()) == ("run.lock",)
    assert written_since(1.5e9, command, (Path(command.folder),)) == ()


def test_a_file_of_equal_size_that_was_written_again_is_left(command):
    before = look(command)
    os.utime(write(command, "data/a", "data/a"), ns=(1, 1))
    assert left_since(before, command, ()) == ("data/a",)


def test_nothing_is_left_by_tools_environments_and_gpuadvisor(command):
    before = look(command)
    for name in (".git/index", "venv/y", "__pycache__/a.pyc", "deep/__pycache__/b.pyc"):
        write(command, name, "new")
    plan, store = write(command, "train.plan.toml"), write(command, "store/studies.db").parent
    assert left_since(before, command, (plan, store)) == ()


def test_the_file_that_the_output_goes_to_is_not_left_by_runs(command):
    text = (
        "from gpuadvisor.collectors.script.request import Command\n"
        "from gpuadvisor.tuning.trials.leftovers import left_since, look\n"
        "import sys\n"
        "command = Command('python', 'train.py')\n"
        "before = look(command)\n"
        "print('more', flush=True)\n"
        "open('left', 'w').close()\n"
        "print(left_since(before, command, ()), file=sys.stderr)"
    )
    with Path(command.folder, "out.txt").open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", text],
            cwd=command.folder,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )
    assert done.stderr == "('left',)\n"


def test_the_folder_of_a_script_elsewhere_is_looked_at_too(command, tmp_path):
    (tmp_path / "scripts").mkdir()
    elsewhere = Command("python", "../scripts/train.py", folder=command.folder)
    before = look(elsewhere)
    left = tmp_path / "scripts" / "left"
    left.write_text("1")
    assert left_since(before, elsewhere, ()) == (str(left),)


def test_what_was_not_reached_before_is_not_called_left(command, monkeypatch):
    for number in range(4):
        write(command, f"data/{number}/file")
    monkeypatch.setattr(leftovers, "MOST_FILES", 4)  # train.py, data/a, data/b, data/0/file
    before = look(command)
    monkeypatch.setattr(leftovers, "MOST_FILES", 100)
    write(command, "data/0/left")
    write(command, "data/3/out_of_sight")
    write(command, "new/left")
    assert left_since(before, command, ()) == ("data/0/left", "new/left")
