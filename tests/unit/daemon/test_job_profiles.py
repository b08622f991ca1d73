"""When the daemon has a job profiled: only if it may, never two at a time, and what it says."""

import signal
import subprocess
import sys
import time

import pytest

from gpuadvisor.collectors.listeners import all_registered
from gpuadvisor.daemon.configuration import Jobs
from gpuadvisor.daemon.job_profiles import AGAIN_S, FIRST_S, LOOK_S, JobProfiles
from gpuadvisor.domain.telemetry import GpuProcess
from tests.telemetry_store import Clock

SCRIPT = "import gpuadvisor, sys; gpuadvisor.profile_on_demand(); print(); sys.stdin.readline()"


@pytest.fixture(scope="module")
def listening():
    """The number of a process that can be profiled on demand."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()
    all_registered()  # which removes what it left behind


@pytest.fixture
def clock(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    return Clock(0.0)


def on_gpu(pid, **changed):
    return [GpuProcess("GPU-0", pid, "compute", 1, "python", **changed)]


def begun(profiles):
    """The process that was begun."""
    return profiles._child


@pytest.mark.parametrize(
    ("allowed", "more", "number"),
    [(False, {}, None), (True, {"is_host_pid": True}, None), (True, {}, 1)],
    ids=["nobody allowed it", "another machine's number", "it listens nowhere"],
)
def test_nothing_is_begun(clock, listening, allowed, more, number):
    profiles = JobProfiles(Jobs(profile=allowed), clock)
    clock.now_s = FIRST_S
    profiles.tend(on_gpu(number or listening, **more))
    profiles.tend(None)
    assert begun(profiles) is None


def test_one_is_begun_at_a_time_and_given_up_at_the_end(clock, listening):
    profiles = JobProfiles(Jobs(profile=True), clock)
    profiles.tend(on_gpu(listening))
    assert begun(profiles) is None  # processes may not be listed yet
    clock.now_s = FIRST_S
    profiles.tend(on_gpu(listening))
    first = begun(profiles)
    first.send_signal(signal.SIGSTOP)
    clock.now_s += AGAIN_S
    if first.poll() is None:  # it was not quicker than that
        profiles.tend(on_gpu(listening))
        assert begun(profiles) is first
    first.send_signal(signal.SIGCONT)
    profiles.close()
    assert first.returncode is not None


def test_who_was_judged_is_judged_again_after_a_while_and_what_is_wrong_is_said_once(
    clock, listening, caplog
):
    profiles = JobProfiles(Jobs(profile=True), clock)

    def ended_at(seconds):
        """Let it end what it begins at this time; return whether it begins anything."""
        clock.now_s = seconds
        profiles.tend(on_gpu(listening))
        if (child := begun(profiles)) is None:
            return False
        while child.poll() is None:
            time.sleep(0.01)
        profiles.tend(on_gpu(listening))
        return True

    moments = (FIRST_S, FIRST_S + LOOK_S, FIRST_S + AGAIN_S)
    assert [ended_at(each) for each in moments] == [True, False, True]
    (said,) = [each.message for each in caplog.records]
    assert said.startswith("no job could be profiled: There is no ")  # there is no store
