"""Telemetry from a real driver. Run with `pytest -m gpu`."""

import os
import subprocess
import sys
import time
from collections import ChainMap

import pytest

import gpuadvisor
from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.telemetry.recording import read_recording

pytestmark = pytest.mark.gpu

WORK = """
import time, torch
left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
until = time.monotonic() + 12
while time.monotonic() < until:
    for _ in range(20):
        left @ left
    torch.cuda.synchronize()
"""
ALWAYS = ("gpu_utilization_pct", "memory_used_bytes", "power_w", "sm_clock_mhz", "temperature_c",
          "throttle_reasons", "energy_j", "memory_total_bytes", "sm_clock_max_mhz")  # fmt: skip
"""What every data-centre GPU of the last years tells without any right."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The frames of a recording made while a program multiplies matrices."""
    path = tmp_path_factory.mktemp("recorded") / "run.gpr"
    record = [sys.executable, "-m", "gpuadvisor", "record", "--fast", "-o", str(path)]
    done = subprocess.run(
        [*record, "--", sys.executable, "-c", WORK], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return list(read_recording(path).frames())


def test_a_working_gpu_has_believable_values(recorded):
    busy = list_gpus()[0].uuid  # the program's first one; others may be busy with other things
    of_it = [frame.samples[busy] for frame in recorded if busy in frame.samples]
    known = dict(ChainMap(*[dict(sample.values) for sample in reversed(of_it)]))
    assert not set(ALWAYS) - known.keys()
    highest = {name: max(s.values.get(name, 0) for s in of_it) for name in known}
    assert highest["gpu_utilization_pct"] > 90
    assert 0 < highest["memory_used_bytes"] <= known["memory_total_bytes"]
    assert highest["sm_clock_mhz"] <= known["sm_clock_max_mhz"]
    assert 0 < highest["power_w"] < 1.2 * known["power_limit_w"]
    assert 15 < known["temperature_c"] < 100
    # Where the GPU has GPM (Hopper and later) it must see the tensor cores at work.
    if "tensor_active_pct" in known:
        assert 30 < highest["tensor_active_pct"] <= 100
        assert highest["tensor_active_pct"] <= highest["sm_active_pct"] + 1


def test_fast_frames_come_at_their_rate(recorded):
    last_s = recorded[-1].time_s
    times = [frame.time_s for frame in recorded if frame.time_s > last_s - 8]
    assert len(times) > 60  # 80 of them, had nothing else to run on the machine


def test_the_process_is_listed(recorded):
    listed = [process for frame in recorded for process in frame.processes or ()]
    assert any(process.memory_bytes for process in listed) or not listed  # none in a container


def test_energy_of_a_block_is_its_power_times_its_time():
    import torch

    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    with gpuadvisor.monitor(0) as block:
        until = time.monotonic() + 25
        while time.monotonic() < until:
            for _ in range(20):
                left @ left
            torch.cuda.synchronize()
    (gpu,) = block.gpus
    assert gpu.energy_source == "counter"
    assert gpu.energy_j == pytest.approx(gpu.power_mean_w * block.seconds, rel=0.08)
    assert gpu.gpu_utilization_mean_pct > 80
    assert gpu.memory_peak_bytes >= torch.cuda.memory_reserved()


def test_the_daemon_stores_what_this_gpu_does(tmp_path):
    environ = {**os.environ, "GPUADVISOR_HOME": str(tmp_path)}
    daemon = subprocess.Popen([sys.executable, "-m", "gpuadvisor", "daemon", "run"], env=environ)
    try:
        time.sleep(12)
    finally:
        daemon.terminate()
        assert daemon.wait(20) == 0
    table = gpuadvisor.telemetry(since="1m", folder=tmp_path / "telemetry")
    assert len(table) >= 5
    assert table["power_w"].gt(0).all()
