"""Graph breaks as Dynamo's own counters have them, and what those leave out."""

import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from gpuadvisor.collectors.script.child.counters import dynamo_counts

ITEM = "Unsupported Tensor.item() call\n  Explanation: Dynamo does not support tracing it."


@pytest.mark.parametrize(
    ("counters", "breaks"),
    [
        ({}, {}),
        ({"frames": Counter(total=2, ok=2)}, {}),
        (
            {"graph_break": Counter({ITEM: 3}), "frames": Counter(total=4, ok=4)},
            {"Unsupported Tensor.item() call": 3},
        ),
        (  # torch 2.13, a break within a loop: the frame is skipped, and no break is counted
            {"frames": Counter(total=1), "unimplemented": Counter({ITEM: 1})},
            {"left to Python as a whole: Unsupported Tensor.item() call": 1},
        ),
        ({"frames": Counter(total=3, ok=1)}, {"left to Python as a whole": 2}),
    ],
)
def test_graph_breaks(monkeypatch, counters, breaks):
    module = SimpleNamespace(counters=counters)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)
    assert dynamo_counts()["graph_breaks"] == breaks


def test_without_dynamo(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert dynamo_counts() == {}
