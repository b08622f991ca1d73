"""Whether weights changed since a module was first called, or an optimizer trains something."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpuadvisor.collectors.script.child.rehearsal.learning import Learning


def seen(change):
    torch.manual_seed(0)
    model, learning = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), Learning(torch)
    learning.found(model)
    change(model)
    learning.look(model)
    return learning.is_seen


def by_hand(model):
    model(torch.randn(4, 8)).sum().backward()
    for weight in model.parameters():
        weight.data -= 0.1 * weight.grad


def test_steps_that_are_made_by_hand():
    assert seen(by_hand)


def test_statistics_of_a_batch_norm_are_no_weights():
    assert not seen(lambda model: model(torch.randn(4, 8)))


def test_gradients_of_inputs_leave_weights_alone():
    x = torch.randn(4, 8, requires_grad=True)
    assert not seen(lambda model: model(x).mean().backward())


def test_a_module_that_was_not_found():
    learning = Learning(torch)
    learning.look(nn.Linear(2, 2))
    assert not learning.is_seen


@pytest.mark.parametrize(
    ("batches", "per_batch", "trains"),
    [
        ([1, 1, 2, 2], False, True),
        ([1, 1, 2, 2], True, False),
        ([0, 0], True, True),
    ],
)
def test_an_optimizer_of_one_batch_changes_inputs(batches, per_batch, trains):
    learning, made = Learning(torch), {}
    for batch in batches:
        optimizer = made.setdefault(batch if per_batch else 0, torch.optim.SGD([torch.ones(2)]))
        learning.stepped(optimizer, batch)
    assert learning.is_seen is trains


def test_an_optimizer_of_a_model_that_sees_one_batch_only():
    model, learning = nn.Linear(4, 4), Learning(torch)
    learning.found(model)
    learning.stepped(torch.optim.SGD(model.parameters()), 1)
    assert learning.is_seen
