"""Where torch lacks what a hook stands on, the script runs without it, and it is said why."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import gc
gc.disable()  # an import makes no garbage
import os, sys, torch, torch._dynamo
from torch.utils.data import DataLoader, dataloader
from gpuadvisor.collectors.script.child.channel import Channel
from gpuadvisor.collectors.script.child.session import Session
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.tuners.knobs import load_knobs

# Each change is for a process of its own, which has nothing left to import.
folder, *changes = sys.argv[1:]
for change in changes:
    if (child := os.fork()) == 0:
        break
    if os.waitpid(child, 0)[1]:
        os._exit(1)
    print(flush=True)
else:
    os._exit(0)
exec(change)
pipe = os.path.join(folder, str(os.getpid()))
os.mkfifo(pipe)
end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
applications = (load_knobs()["channels_last"].application(True),)
specification = Specification(applications, events=pipe, schedule=Schedule(warmup_s=60))
Session(specification, Channel(pipe)).install()

model = torch.nn.Conv2d(2, 2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images in DataLoader(torch.ones(64, 2, 2, 2), batch_size=4):
    optimizer.zero_grad()
    model(images).sum().backward()
    optimizer.step()
print(os.read(end, 1 << 16).decode(), end="", flush=True)
os._exit(0)
"""
NONE = ""
CALLED = "torch.nn.Module.__call__ = torch.nn.Module._call_impl"
ITERATED = "del dataloader._BaseDataLoaderIter"


@pytest.fixture(scope="module")
def events_with(tmp_path_factory):
    """What is told of a script, by the change that was made to torch before it was hooked."""
    changes = (NONE, CALLED, ITERATED)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("pipes")), *changes]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    told = run.stdout.split("\n\n")[: len(changes)]
    return {
        change: [json.loads(line) for line in lines.splitlines()]
        for change, lines in zip(changes, told, strict=True)
    }


def told(events, kind):
    return [event for event in events if event["event"] == kind]


def test_this_torch_has_all_that_hooks_stand_on(events_with):
    events = events_with[NONE]
    assert not told(events, "harness_failed")
    assert [event["state"] for event in told(events, "knob")] == ["effective"]
    assert "optimizer" in {event["marker"] for event in told(events, "step")}


def test_modules_are_called_in_another_way(events_with):
    events = events_with[CALLED]
    (failure,) = told(events, "harness_failed")
    assert "calls modules in another way" in failure["detail"]
    (knob,) = told(events, "knob")
    assert knob["state"] == "refused"
    assert "calls modules in another way" in knob["detail"]
    assert "optimizer" in {event["marker"] for event in told(events, "step")}


def test_loaders_have_other_iterators(events_with):
    events = events_with[ITERATED]
    (failure,) = told(events, "harness_failed")
    assert "see the batches of the script's DataLoaders" in failure["detail"]
    assert "_BaseDataLoaderIter" in failure["detail"]
    assert [event["state"] for event in told(events, "knob")] == ["effective"]
    assert "optimizer" in {event["marker"] for event in told(events, "step")}
