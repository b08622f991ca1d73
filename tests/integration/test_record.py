"""`gpuadvisor record` with the real program, on GPUs of the fake library."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

from gpuadvisor.collectors.telemetry.recording import read_recording
from gpuadvisor.domain.telemetry import HOST
from gpuadvisor.errors import UsageError


@pytest.fixture
def record(nvml_environ, tmp_path):
    """A function that starts `gpuadvisor record words...` in an empty folder."""

    started = []

    def start(*words, **environ):
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "gpuadvisor", "record", "-o", "run.gpr", *words],
                cwd=tmp_path,
                env={**nvml_environ, "GPUADVISOR_HOME": str(tmp_path / "home"), **environ},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield start
    for process in started:
        with process:
            process.kill()


def recorded(path):
    """Return the frames that are in the recording so far."""
    try:
        return list(read_recording(path).frames())
    except UsageError:  # its beginning is not in the file yet
        return []


def test_what_a_command_does_to_the_gpus_is_recorded(record, tmp_path):
    wait = "import os, time\nwhile not os.path.exists('enough'): time.sleep(0.02)\n"
    command = [sys.executable, "-c", f"{wait}print('done'); exit(7)"]
    process, path = record("--fast", "--", *command), tmp_path / "run.gpr"
    deadline = time.monotonic() + 120
    while True:  # until there are two whole frames and more of the others, as on an idle machine
        frames = recorded(path)
        whole = [frame for frame in frames if frame.full]
        if 2 <= len(whole) < len(frames) / 2:
            break
        assert process.poll() is None and time.monotonic() < deadline, len(frames)
        time.sleep(0.2)
    (tmp_path / "enough").touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, "done\n")
    assert err.startswith("run.gpr: 2 GPUs, ")
    assert [gpu.name for gpu in frames[0].gpus] == ["NVIDIA H100 80GB HBM3"] * 2
    gpu = frames[0].gpus[0].uuid
    assert {"power_w", "gpu_utilization_pct", "temperature_c"} <= set(whole[-1].samples[gpu].values)
    assert "cpu_pct" in whole[-1].samples[HOST].values


def test_ctrl_c_ends_it_with_what_there_is_and_leaves_no_process(record, tmp_path):
    process = record()
    deadline = time.monotonic() + 60
    while not (tmp_path / "run.gpr").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert family
    assert not [child for child in family if child.is_running()]
    assert list(read_recording(tmp_path / "run.gpr").frames())


def test_a_recorder_that_is_killed_leaves_no_process(record, tmp_path):
    process = record()
    deadline = time.monotonic() + 60
    while not (tmp_path / "run.gpr").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=60)
    assert family
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not alive


def test_without_a_driver_it_says_so_in_one_sentence(record, tmp_path):
    process = record(FAKE_NVML_FAULTS="nvmlInitWithFlags=9")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = err.splitlines()
    assert line.startswith("gpuadvisor: there is nothing to record: ")
    assert "driver is not loaded" in line
    assert not (tmp_path / "run.gpr").exists()


def test_a_command_is_begun_while_the_driver_hangs(record, tmp_path):
    """It ends before the driver has been waited for so long that this is said as well."""
    command = [sys.executable, "-c", "print('begun'); exit(7)"]
    process = record("--", *command, FAKE_NVML_HANG="nvmlInitWithFlags")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (7, "begun\n")
    (line,) = err.splitlines()
    assert line.startswith("gpuadvisor: nothing is recorded: ")
    assert not (tmp_path / "run.gpr").exists()


@pytest.mark.slow
def test_a_driver_that_hangs_is_said_after_five_seconds(record, tmp_path):
    began_s = time.monotonic()
    _, err = (process := record(FAKE_NVML_HANG="nvmlInitWithFlags")).communicate(timeout=60)
    assert process.returncode == 7
    assert 4 < time.monotonic() - began_s < 60
    (line,) = err.splitlines()
    assert line.startswith("gpuadvisor: the NVIDIA driver has not answered for 5 s: ")
    assert not (tmp_path / "run.gpr").exists()


def test_what_is_there_is_not_replaced(record, tmp_path):
    (tmp_path / "run.gpr").write_text("precious")
    process = record()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == ("gpuadvisor: run.gpr is there already: choose another name, or add --force\n")
    assert (tmp_path / "run.gpr").read_text() == "precious"


def test_a_time_that_is_none_is_refused(record):
    process = record("--duration", "soon")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "--duration takes a time from 1s" in err
