"""What a gate counts in the steps of real scripts."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.script.child.trace import TraceRecorder
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.tuners.gate.metrics import chosen
from gpuadvisor.tuning.gate.counting import STEPS, Counting
from tests.integration import program, runs

TRAIN = """
import torch
device = torch.device(DEVICE)
weight = torch.ones(64, 64, device=device, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for number in range(1_000_000):
    x = torch.ones(32, 64, device=device)
    y = x @ weight
    optimizer.zero_grad()
    y.sum().backward()
    optimizer.step()
    if number % 10 == 0:
        y.sum().item()
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run on the CPU, the events that it sent, and what was counted after it."""
    folder = tmp_path_factory.mktemp("counted")
    (folder / "train.py").write_text(TRAIN.replace("DEVICE", "'cpu'"))
    counting, events = Counting(runs.CPU, chosen((), ("operators", "allocated_bytes"))), []
    assert counting.wants("first", [])
    assert not counting.wants("pair 1", [])
    request = runs.request(
        Command(sys.executable, "train.py", folder=str(folder)), runs.QUICK, runs.PATIENT
    )
    specification = replace(request.specification, applications=(counting.application(folder),))
    request = replace(request, specification=specification, on_event=events.append)
    outcome = run_script(request)
    assert outcome.measurement is not None, outcome.reason + outcome.output
    return outcome.measurement, [each["event"] for each in events], folder, counting


def test_steps_are_counted_after_those_that_are_measured(measured):
    found, events, folder, counting = measured
    counts = counting.counted(found, folder).counts
    usual = {name: min(each) for name, each in counts["operators"].items()}
    for name in ("aten::ones", "aten::matmul", "aten::sum", "aten::add_"):
        assert usual[name] == 1
    # One step in ten sums up once more, and nothing that is not the script's was counted.
    own = {name for name, each in counts["operators"].items() if max(each) > usual[name]}
    assert own <= {"aten::sum", "aten::item"}, counts["operators"]
    assert all(len(each) == STEPS for each in counts["operators"].values())
    (size,) = set(counts["allocated_bytes"]["host"][:1])
    assert size >= 4 * (32 * 64 + 32 * 64 + 64 * 64)
    assert "kernels" not in counts
    last_window = len(events) - events[::-1].index("window")
    assert events[last_window:].count("measured") == 1
    assert events.index("measured") < events.index("done")


def test_a_recorder_that_stopped_calls_no_operator():
    recorder, loss = TraceRecorder(torch), torch.ones(1)
    recorder.loss(loss)
    recorder.stop()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(30):
            recorder.loss(loss, 10)
            recorder.output(loss)
    assert [event.key for event in profiler.key_averages()] == []
    assert recorder.losses() == [1.0]


def test_what_cannot_be_counted_is_said(measured, tmp_path):
    found, _, _, counting = measured
    gone = counting.counted(replace(found, applied=()), tmp_path)
    assert gone.applied[-1].detail == "no steps of torch followed those that were measured"
    assert gone.counts == found.counts


@pytest.mark.slow
def test_counts_alone_are_the_same_steps_however_fast_they_are(tmp_path):
    """Each tenth step has two operators more, which are as many as the change adds."""
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, more in ((old, ""), (new, ".relu()")):
        folder.mkdir()
        text = TRAIN.replace("DEVICE", "'cpu'").replace("x @ weight", f"(x @ weight){more}")
        (folder / "train.py").write_text(text)
    words = ("gate", "--only", "operators,allocated_bytes", "--json", "--base-folder", str(old))
    same = program.run(tmp_path, *words, "--head-folder", str(old), "train.py")
    assert same.status == 0, same.err
    found = json.loads(same.out)
    counts = [run["counts"] for run in found["runs"]]
    assert len(counts) == 4 and all(each == counts[0] for each in counts)
    assert {each["ratio"] for each in found["metrics"]} == {1.0}
    assert {tuple(run["counted_steps"]) for run in found["runs"]} == {(9, 13)}
    assert "in steps 9 to 13" in found["reason"]
    changed = program.run(tmp_path, *words, "--head-folder", str(new), "train.py")
    assert changed.status == 4, changed.err
    metrics = {each["metric"]: each for each in json.loads(changed.out)["metrics"]}
    assert metrics["operators"]["detail"] == "+1 aten::relu; +1 aten::threshold_backward"
    assert {each["verdict"] for each in metrics.values()} == {"fail"}


GATED = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda()
x = torch.randn(256, 1024, device="cuda")
MORE
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for number in range(1_000_000):
    optimizer.zero_grad()
    y = call(x)
    y.square().mean().backward()
    optimizer.step()
    if number % 10 == 0:
        torch.cuda.synchronize()
"""
EAGER, COMPILED = "call = model", "call = torch.compile(model)"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("base", "head", "metric", "named"),
    [
        (EAGER, EAGER, None, ""),
        (EAGER, "call = lambda x: model(x).relu_()", "kernels", "aten::relu_"),
        (EAGER, "call = lambda x: model(x.cpu().cuda())", "copies", "device to host"),
        (
            COMPILED,
            "def call(x): torch._dynamo.graph_break(); return model(x)\ncall = torch.compile(call)",
            "graph_breaks",
            "graph_break",
        ),
    ],
    ids=["unchanged", "kernel", "copy", "graph break"],
)
def test_on_a_gpu_one_more_is_named(tmp_path, base, head, metric, named):
    assert list_gpus()
    repo = tmp_path / "repo"
    repo.mkdir()
    script = repo / "train.py"
    git = ["git", "-C", str(repo), "-c", "user.name=n", "-c", "user.email=n@n"]
    script.write_text(GATED.replace("MORE", base))
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *words], check=True)
    script.write_text(GATED.replace("MORE", head))
    options = ("--only", ",".join({"kernels", metric or "kernels"}), "--json")
    visible = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")}
    answer = program.run(tmp_path, "gate", "--base", "HEAD", *options, "train.py", folder=repo,
                         **visible)  # fmt: skip
    assert answer.status in (0, 4), answer.err
    found = {each["metric"]: each for each in json.loads(answer.out)["metrics"]}
    failed = {name for name, each in found.items() if each["verdict"] == "fail" and each["exact"]}
    assert found["kernels"]["exact"]
    if metric is None:
        assert not failed
        assert found["kernels"]["detail"] is None
    else:
        assert metric in failed
        assert named in found[metric]["detail"]
