"""`gpuadvisor bench-device` without a GPU: the same program on the CPU, and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import psutil
import pytest

from gpuadvisor.collectors.device_bench.program import rate
from gpuadvisor.collectors.device_bench.runner import (
    BenchResult,
    Clocks,
    MeasuredRate,
    bench_device,
)
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import AdvisorError
from gpuadvisor.profiling import device_ceilings
from gpuadvisor.rules.facts.ceilings import theoretical
from gpuadvisor.storage.profiles.library import open_profiles

QUANTITIES = {
    "dram", "dram_add", "dram_strided", "dram_random",
    "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp64",
    "host_to_device_pinned", "host_to_device_pageable",
    "device_to_host_pinned", "device_to_host_pageable",
    "launches", "operators", "launch_latency",
}  # fmt: skip
ALWAYS = {"dram", "dram_add", "fp32", "fp64", "launches", "launch_latency"}


@pytest.fixture(scope="module")
def on_cpu():
    heard = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # torch's other threads spin where they wait
        result = bench_device(
            sys.executable,
            device="cpu",
            quick=True,
            most_bytes=1 << 18,
            sides=(64, 32),
            on_event=heard.append,
        )
    return result, heard


def test_everything_is_measured_or_said_to_be_not(on_cpu):
    result, _ = on_cpu
    measured = {rate.quantity for rate in result.rates}
    assert measured >= ALWAYS
    assert measured | set(result.unavailable) == QUANTITIES
    assert not measured & set(result.unavailable)
    assert all(result.unavailable.values())


def test_a_rate_is_a_median_between_its_extremes(on_cpu):
    for each in on_cpu[0].rates:
        assert 0 < each.low <= each.value <= each.high, each
        assert each.repeats == 3


def test_the_median_is_of_rates():
    found = rate("dram", "bytes/s", 12.0, [1.0, 6.0, 2.0, 3.0])
    assert (found["low"], found["value"], found["high"]) == (2.0, 5.0, 12.0)


def test_progress_is_told_as_it_comes(on_cpu):
    _, heard = on_cpu
    assert heard[0]["event"] == "device"
    assert heard[-1] == {"event": "done"}
    assert {event["quantity"] for event in heard[1:-1]} == QUANTITIES


def test_what_was_measured_comes_back_from_the_store(on_cpu, tmp_path, monkeypatch):
    result, _ = on_cpu
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    device_ceilings.keep(result)
    with open_profiles() as profiles:
        found = profiles.newest_ceilings(name="cpu")
    assert found["dram"].value == next(r.value for r in result.rates if r.quantity == "dram")
    assert found["dram"].conditions["torch"] == result.torch
    preferred = theoretical(result.device).preferring(found)
    assert preferred.get("fp32").is_measured


def h100(**rates):
    device = DeviceLimits(0, "NVIDIA H100 80GB HBM3", (9, 0), sm_count=132, uuid="GPU-1")
    made = tuple(
        MeasuredRate(name, value, "flop/s", value, value, 7) for name, value in rates.items()
    )
    return BenchResult(device, Clocks(1.98e9, 2.619e9, 5120), "2.11", made, {"int8": "no"}, 30, 0)


def test_a_table_compares_with_what_is_possible():
    lines = device_ceilings.table(h100(bf16=7.5e14))
    assert lines[0] == "NVIDIA H100 80GB HBM3, compute capability 9.0, torch 2.11"
    assert lines[3].split() == [
        "matmul",
        "bf16",
        "750",
        "TFLOP/s",
        "0.0%",
        "989.4",
        "TFLOP/s",
        "76%",
    ]
    assert lines[4].endswith("not measured: no")


def test_doubles_are_multiplied_on_tensor_cores_where_there_are_some():
    (entry,) = device_ceilings.document(h100(fp64=6e13))["rates"]
    assert entry["quantity"] == "fp64_tensor"
    assert entry["ratio"] == pytest.approx(0.9, abs=0.01)


def bench(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "gpuadvisor", "bench-device", *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_without_a_gpu_it_says_so_in_a_sentence(tmp_path, here):
    """And a file of the current folder is not taken for a module."""
    shadows = [tmp_path / "json.py", tmp_path / "torch.py"]
    for shadow in shadows:
        shadow.write_text("raise SystemExit('shadowed')")
    answer = here(tmp_path, "bench-device", "--json")
    assert (answer.status, answer.out) == (1, "")
    assert "finds no GPU" in answer.sentence
    assert sorted(tmp_path.iterdir()) == shadows, "nothing is stored"


def test_without_torch_it_says_so_in_a_sentence(tmp_path):
    broken = tmp_path / "torch.py"
    broken.write_text("raise ImportError('libcudart is missing')")
    done = bench(PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "torch cannot be imported (libcudart is missing)" in done.stderr


def test_what_takes_too_long_is_ended_and_leaves_no_process(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    began = time.monotonic()
    with pytest.raises(AdvisorError, match="not measured within 2 s"):
        bench_device(sys.executable, timeout_s=2)
    assert time.monotonic() - began < 60
    assert not [child for child in psutil.Process().children() if "-c" in child.cmdline()]


def test_a_crash_is_told_with_its_last_words(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("import os, sys; print('out of luck', file=sys.stderr)\n"
                                       "sys.stderr.flush(); os._exit(3)")  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(AdvisorError, match="failed after 0 results: out of luck"):
        bench_device(sys.executable)


def test_json_document(on_cpu):
    document = json.loads(json.dumps(device_ceilings.document(on_cpu[0])))
    assert document["version"] == 1
    assert {entry["quantity"] for entry in document["rates"]} >= ALWAYS
    assert all(entry["theoretical"] is None for entry in document["rates"])
