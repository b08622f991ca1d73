"""`gpuadvisor profile` on a real GPU. Run with `pytest -m gpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuadvisor.profiling.nsight import is_installed
from tests.integration.program import environment, run

pytestmark = pytest.mark.gpu

TRAIN = """
import sys, torch
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(6)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(2048, 2048, device="cuda")
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()
"""
LAYERS = 6
INFER = """
import torch
model = torch.nn.Linear(1024, 1024).cuda().eval()
with torch.inference_mode():
    for _ in range(100_000):
        model(torch.randn(64, 1024, device="cuda")).cpu()
"""
COMPILED = TRAIN.replace("optimizer =", "model.compile()\noptimizer =", 1)
ALLOWED_S = 15.0
"""More than the run without gpuadvisor, which makes as many steps as are needed to be warm."""


def profile(folder: Path, text: str, *words: str) -> dict:
    (folder / "train.py").write_text(text)
    args = ["--", "1000000"] if "sys.argv" in text else []
    answer = run(folder, "profile", "train.py", "--json", *words, *args, **visible())
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


def visible() -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")}


def test_kernels_and_steps_are_recorded(tmp_path):
    told = profile(tmp_path, TRAIN, "--output", str(tmp_path / "trace.json"))
    assert told["notes"] == []
    assert told["steps"] == told["time"]["steps"]["count"] == 5
    rows = told["profile"]["rows"]
    assert rows["kernels"] >= 5 * 3 * LAYERS - 3  # forward, and two products backward
    assert rows["calls"] > 0
    assert rows["memory"] > 0
    (device,) = told["time"]["devices"]
    assert 0.5 < device["busy_share"] <= 1
    assert told["profile"]["devices"]
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    marked = [e for e in events if e.get("cat") == "user_annotation"]
    assert sum(e["name"].startswith("ProfilerStep#") for e in marked) == 5
    calls = [e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    known = {e["args"].get("correlation") for e in calls}
    kernels = [e["args"]["correlation"] for e in events if e.get("cat") == "kernel"]
    assert set(kernels) <= known  # nothing from before the recording


@pytest.mark.parametrize("text", [INFER, COMPILED], ids=["inference", "compiled"])
def test_other_kinds_of_scripts(tmp_path, text):
    told = profile(tmp_path, text, "--steps", "3")
    assert told["steps"] == 3
    assert told["profile"]["rows"]["kernels"] >= 3


def test_it_adds_less_than_fifteen_seconds(tmp_path):
    told = profile(tmp_path, TRAIN)  # also fills the caches of the disk
    steps = str(told["warmup_steps"] + 6)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "train.py", steps],
        cwd=tmp_path,
        env=environment(tmp_path, **visible()),
        check=True,
    )
    alone_s = time.monotonic() - began
    began = time.monotonic()
    profile(tmp_path, TRAIN)
    added_s = time.monotonic() - began - alone_s
    print(f"alone {alone_s:.1f} s, added {added_s:.1f} s")
    assert added_s < ALLOWED_S


def test_nsight_systems_sees_the_steps(tmp_path):
    if not is_installed("nsys"):
        pytest.skip("nsys is not installed")
    told = profile(tmp_path, TRAIN, "--nsys", "--steps", "3")
    assert told["profile"]["rows"]["kernels"] >= 3 * 3 * LAYERS - 3
    assert told["time"]["steps"]["count"] == 3


def test_nsight_compute_reads_the_counters_or_says_why_not(tmp_path):
    if not is_installed("ncu"):
        pytest.skip("ncu is not installed")
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("profile", "train.py", "--ncu", "--json", "--", "1000000")
    answer = run(tmp_path, *words, **visible())
    if answer.status:
        assert "ERR_NVGPUCTRPERM" in answer.err
        return
    told = json.loads(answer.out)
    assert told["profile"]["rows"]["kernels"] > 0
    assert told["profile"]["rows"]["metrics"] > 0
