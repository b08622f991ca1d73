"""Reports of Nsight Systems, exported by the user's own nsys: here a script in its place."""

import os
import signal
import time
from pathlib import Path

import pytest

from gpuadvisor.collectors.nsight import systems_report
from gpuadvisor.columns import MemoryProfile
from gpuadvisor.errors import UsageError
from tests.nsys_files import tables, write


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "-run 1.nsys-rep"
    path.write_bytes(b"what only nsys reads")
    return path


@pytest.fixture
def nsys(tmp_path, monkeypatch):
    """A function that puts a program in the place of nsys."""

    def make(body):
        path = tmp_path / "bin" / "nsys"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        monkeypatch.setenv("NSYS", str(path))
        return path

    return make


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """Where temporary files go, to see whether any is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def read(path, **options):
    profile = MemoryProfile()
    profile.finish(systems_report.read(path, profile, **options))
    return profile


def test_what_nsys_exports_is_read_and_removed(report, nsys, tmp_path, temporary_folder):
    export = write(tmp_path / "export.sqlite", tables())
    nsys(f'echo "$@" > {tmp_path}/arguments; cp {export} "$5"')
    assert read(report).rows("kernels") == 1
    arguments = (tmp_path / "arguments").read_text()
    assert arguments.startswith("export --type sqlite --output ")
    assert arguments.endswith(f"--force-overwrite true {report}\n")
    assert list(temporary_folder.iterdir()) == []


def test_the_first_nsys_on_the_path_is_taken(report, nsys, tmp_path, monkeypatch):
    export = write(tmp_path / "export.sqlite", tables())
    program = nsys(f'cp {export} "$5"')
    monkeypatch.delenv("NSYS")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert read(report).rows("kernels") == 1


def test_without_nsys_there_are_two_ways_out(report, monkeypatch, tmp_path):
    monkeypatch.delenv("NSYS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"set NSYS .*--type sqlite"):
        read(report)


def test_an_nsys_that_refuses_the_version_is_quoted(report, nsys, temporary_folder):
    nsys("echo Processing; echo 'Version number is invalid.' >&2; exit 1")
    with pytest.raises(UsageError, match=r"\(Version number is invalid\): use the version"):
        read(report)
    assert list(temporary_folder.iterdir()) == []


def test_an_nsys_that_is_too_old_says_which_is_not(report, nsys):
    nsys(
        "echo 'Exportation error: Report was created in Nsight Systems version (2025.3.2.474-25),"
        " newer than your current version (2024.2.3.38-24).'; echo 'Please update.'; exit 1"
    )
    with pytest.raises(UsageError, match=r"use Nsight Systems 2025\.3\.2\.474, which recorded it"):
        read(report)


def test_a_damaged_report_needs_no_other_nsys(report, nsys):
    nsys("echo 'Exportation error: Failed to read section table.'; exit 1")
    with pytest.raises(UsageError, match=r"is damaged or incomplete .*: copy or record it again"):
        read(report)


def test_an_nsys_that_succeeds_without_a_file_is_quoted(report, nsys):
    nsys("echo 'FATAL ERROR: nothing exported'")
    with pytest.raises(UsageError, match="nothing exported"):
        read(report)


def test_an_nsys_that_never_ends_is_ended_with_its_children(report, nsys, tmp_path):
    nsys(f"sleep 600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(UsageError, match=r"did not end within 2\.5 s"):
        read(report, timeout_s=2.5)
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 60
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(child)


def _runs(process):
    try:
        os.kill(process, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def test_what_is_no_program(report, monkeypatch, tmp_path):
    program = tmp_path / "nsys"
    program.write_bytes(b"\x7fELF, not really")
    program.chmod(0o755)
    monkeypatch.setenv("NSYS", str(program))
    with pytest.raises(UsageError, match="cannot be run"):
        read(report)


def test_a_damaged_export_is_an_error_too(report, nsys, temporary_folder):
    nsys('echo nonsense > "$5"')
    with pytest.raises(UsageError):
        read(report)
    assert list(temporary_folder.iterdir()) == []


def test_a_report_is_recognised_by_its_name():
    assert systems_report.recognises("run.nsys-rep")
    assert systems_report.recognises("run.qdrep")
    assert not systems_report.recognises("run.sqlite")


def test_a_missing_file(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "none.nsys-rep")
