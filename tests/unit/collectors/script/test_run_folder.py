"""What a killed gpuadvisor leaves in the folder for temporary files."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.run_folder import PREFIX, YOUNG_S, run_folder

HOLD = (
    "from gpuadvisor.collectors.script.run_folder import run_folder\n"
    "import time\n"
    "with run_folder() as folder: print(folder, flush=True); time.sleep(600)"
)


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def age(folder: Path) -> None:
    now = folder.stat().st_mtime
    os.utime(folder, (now, now - 2 * YOUNG_S))


def test_it_is_gone_afterwards():
    with run_folder() as folder:
        assert folder.is_dir()
    assert not folder.exists()


def test_it_goes_with_what_nobody_has_a_right_to():
    with run_folder() as folder:
        (folder / "work" / "work" / "deep").mkdir(parents=True)
        (folder / "link").symlink_to("work")
        (folder / "work" / "work").chmod(0)
        (folder / "work").chmod(0o500)
    assert not folder.exists()


def test_that_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not():
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as other:
        folder = Path(other.stdout.readline().strip())
        age(folder)
        with run_folder():
            assert folder.is_dir()
        other.send_signal(signal.SIGKILL)
    assert folder.is_dir()
    with run_folder():
        assert not folder.exists()


def test_another_that_begins_removes_none_that_is_just_being_removed(monkeypatch):
    remove, found = shutil.rmtree, []

    def removed(path):
        begin = HOLD.replace("time.sleep(600)", "")
        subprocess.run([sys.executable, "-c", begin], stdout=subprocess.DEVNULL, check=True)
        found.append(Path(path).is_dir())
        remove(path)

    with run_folder() as folder:
        age(folder)
        monkeypatch.setattr(shutil, "rmtree", removed)
    assert found == [True]
    assert not folder.exists()


def test_one_that_somebody_else_removed_ends_nothing():
    with run_folder() as folder:
        folder.rmdir()
    assert not folder.exists()


def test_a_new_one_may_not_be_locked_yet(tmp_path):
    young = tmp_path / f"{PREFIX}young"
    young.mkdir()
    with run_folder():
        assert young.is_dir()
