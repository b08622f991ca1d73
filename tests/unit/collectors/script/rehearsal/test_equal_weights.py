"""One life keeps its weights as passes begin and end, and another takes them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gpuadvisor.collectors.script.child.rehearsal import equal_weights
from gpuadvisor.collectors.script.child.rehearsal.equal_weights import (
    EqualWeights,
    kept_of,
    numbers_of,
)


def trained(seed, steps=2):
    """A network with batch norm after a few steps, and the optimizer that took them."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(64, 2)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(steps):
        net(torch.randn(8, 3, 6, 6)).sum().backward()
        optimizer.step()
    return net, optimizer


def step(net, optimizer):
    optimizer.zero_grad()
    net(torch.ones(8, 3, 6, 6)).square().sum().backward()
    optimizer.step()
    return net.eval()(torch.ones(8, 3, 6, 6))


def test_a_life_goes_on_from_the_weights_of_another_one(tmp_path):
    (net, optimizer), (other, its_optimizer) = trained(1), trained(2)
    other.to(memory_format=torch.channels_last)
    keeping = EqualWeights(torch, str(tmp_path), takes=False)
    taking = EqualWeights(torch, str(tmp_path), takes=True)
    with torch.no_grad():
        assert keeping.exchange("pass 1", [net], [optimizer])
        assert taking.exchange("pass 1", [other], [its_optimizer])
    assert other[0].weight.is_contiguous(memory_format=torch.channels_last)
    for mine, theirs in zip(net.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
    torch.testing.assert_close(step(net, optimizer), step(other, its_optimizer))


def test_what_does_not_fit_is_not_taken(tmp_path):
    net, optimizer = trained(1)
    EqualWeights(torch, str(tmp_path), takes=False).exchange("pass 1", [net], [optimizer])
    other = nn.Linear(3, 2)
    before = other.weight.detach().clone()
    taking = EqualWeights(torch, str(tmp_path), takes=True)
    assert not taking.exchange("pass 1", [other], [])
    assert not taking.exchange("pass 2", [net], [optimizer]), "nothing was kept of that"
    taking.forked()
    assert not taking.exchange("pass 1", [net], [optimizer]), "nor of a child's"
    assert torch.equal(other.weight, before)


def test_a_disk_is_not_filled(tmp_path, monkeypatch):
    net, optimizer = trained(1)
    free = SimpleNamespace(free=6_000)
    monkeypatch.setattr(equal_weights.shutil, "disk_usage", lambda _: free)
    keeping = EqualWeights(torch, str(tmp_path), takes=False)
    assert keeping.exchange("step 1", [net], [optimizer])
    assert not keeping.exchange("step 4", [net], [optimizer])
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_numbers_are_those_of_the_same_places_in_each_layout(layout):
    weight = torch.arange(640.0).reshape(2, 5, 8, 8).to(memory_format=layout)
    assert numbers_of(torch, [weight]).tolist() == [639 * n // 63 for n in range(64)]
    assert kept_of(weight) == 64
    assert numbers_of(torch, []).tolist() == []


def test_numbers_of_sparse_gradients_and_of_complex_weights():
    embedding = nn.Embedding(10, 2, sparse=True)
    embedding(torch.tensor([3, 7, 7])).sum().backward()
    assert numbers_of(torch, [embedding.weight.grad]).tolist() == [1, 1, 2, 2]
    pair = torch.tensor([1 + 2j, 3 - 4j])
    assert numbers_of(torch, [pair]).tolist() == [1, 2, 3, -4]
    assert kept_of(pair) == 4
