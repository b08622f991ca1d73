"""Where torch lacks what a hook stands on, the script runs without it, and it is said why."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import os, sys, torch
from torch.utils.data import DataLoader, dataloader
from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.session import Session
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.tuners.knobs import load_knobs

{change}
os.mkfifo(sys.argv[1])
end = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
applications = (load_knobs()["channels_last"].application(True),)
specification = Specification(applications, events=sys.argv[1], schedule=Schedule(warmup_s=60))
Session(specification, Channel(sys.argv[1])).install()

model = torch.nn.Conv2d(2, 2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images in DataLoader(torch.ones(64, 2, 2, 2), batch_size=4):
    optimizer.zero_grad()
    model(images).sum().backward()
    optimizer.step()
print(os.read(end, 1 << 16).decode())
"""


def events_with(change, folder):
    """Return what is told of a script, in a torch that was changed before it was hooked."""
    command = [sys.executable, "-c", PROGRAM.format(change=change), str(folder / "events")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def told(events, kind):
    return [event for event in events if event["event"] == kind]


def test_this_torch_has_all_that_hooks_stand_on(tmp_path):
    events = events_with("", tmp_path)
    assert not told(events, "harness_failed")
    assert [event["state"] for event in told(events, "knob")] == ["effective"]
    assert "optimizer" in {event["marker"] for event in told(events, "step")}


def test_modules_are_called_in_another_way(tmp_path):
    events = events_with("torch.nn.Module.__call__ = torch.nn.Module._call_impl", tmp_path)
    (failure,) = told(events, "harness_failed")
    assert "calls modules in another way" in failure["detail"]
    (knob,) = told(events, "knob")
    assert knob["state"] == "refused"
    assert "calls modules in another way" in knob["detail"]
    assert "optimizer" in {event["marker"] for event in told(events, "step")}


def test_loaders_have_other_iterators(tmp_path):
    events = events_with("del dataloader._BaseDataLoaderIter", tmp_path)
    (failure,) = told(events, "harness_failed")
    assert "see the batches of the script's DataLoaders" in failure["detail"]
    assert "_BaseDataLoaderIter" in failure["detail"]
    assert [event["state"] for event in told(events, "knob")] == ["effective"]
    assert "optimizer" in {event["marker"] for event in told(events, "step")}
