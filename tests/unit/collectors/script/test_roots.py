"""Which modules are taken for those that a script itself calls, early and late."""

from __future__ import annotations

import gc
import weakref
from importlib import import_module

import pytest
import torch
from torch import nn

from gpuadvisor.collectors.script.child.counters import Counters
from gpuadvisor.collectors.script.child.registry import KnobTarget, Registry
from gpuadvisor.collectors.script.child.roots import DYNAMO_COPIES, SETTLED_CALLS, Roots

X = torch.ones(2, 4)


class Seen:
    """What became of modules: which were observed, and what a setting did with them."""

    def __init__(self) -> None:
        self.called, self.found, self.prepared, self.surrounded = [], [], [], []

    def look(self, observes_all):
        registry = Registry(lambda *_: None)
        target = KnobTarget("knob", registry)
        target.on_root(self.prepared.append)
        target.around_root(self._around)
        Roots(torch, registry, Counters(), self._observe, self.found.append, observes_all).look()
        return registry

    def _observe(self, module, is_first, args, kwargs, result):
        self.called.append(module)

    def _around(self, module, call, args, kwargs):
        self.surrounded.append(module)
        return call(*args, **kwargs)


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    monkeypatch.setattr(nn.Module, "__call__", nn.Module.__call__)
    for name in DYNAMO_COPIES:
        copies = import_module(name)
        if hasattr(copies, "unpatched_nn_module_call"):
            monkeypatch.setattr(copies, "unpatched_nn_module_call", nn.Module.__call__)
    monkeypatch.setattr(torch.jit, "script", torch.jit.script)


@pytest.mark.parametrize("observes_all", [True, False])
def test_only_observers_see_models_that_come_late(observes_all):
    seen, models = Seen(), [nn.Linear(4, 4) for _ in range(4)]
    seen.look(observes_all)
    for model in models:
        for _ in range(SETTLED_CALLS):
            model(X)
    expected = models if observes_all else models[:1]
    assert seen.found == expected
    assert seen.called == [model for model in expected for _ in range(SETTLED_CALLS)]
    assert seen.prepared == models[:1], "a setting does with them what it does in a whole run"
    assert set(seen.surrounded) == {models[0]}


def test_what_a_root_is_given_later_is_a_part_of_it():
    seen, model = Seen(), nn.Sequential(nn.Linear(4, 4))
    seen.look(True)
    for call in range(12):
        if call == 8:
            model.append(nn.Linear(4, 4))
        model(X)
    model[1](X)
    assert seen.called == [model] * 12


def test_a_second_head_that_the_script_calls_itself():
    seen, body, heads = Seen(), nn.Linear(4, 4), [nn.Linear(4, 4) for _ in range(2)]
    seen.look(True)
    for head in heads:
        for _ in range(8):
            head(body(X))
    assert [seen.called.count(each) for each in (body, *heads)] == [16, 8, 8]


def test_models_that_are_dropped_are_not_kept():
    seen, kept, dropped = Seen(), nn.Linear(4, 4), []
    seen.look(True)
    for _ in range(8):
        kept(X)
        model = nn.Linear(4, 4)
        model(X)
        dropped.append(weakref.ref(model))
    assert len(seen.found) == 9
    del model
    for noted in (seen.called, seen.found, seen.prepared, seen.surrounded):
        noted.clear()
    gc.collect()
    assert [each() for each in dropped] == [None] * 8


def test_parts_that_a_compiler_calls_without_data_are_no_roots():
    """torch 2.4 calls them in Python; so it is done here, whatever this torch does."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    seen, model = Seen(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    seen.look(observes_all=True)
    with FakeTensorMode():
        part = nn.Linear(4, 4)
        part(torch.ones(2, 4))
    model(X)
    assert seen.found == [model]


def test_parts_that_the_graph_of_a_compiled_function_calls_are_no_roots():
    """That of torch 2.4 does; so it is done here, whatever this torch compiles."""
    seen, model = Seen(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    seen.look(observes_all=True)
    torch.fx.symbolic_trace(model).forward(X)
    assert not seen.found
    model(X)
    assert seen.found == seen.called == [model]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("compiled_by", ["script", "module"])
def test_parts_of_a_compiled_model_are_no_roots(compiled_by):
    seen, model = Seen(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    registry = seen.look(observes_all=True)
    assert registry.root_preparers
    if compiled_by == "module":
        model.compile(backend="aot_eager")
        called = model
    else:
        called = torch.compile(model, backend="aot_eager")
    for _ in range(2):
        called(X).sum().backward()
    assert seen.found in ([model], [called])
