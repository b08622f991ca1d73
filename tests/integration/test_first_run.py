"""The unchanged script's first run begins before a study has everything ready."""

from __future__ import annotations

import shutil
import signal
import sys
import time
import uuid
import venv
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.database import open_store
from gpuadvisor.storage.sqlite_file import check_usable
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit, schedule_for
from gpuadvisor.tuning.options import TuneOptions, knobs_for
from gpuadvisor.tuning.trials import first_run
from gpuadvisor.tuning.trials.first_run import begun
from gpuadvisor.tuning.trials.trial_runner import Side, runner_for
from tests.integration import program

PATIENCE_S = 300.0
STEPS = """import os, pathlib, time
import gpuadvisor
with open("starts", "a") as file:
    file.write(f"{os.getpid()}\\n")
while True:
    time.sleep(0.01)
    gpuadvisor.step()
    pathlib.Path("stepped").touch()
"""
"""A script that notes its process, and that its first step is over."""
WAITS = """import os, pathlib, time
draft = pathlib.Path("draft")
draft.write_text(str(os.getpid()))
draft.rename("starts")
time.sleep(3600)
"""
ANSWERS_LATE = """import os, sys, time
while sys.argv[0] == "-c" and not (os.path.exists("starts") and {goes_on}):
    time.sleep(0.01)
"""
"""Has the interpreter answer what it is asked only once the script runs."""


def until(happened, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def started() -> bool:
    return Path("starts").exists() and Path("starts").read_text().endswith("\n")


def is_gone(process: int) -> bool:
    return not psutil.pid_exists(process)


@pytest.fixture
def gpu(tmp_path, monkeypatch) -> Device:
    """A device of which nobody else knows, on which a study of a script is to begin."""
    device = Device("cuda", 0, "NVIDIA H200", f"GPU-{uuid.uuid4()}")
    monkeypatch.setattr(first_run, "likely_device", lambda asked: device)
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "store"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("steps.py").write_text(STEPS)
    return device


def options(**changes) -> TuneOptions:
    command = Command(sys.executable, "steps.py")
    return TuneOptions(command, budget=BudgetLimit(seconds=60), **changes)


def request(asked: TuneOptions, device: Device, notes: Path):
    """Return what a study asks for first."""
    knobs, schedule = knobs_for(asked), schedule_for(asked.budget)
    budget = Budget(asked.budget, knobs)
    runner = runner_for(asked, knobs, budget, lambda: False, schedule)
    runner.notes = str(notes)
    found = runner.request(Side(asked.command, device), "baseline")
    return replace(found, specification=replace(found.specification, reads_between=(0.0, 1.0)))


def test_the_run_that_has_begun_is_the_one_that_is_asked_for(gpu):
    with begun(options(), lambda: False) as study:
        first = study.on(gpu)
        assert first is not None
        outcome = first.outcome(request(options(), gpu, first.notes))
        assert first.outcome(request(options(), gpu, first.notes)) is None  # no second time
    assert outcome.state is TrialState.COMPLETE, outcome
    assert len(Path("starts").read_text().split()) == 1


def test_it_waits_after_its_first_step_until_it_is_asked_for(gpu):
    with begun(options(), lambda: False) as study:
        first = study.on(gpu)
        until(lambda: any(e["event"] == "alive" for e in list(first._events)), "it does not wait")
        assert not Path("stepped").exists()
        told = []
        asked = replace(request(options(), gpu, first.notes), on_event=told.append)
        assert first.outcome(asked).state is TrialState.COMPLETE
    assert [event["event"] for event in told[:2]] == ["step", "alive"]
    assert Path("stepped").exists()


def test_another_run_than_that_which_is_asked_for_is_ended(gpu):
    with begun(options(), lambda: False) as study:
        first = study.on(gpu)
        until(started, "it does not start")
        assert first.outcome(request(options(seed=7), gpu, first.notes)) is None
        assert is_gone(int(Path("starts").read_text()))


def test_it_is_ended_where_the_study_has_another_device(gpu):
    with begun(options(), lambda: False) as study:
        until(started, "it does not start")
        assert study.on(Device("cpu", 0, "a CPU")) is None
        assert is_gone(int(Path("starts").read_text()))
        assert not study.on(gpu)


def test_nothing_of_it_is_left_where_the_study_fails(gpu):
    with pytest.raises(StoreError), begun(options(), lambda: False) as study:
        folder = study.on(gpu).notes.parent
        until(started, "it does not start")
        raise StoreError("the disk is full")
    assert is_gone(int(Path("starts").read_text()))
    assert not folder.exists()


@pytest.mark.parametrize("changes", [{"study": "mine"}, {"resume": True}, {"jobs": 2}])
def test_what_the_store_or_the_devices_may_forbid_does_not_begin(gpu, changes):
    with begun(options(**changes), lambda: False) as study:
        assert study.on(gpu) is None


def test_a_script_is_given_to_no_shell(gpu, tmp_path):
    shutil.copy("/bin/sh", tmp_path / "shell")
    asked = options()
    command = Command(str(tmp_path / "shell"), "steps.py")
    with begun(TuneOptions(command, budget=asked.budget), lambda: False) as study:
        assert study.on(gpu) is None
    assert not Path("starts").exists()


def test_it_is_told_once_the_store_is_known_to_do(gpu, tmp_path):
    told = []
    progress = SimpleNamespace(on_phase=lambda name, detail: told.append(name))
    with begun(options(), lambda: False) as study:  # into a new store
        study.tell(progress)
        assert not told
        with open_store():
            study.tell(progress, stores=True)
        study.tell(progress, stores=True)
        assert told == ["baseline"]
    with begun(options(), lambda: False) as study:
        study.tell(progress)
        assert told == ["baseline"] * 2


def test_a_file_that_is_no_database_is_found_before(gpu, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "gpuadvisor.db").write_text("not a database, but rather long" * 99)
    with pytest.raises(StoreError):
        check_usable(tmp_path / "store" / "gpuadvisor.db")
    with begun(options(), lambda: False) as study:
        assert study.on(gpu) is None


class TestProgram:
    """The command itself, with an interpreter that answers once the script has started."""

    @pytest.fixture
    def study(self, cpu, tmp_path):
        """A function that starts a study whose script runs."""
        (tmp_path / "waits.py").write_text(WAITS)
        venv.create(tmp_path / "bare", symlinks=True)
        (library,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")

        def study(goes_on: bool) -> program.Running:
            (library / "sitecustomize.py").write_text(ANSWERS_LATE.format(goes_on=goes_on))
            python = str(tmp_path / "bare" / "bin" / "python")
            # Its own `sitecustomize` is imported only where there is no other one.
            words = ("tune", "waits.py", "--python", python)
            started = program.Running(tmp_path, *words, PYTHONPATH="")
            until((tmp_path / "starts").exists, "the script does not start")
            return started

        return study

    def test_a_python_without_torch_is_refused_as_ever(self, study, tmp_path):
        answer = study(goes_on=True).end()
        assert answer.status == 2
        last = answer.err.splitlines()[-1]
        python = tmp_path / "bare" / "bin" / "python"
        assert last.startswith(f"gpuadvisor: torch is not installed in {python}: install torch")
        assert is_gone(int((tmp_path / "starts").read_text()))

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_it_can_be_stopped_before_anything_is_ready(self, study, tmp_path, number):
        running = study(goes_on=False)
        children = running.children()
        running.wait_for("^Baseline")
        running.process.send_signal(number)
        answer = running.end()
        assert answer.status == 128 + number
        last = answer.err.splitlines()[-1]
        assert last == "gpuadvisor: interrupted before the unchanged script was measured"
        until(lambda: not any(child.is_running() for child in children), "a process is left")
        assert is_gone(int((tmp_path / "starts").read_text()))

    def test_nothing_is_left_of_it_where_gpuadvisor_is_killed(self, study, tmp_path):
        running = study(goes_on=False)
        children = running.children()
        running.process.kill()
        running.end()
        until(lambda: is_gone(int((tmp_path / "starts").read_text())), "the script goes on")
        for child in children:  # the interpreter that never answers here
            with suppress(psutil.NoSuchProcess):
                child.kill()
