"""The real program on a real GPU. Run with `pytest -m gpu`."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.energy import EnergyMeter
from gpuadvisor.collectors.script.request import Command, RunOutcome, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.study import TrialState
from tests.integration.conftest import program_in

pytestmark = pytest.mark.gpu

TRAIN = """
import sys, time, torch
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(6)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(2048, 4096, device="cuda")
for step in range(1_000_000):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if step % 50 == 49:
        torch.cuda.synchronize()
        now = time.perf_counter()
        if step > 50:
            print("own", 1e3 * (now - began) / 50, torch.cuda.max_memory_allocated(), flush=True)
        began = now
"""

TRAIN_AND_TELL = (
    """
import os, time, torch
with open("began", "a") as file:
    gpu, cores = torch.cuda.get_device_properties(0).uuid, sorted(os.sched_getaffinity(0))
    print(gpu, "-".join(map(str, cores)), time.time(), file=file)
"""
    + TRAIN
)
RUN_S = 2.0
"""Less than any run of it takes, the start of Python and torch included."""

EPOCHS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(640, 64), torch.randint(0, 4, (640,)))
model = torch.nn.Linear(64, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1000):
    for x, y in DataLoader(data, batch_size=8, num_workers=2):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
"""

INFER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 2**24
    def __getitems__(self, places):
        return torch.zeros(len(places), 4)

model = torch.nn.Linear(4, 4).cuda().eval()
work = torch.randn(8192, 8192, device="cuda")
while True:
    for batch in DataLoader(Numbers(), batch_size=64, collate_fn=lambda batch: batch):
        room = torch.empty(len(batch) * BYTES, dtype=torch.uint8, device="cuda")
        work @ work
        with torch.no_grad():
            model(batch.cuda()).cpu()
        del room
"""
"""A step takes as long whatever the batch, of which each sample takes its part of the memory."""

LATE = """
import time, torch
from torch.utils.data import DataLoader

class Late(torch.utils.data.Dataset):
    def __len__(self):
        return 2**24
    def __getitem__(self, place):
        time.sleep(0.06)
        return torch.zeros(4)

model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
work = torch.randn(8192, 8192, device="cuda")

def compute(ms):
    torch.cuda.synchronize()
    began = time.perf_counter()
    while 1e3 * (time.perf_counter() - began) < ms:
        work @ work
        torch.cuda.synchronize()

compute(500)
once, again = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
once.record()
for _ in range(10):
    work @ work
again.record()
torch.cuda.synchronize()
products = round(40 / (once.elapsed_time(again) / 10))
for batch in DataLoader(Late(), batch_size=1, num_workers=1):
    optimizer.zero_grad()
    loss = model(batch.cuda()).sum()
    loss.item()
    for _ in range(products):
        work @ work
    loss.backward()
    optimizer.step()
"""
"""A batch comes each 60 ms, and the script waits nearly all of that time; the GPU works for 40 ms
of it, on what was launched before."""

FILL = """
import torch
kept = []
while True:
    kept.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))
"""


def run(folder: Path, text: str, **specification: object) -> RunOutcome:
    (folder / "script.py").write_text(textwrap.dedent(text))
    [device, *_] = list_gpus()
    request = RunRequest(
        Command(sys.executable, "script.py", folder=str(folder)),
        Specification(seed=0, schedule=Schedule(measure_s=2.0), **specification),
        device,
    )
    return run_script(request, EnergyMeter(device).read_j)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run(tmp_path_factory.mktemp("trained"), TRAIN)


def test_steps_take_as_long_as_the_script_itself_says(trained):
    assert trained.state is TrialState.COMPLETE, trained.reason
    own = [float(line.split()[1]) for line in trained.output.splitlines() if line[:3] == "own"]
    assert trained.measurement.mean_step_ms == pytest.approx(own[-1], rel=0.03)


def test_peak_memory_is_the_allocators(trained):
    own = [int(line.split()[2]) for line in trained.output.splitlines() if line[:3] == "own"]
    assert trained.measurement.peak_memory_bytes == own[-1]


def test_energy_is_between_idle_and_the_limit_of_a_gpu(trained):
    watts = trained.measurement.energy_j_per_step / trained.measurement.mean_step_ms * 1e3
    assert 50 < watts < 1200


def test_the_facts_say_gpu(trained):
    assert trained.measurement.facts.device == "cuda"


def test_what_the_gpu_does_while_the_script_waits_is_no_loss(tmp_path):
    outcome = run(tmp_path, LATE)
    assert outcome.state is TrialState.COMPLETE, outcome.output[-2000:]
    measured = outcome.measurement
    assert measured.mean_step_ms == pytest.approx(60, abs=6)
    assert measured.data_wait_share > 0.85
    assert measured.starved_share == pytest.approx(1 / 3, abs=0.12)


def test_workers_are_forked_again_while_steps_are_timed(tmp_path):
    outcome = run(tmp_path, EPOCHS)
    assert outcome.state is TrialState.COMPLETE, outcome.output[-2000:]
    assert outcome.steps > 2 * 80  # the measurement has seen workers come and go


def test_a_full_gpu_is_out_of_memory(tmp_path):
    outcome = run(tmp_path, FILL)
    assert outcome.state is TrialState.OUT_OF_MEMORY
    assert outcome.place.startswith("script.py, line 5")


def test_the_doctor_finds_nothing_that_blocks(gpuadvisor):
    done = gpuadvisor("doctor", "--json")
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A folder with a script and its plan, and the study that made that."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "train.py").write_text(TRAIN)
    tune = "tune", "train.py", "--only", "tf32", "--budget", "1 trials", "--json"
    done = program_in(folder)(*tune)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def are_forked(study):
    """Whether each run of its proofs was."""
    proofs = [each for each in study["trials"] if each["phase"] == "proof"]
    return [each["start_saved_s"] is not None for each in proofs]


def test_tensor_cores_are_found_proven_and_applied(tuned):
    folder, result = tuned
    assert result["verdict"] == "faster"
    assert result["speedup"]["ci99_low"] > 1.5  # the matrix products alone gain more than 3x
    assert result["best"]["knobs"] == {"tf32": True}
    assert result["equivalence"]["status"] == "equivalent"
    expected = next(each for each in result["expectations"] if each["rule"] == "tf32_off")
    assert expected["is_met"], expected
    assert result["baseline"]["energy_j_per_step"] > result["best"]["energy_j_per_step"]
    forked = are_forked(result)
    assert forked[:2] == [False, False] and all(forked[2:]), result["forking"]
    own = result["best"]["step_ms"]["p50"]
    applied = subprocess.run(
        f"timeout 25 {sys.executable} -m gpuadvisor run --plan {result['plan']} train.py; true",
        shell=True,
        capture_output=True,
        text=True,
        cwd=folder,
    )
    steps = [float(line.split()[1]) for line in applied.stdout.splitlines() if line[:3] == "own"]
    assert steps[-1] == pytest.approx(own, rel=0.1)


def test_a_plan_is_verified_by_two_fresh_processes_and_forked_ones(tuned):
    folder, result = tuned
    done = program_in(folder)("verify", "--plan", result["plan"], "train.py", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["outcome"], found["rehearsed_by"]) == ("holds", result["study"])
    study = found["study"]
    forked = are_forked(study)
    assert len(forked) == len(study["trials"]) >= 6
    assert forked == [False] * 2 + [True] * (len(forked) - 2), study["forking"]


def test_the_batch_grows_until_the_memory_is_full(gpuadvisor, tmp_path):
    [device, *_] = list_gpus()
    (tmp_path / "infer.py").write_text(
        INFER.replace("BYTES", str(device.memory_bytes // (64 * 20)))  # 20 batches would fill it
    )
    done = gpuadvisor("tune", "infer.py", "--only", "batch_size", "--budget", "6 trials", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["best"]["knobs"] == {"batch_size": 16}
    assert 0.7 < result["best"]["peak_memory_bytes"] / device.memory_bytes < 0.9
    larger = [each for each in result["trials"] if each["knobs"] == {"batch_size": 32}]
    assert [each["state"] for each in larger] == ["out_of_memory"]
    assert result["speedup"]["ci99_low"] > 4


@pytest.mark.skipif(len(list_gpus()) < 2, reason="needs two GPUs")
def test_trials_of_several_gpus_run_side_by_side(gpuadvisor, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN_AND_TELL)
    knobs = "tf32,cudnn_benchmark,fused_optimizer,bf16_autocast"
    done = gpuadvisor("tune", "train.py", "--only", knobs, "--budget", "4 trials", "--jobs", "2",
                      "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["speedup"]["ci99_low"] > 1.5
    trials = [each for each in result["trials"] if each["phase"] == "search"]
    assert {each["gpu"] for each in trials} == {0, 1}
    assert {each["gpu"] for each in result["trials"] if each["phase"] == "proof"} == {0}
    began = [line.split() for line in (tmp_path / "began").read_text().splitlines()]
    assert len({gpu for gpu, _, _ in began}) == 2
    assert len({cores for _, cores, _ in began}) == 2  # the profile keeps to them too
    first = {gpu: [float(s) for other, _, s in began if other == gpu] for gpu, _, _ in began}
    one, other = first.values()
    assert min(abs(a - b) for a in one for b in other) < RUN_S


def test_a_plan_from_another_gpu_says_so(gpuadvisor, tmp_path):
    (tmp_path / "train.py").write_text("print('ran')")
    (tmp_path / "a.toml").write_text(
        '[plan]\nformat = 1\nscript = "train.py"\nargs = []\nlevel = "balanced"\n'
        'objective = "throughput"\n[knobs]\ntf32 = true\n[environment]\ndevice = "Tesla T4"\n'
    )
    done = gpuadvisor("run", "--plan", "a.toml", "train.py")
    assert done.stdout == "ran\n"
    assert "the plan was proven on Tesla T4" in done.stderr
