"""Which job may be profiled, and that each is at most once: real processes, a real store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

import gpuadvisor
from gpuadvisor.accounting.profiles import LOCK, Noted, to_profile
from gpuadvisor.cli import main
from gpuadvisor.collectors.listeners import all_registered
from gpuadvisor.domain.telemetry import HOST, GpuProcess, Sample
from gpuadvisor.storage.locks import locked
from gpuadvisor.storage.telemetry.jobs import stored_profiles
from tests.telemetry import GIB, frame, h100, sample
from tests.telemetry_store import stored

USER = psutil.Process().username()
WAITS = sample(gpu_utilization_pct=54, sm_active_pct=45)
BUSY = sample(gpu_utilization_pct=99, sm_active_pct=80)
MACHINE = Sample({"cpu_pct": 30.0, "io_stall_pct": 0.0})
SCRIPT = "import gpuadvisor, sys; gpuadvisor.profile_on_demand(); print(); sys.stdin.readline()"
SILENT = SCRIPT.replace("gpuadvisor.profile_on_demand()", "pass")


@pytest.fixture(scope="module")
def begin():
    """A function that starts a process, which waits; returns how a driver would list it."""
    begun = []

    def begin(text):
        process = subprocess.Popen(
            [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        begun.append(process)
        process.stdout.readline()
        return GpuProcess(
            h100(0).uuid, process.pid, "compute", GIB, "python", USER, "python train.py",
            cpu_pct=30.0, children_cpu_pct=380.0, by_gpuadvisor=False,
            started_s=psutil.Process(process.pid).create_time(),
        )  # fmt: skip

    yield begin
    for process in begun:
        process.kill()
        process.communicate()
    all_registered()  # which removes what they left behind


@pytest.fixture(scope="module")
def listening(begin):
    return begin(SCRIPT)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A function that writes a store of the last 11 minutes of these processes on GPU 0."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))

    def write(*processes, of=WAITS, until_s=0.0):
        end_s = time.time() - until_s
        made = frame(0.0, of)
        made = replace(made, samples={**made.samples, HOST: MACHINE}, processes=processes)
        times = [end_s - 660 + 4.8 * number for number in range(138)]
        return stored(tmp_path / "telemetry", *(replace(made, time_s=at) for at in times)).folder

    return write


def test_one_that_waits_and_listens_is_next(store, listening):
    job, process = to_profile(store(listening))
    assert (job.script, process.pid) == ("train.py", listening.pid)


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        pytest.param({"pid": os.getpid()}, {}, id="does not listen"),
        pytest.param({"is_host_pid": True}, {}, id="another number"),
        pytest.param({"started_s": 1.7e9}, {}, id="an earlier process of its number"),
        pytest.param({"by_gpuadvisor": True}, {}, id="a study's trial"),
        pytest.param({"by_gpuadvisor": None}, {}, id="it is not known whose"),
        pytest.param({}, {"of": BUSY}, id="healthy"),
        pytest.param({}, {"until_s": 600.0}, id="not seen lately"),
    ],
)
def test_one_that_may_not_be_is_left_alone(store, listening, changed, more):
    assert to_profile(store(replace(listening, **changed), **more)) is None


def test_one_on_whose_gpu_another_is_that_did_not_consent_is_left_alone(store, listening, begin):
    other = replace(begin(SILENT), user="bob", command="python -m notebook", parent_pid=1)
    assert to_profile(store(replace(listening, parent_pid=2), other)) is None


def test_it_is_tried_once_and_what_came_of_it_stands_beside_the_job(store, listening, capsys):
    folder = store(listening)
    with locked(folder / LOCK):  # another is profiled
        assert main(["jobs", "--profile-one"]) == 0
    assert (capsys.readouterr().out, stored_profiles(folder)) == ("", [])
    assert main(["jobs", "--profile-one"]) == 0
    why = "it has not imported torch, so there is nothing to record"
    assert capsys.readouterr().out == (
        f"train.py (process {listening.pid}) was not profiled, and will not be again: {why}\n"
    )
    assert main(["jobs", "--profile-one"]) == 0
    assert capsys.readouterr().out == ""
    (made,) = stored_profiles(folder)
    assert made.problem == why
    main(["jobs", "--json"])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["profile"]["name"], job["profile"]["problem"]) == (None, made.problem)
    main(["jobs"])
    assert f"it could not be profiled: {why}." in " ".join(capsys.readouterr().out.split())
    (row,) = gpuadvisor.jobs().to_dict("records")
    assert row["findings"] == made.problem


@pytest.mark.parametrize(
    ("ends", "why", "status"),
    [
        ("the daemon", "the daemon was stopped meanwhile", 128 + signal.SIGTERM),
        ("the job", "it ended before a step was recorded", 0),
    ],
)
def test_what_ends_in_the_middle_is_said_and_not_begun_again(store, begin, ends, why, status):
    process = begin(SCRIPT)
    folder = store(process)
    os.kill(process.pid, signal.SIGSTOP)  # it will not answer
    child = subprocess.Popen([sys.executable, "-m", "gpuadvisor", "jobs", "--profile-one"])
    while not stored_profiles(folder):
        assert child.poll() is None
        time.sleep(0.02)
    if ends == "the daemon":
        child.terminate()
    else:
        os.kill(process.pid, signal.SIGKILL)
    assert child.wait(60) == status
    os.kill(process.pid, signal.SIGCONT)
    (made,) = stored_profiles(folder)
    assert made.problem == why
    assert to_profile(folder) is None


def test_what_was_begun_and_never_ended_is_not_begun_again(store, listening, capsys):
    folder = store(listening)
    Noted(folder, listening)  # killed meanwhile
    assert to_profile(folder) is None
    main(["jobs"])
    said = " ".join(capsys.readouterr().out.split())
    assert "a profile of it was begun" in said
    assert "and is not complete" in said


def test_what_it_says_is_told_and_where_all_of_it_is(store, listening, capsys):
    folder = store(listening)
    Noted(folder, listening).done("train-2", ["the loader is slow", "copies wait", "two kernels"])
    main(["jobs"])
    assert (
        "its profile says: the loader is slow, and 2 more, `gpuadvisor diagnose train-2`."
        in " ".join(capsys.readouterr().out.split())
    )
    (row,) = gpuadvisor.jobs().to_dict("records")
    assert row["profile"] == "train-2"
    assert row["findings"] == "the loader is slow; copies wait; two kernels"
