"""`gpuadvisor profile --attach` on processes that ask for it, and on one that does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuadvisor.collectors.listeners import all_registered
from tests.integration.program import environment, run

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

LISTENING = """
import time
import torch
import gpuadvisor

gpuadvisor.profile_on_demand()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
began = time.monotonic()
number = 0
while time.monotonic() - began < 120:
    number += 1
    {step}
    open("alive", "w").write(str(number))
    time.sleep(0.02)
"""
TRAINS = "model(torch.ones(4, 8)).mean().backward(); optimizer.step()"
TWICE = f"{TRAINS}; {TRAINS}; gpuadvisor.step()"


@pytest.fixture
def start(tmp_path):
    """Start a script, and end it after the test."""
    started = []

    def start(text: str) -> subprocess.Popen[bytes]:
        (tmp_path / "serve.py").write_text(text)
        started.append(
            subprocess.Popen([sys.executable, "serve.py"], cwd=tmp_path, env=environment(tmp_path))
        )
        while not (tmp_path / "alive").exists():
            assert started[-1].poll() is None
            time.sleep(0.05)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
    all_registered()  # which removes what they left behind


def still_works(folder: Path) -> bool:
    before = (folder / "alive").read_text()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if (folder / "alive").read_text() not in ("", before):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("step", "optimizer_steps"), [(TRAINS, 3), (TWICE, 6)], ids=["optimizer", "explicit"]
)
def test_the_next_steps_are_recorded_and_the_script_goes_on(tmp_path, start, step, optimizer_steps):
    process = start(LISTENING.format(step=step))
    for _ in range(2):  # as often as one likes
        trace = tmp_path / "trace.json"
        words = ["profile", "--attach", str(process.pid), "--steps", "3", "--seconds", "20"]
        answer = run(tmp_path, *words, "--json", "--output", str(trace))
        assert answer.status == 0, answer.err
        told = json.loads(answer.out)
        assert told["steps"] == told["time"]["steps"]["count"] == 3
        assert told["profile"]["name"].startswith("serve")
        names = [event.get("name", "") for event in json.loads(trace.read_text())["traceEvents"]]
        ended = [name for name in names if name.startswith("Optimizer.step#")]
        assert abs(len(ended) - optimizer_steps) <= 1  # the first may lie across the begin
    assert still_works(tmp_path)


def test_a_process_without_steps_is_recorded_for_a_time(tmp_path, start):
    process = start(LISTENING.format(step="model(torch.ones(4, 8))"))
    answer = run(tmp_path, "profile", "--attach", str(process.pid), "--seconds", "0.5", "--json")
    assert answer.status == 0, answer.err
    told = json.loads(answer.out)
    assert told["steps"] == 0
    assert told["notes"] == ["it made no step, so 0.5 s were recorded"]
    assert told["profile"]["rows"]["operators"] > 3
    assert still_works(tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LISTENING.replace("gpuadvisor.profile_on_demand()", ""), "does not listen: put `import"),
        (
            LISTENING.replace(
                "model =", "import signal; signal.signal(signal.SIGUSR2, signal.SIG_DFL)\nmodel ="
            ),
            "listens no more: its script has removed the handler of SIGUSR2",
        ),
    ],
    ids=["never", "no more"],
)
def test_a_process_that_would_die_of_the_signal_gets_none(tmp_path, start, text, why):
    process = start(text.format(step=TRAINS))
    answer = run(tmp_path, "profile", "--attach", str(process.pid))
    assert answer.status == 2
    assert why in answer.sentence
    assert still_works(tmp_path)


def test_there_is_no_such_process(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    answer = run(tmp_path, "profile", "--attach", str(gone.pid))
    assert answer.status == 2
    assert f"there is no process {gone.pid}: " in answer.sentence


def test_a_process_that_ends_meanwhile_leaves_what_it_has(tmp_path, start):
    text = LISTENING.replace("< 120", "< 8").replace("sleep(0.02)", "sleep(1)")
    process = start(text.format(step=TRAINS))
    words = ["profile", "--attach", str(process.pid), "--steps", "100", "--seconds", "30"]
    answer = run(tmp_path, *words, "--json")
    told = json.loads(answer.out)
    assert 0 < told["steps"] < 100
    assert told["notes"] == [f"{told['steps']} of 100 steps were recorded: the script ended"]
    assert process.wait(timeout=20) == 0
    assert not Path(f"/tmp/gpuadvisor-on-demand-{os.getuid()}/{process.pid}.json").exists()


def test_ctrl_c_lets_the_process_go_on(tmp_path, start):
    from tests.integration.program import Running

    process = start(LISTENING.format(step=TRAINS))
    words = ["profile", "--attach", str(process.pid), "--steps", "100000"]
    running = Running(tmp_path, *words)
    time.sleep(4)
    running.process.send_signal(signal.SIGINT)
    assert running.end().status == 130
    assert still_works(tmp_path)


def test_nothing_is_left_behind_by_a_process_that_listened(tmp_path, start):
    process = start(
        LISTENING.replace("< 120", "< 1").format(step=TRAINS)
        + "\nopen('folder', 'w').write(str(gpuadvisor.profiling.on_demand._listener._folder))"
    )
    assert process.wait(timeout=30) == 0
    assert not Path((tmp_path / "folder").read_text()).exists()
    assert not Path(f"/tmp/gpuadvisor-on-demand-{os.getuid()}/{process.pid}.json").exists()
