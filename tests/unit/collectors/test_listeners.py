"""Which processes can be profiled on demand."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from gpuadvisor.collectors import listeners
from gpuadvisor.collectors.listeners import Registration


@pytest.fixture
def process(tmp_path):
    running = subprocess.Popen(["sleep", "60"])
    yield running
    running.kill()
    running.wait()
    (listeners.place() / f"{running.pid}.json").unlink(missing_ok=True)


def of(pid: int, folder) -> Registration:
    return Registration(pid, listeners.started(pid) or 0, 12, str(folder), "serve.py")


def test_a_living_process_is_found_until_it_ends(process, tmp_path):
    registration = of(process.pid, tmp_path)
    listeners.register(registration)
    assert listeners.find(process.pid) == registration
    assert registration in listeners.all_registered()
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert listeners.find(process.pid) is None  # a zombie yet


def test_another_process_of_the_same_number_is_not_taken_for_it(process, tmp_path):
    old = Registration(process.pid, 1, 12, str(tmp_path), "serve.py")
    listeners.register(old)
    assert listeners.find(process.pid) is None


def test_what_a_killed_process_left_is_removed_by_the_next(process, tmp_path):
    left = tmp_path / "gpuadvisor-profile-1"
    left.mkdir(mode=0o700)
    path = listeners.register(Registration(process.pid, 1, 12, str(left), "serve.py"))
    listeners.register(of(os.getpid(), tmp_path)).unlink()
    assert not path.exists()
    assert not left.exists()


def test_whoever_looks_for_processes_removes_what_a_killed_one_left(process, tmp_path):
    left = tmp_path / "gpuadvisor-profile-2"
    left.mkdir(mode=0o700)
    path = listeners.register(of(process.pid, left))
    assert [each.pid for each in listeners.all_registered() if each.folder == str(left)]
    process.kill()
    process.wait()
    listeners.all_registered()
    assert not path.exists()
    assert not left.exists()


def test_it_is_known_which_signals_would_end_a_process(process):
    assert not listeners.catches(process.pid, signal.SIGUSR2)
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert listeners.catches(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
