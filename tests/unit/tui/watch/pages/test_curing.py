"""Profiling and tuning a process from its page, driven by keys: real processes, a real store."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gpuadvisor.collectors.listeners import all_registered
from gpuadvisor.domain.telemetry import Frame
from gpuadvisor.tui.watch.app import Watch
from gpuadvisor.tui.watch.curing import free_gpu
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.watched import Watched
from tests.telemetry import GIB, frame, sample
from tests.unit.tui.watch.pages.test_processes import Still, of, opened, until
from tests.unit.tui.watch.screens import screen_text

LISTENING = """
import time
import torch
import gpuadvisor
gpuadvisor.profile_on_demand()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
open("alive", "w").close()
while True:
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
    time.sleep(0.01)
"""
SLEEPING = "import time; open('alive', 'w').close(); time.sleep(1000)"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty store."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "store"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path / "store"


@pytest.fixture
def begin(tmp_path):
    """Start a script, and end it after the test; returns how a driver would list it."""
    started = []

    def begin(text, *args, python=sys.executable, **environment):
        (tmp_path / "serve.py").write_text(text)
        started.append(
            subprocess.Popen(
                [python, "-u", "serve.py", *args], cwd=tmp_path, env={**os.environ, **environment}
            )
        )
        while not (tmp_path / "alive").exists():
            assert started[-1].poll() is None
            time.sleep(0.02)
        pid = started[-1].pid
        return of(pid, command="python serve.py", started_s=psutil.Process(pid).create_time())

    yield begin
    for process in started:
        process.kill()
        process.wait()
    all_registered()  # which removes what they left behind


@pytest.fixture
def bare(tmp_path):
    """A Python of its own without torch."""
    subprocess.run(
        [sys._base_executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True
    )
    return str(tmp_path / "venv" / "bin" / "python")


def app_of(*processes, used=(20, 0), **chosen):
    state = WatchState("live", clock=time.monotonic)
    made = frame(0, *[sample(memory_used_bytes=each * GIB) for each in used])
    state.update(Frame(made.time_s, made.samples, gpus=made.gpus, processes=processes))
    return Watch(Watched(Still(), state, **chosen))


def shows(app, *words):
    """Whether words are on the screen, however its lines are broken."""
    return lambda: all(
        word in " ".join(screen_text(app).replace("│", " ").split()) for word in words
    )


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_process_that_listens_is_profiled_and_its_findings_open(begin):
    pytest.importorskip("torch")
    told = begin(LISTENING)
    app = app_of(told)
    async with app.run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        await pilot.press("p")
        await until(pilot, shows(app, "Profile this process?", "next 5 steps", f"{told.pid} of"))
        await pilot.press("n")
        await until(pilot, shows(app, "Nothing was profiled."))
        await pilot.press("p", "y")
        await until(pilot, shows(app, "[5 profiles]", "Profile serve", "is stored"))
        await until(pilot, lambda: app.watched.made is None)
        assert app.screen.chosen.key.startswith("serve")
        await until(pilot, lambda: not shows(app, "Reading ...")())
        assert psutil.Process(told.pid).is_running()


@pytest.mark.asyncio
async def test_one_that_does_not_listen_gets_no_signal_and_says_the_way_out(begin):
    told = begin(SLEEPING)
    app = app_of(told)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: app.is_running)
        await pilot.press("p")  # on the overview: it is the only one on this GPU
        await until(pilot, shows(app, f"Process {told.pid} does not listen: put `import gpuadv"))
        assert psutil.Process(told.pid).is_running()


@pytest.mark.asyncio
async def test_the_overview_wants_one_process(begin):
    app = app_of(of(11), of(12))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.press("u")
        await until(pilot, shows(app, "GPU 0 has 2 processes: choose one of them on page 2."))
        await pilot.press("down", "p")
        await until(pilot, shows(app, "No process is listed on GPU 1"))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ({"read_only": True}, "--read-only was given"),
        ({"read_only": True, "recording": Path("a.gpr")}, "this is a recording"),
    ],
)
async def test_read_only_cures_nothing(begin, chosen, why):
    app = app_of(begin(SLEEPING), **chosen)
    async with app.run_test(size=(120, 30)) as pilot:
        await opened(pilot)
        await pilot.press("p")
        await until(pilot, shows(app, f"Nothing is profiled: {why}."))
        await pilot.press("u")
        await until(pilot, shows(app, f"No study is started: {why}."))


@pytest.mark.asyncio
async def test_a_study_is_asked_for_and_lives_in_a_session_of_its_own(begin, bare, home, tmp_path):
    told = begin(
        SLEEPING, "--epochs", "1", python=bare, OMP_NUM_THREADS="3", CUDA_LONG="/opt/x" * 99
    )
    app = app_of(told)
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("u")
        await until(
            pilot,
            shows(app, "Start a tuning study", "serve.py --", "--epochs 1", "venv/bin/python",
                  "CUDA_LONG=/opt/x", "OMP_NUM_THREADS=3", "PYTHONUNBUFFERED=1",
                  "CUDA_VISIBLE_DEVICES=GPU-1",
                  "which is free", "y yes"),
        )  # fmt: skip
        await pilot.press("n")
        await until(pilot, shows(app, "No study was started."))
        assert not list(home.glob("*.log"))
        await pilot.press("u")
        await until(pilot, shows(app, "Start a tuning study"))
        await pilot.press("y")
        await until(pilot, shows(app, "[4 studies]", "Study begun as process"))
        (study,) = [each for each in psutil.Process().children() if "tune" in each.cmdline()]
        assert os.getsid(study.pid) == study.pid != os.getsid(0)
        assert study.cwd() == str(tmp_path)
        # the interpreter is the process's own, and has no torch, which `tune` says
        await until(pilot, shows(app, "The study ended:", "torch is not installed in"))
        (log,) = home.glob("tune-serve-*.log")
        assert f"torch is not installed in {bare}" in log.read_text()
        assert log.stat().st_mode & 0o077 == 0


@pytest.mark.asyncio
async def test_without_a_free_gpu_it_says_who_is_there_and_what_to_run_later(begin, tmp_path):
    told = begin(SLEEPING)
    app = app_of(told, of(77, 1, user="bob"))
    async with app.run_test(size=(160, 40)) as pilot:
        await opened(pilot)
        await pilot.press("u")
        await until(
            pilot,
            shows(app, "no study was started", f"GPU 0 is in use by python ({told.pid})",
                  "GPU 1 is in use by python (77) of bob", f"cd {tmp_path}", "gpuadvisor tune"),
        )  # fmt: skip


def test_only_a_gpu_that_is_known_to_be_free_is_taken():
    own = of(11)

    def asked(*processes, used=(20, 0)):
        free, whys = free_gpu(app_of(*processes, used=used).state, own)
        return free.uuid if free else " ".join(whys.values())

    assert asked(own) == "GPU-1"
    assert asked(own, replace(of(12, 1), kind="graphics")) == "GPU-1"
    assert "processes that are not listed" in asked(own, used=(20, 5))
    assert "works on GPUs 0, 1" in asked(own, replace(own, gpu="GPU-1"))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_study_runs_on_without_the_page_and_is_listed(begin, home):
    pytest.importorskip("torch")
    told = begin(LISTENING.replace("gpuadvisor.profile_on_demand()", ""))
    app = app_of(told)
    study = None
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await opened(pilot)
            await pilot.press("u")
            await until(pilot, shows(app, "Start a tuning study"))
            await pilot.press("y")
            await until(pilot, shows(app, "Study begun"))
            (study,) = [each for each in psutil.Process().children() if "tune" in each.cmdline()]
            await until(pilot, lambda: shows(app, "works on it")() or not study.is_running()
                        or study.status() == psutil.STATUS_ZOMBIE)  # fmt: skip
        (log,) = home.glob("tune-*.log")
        if "another gpuadvisor measures" in log.read_text():
            pytest.skip("another study runs on this machine's CPU")
        assert study.is_running() and study.status() != psutil.STATUS_ZOMBIE, log.read_text()
    finally:
        if study is not None and study.is_running():
            study.send_signal(signal.SIGTERM)
            study.wait(60)
