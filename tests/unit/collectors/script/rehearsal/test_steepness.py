"""Which steep functions a loss takes of numbers that have 16 bits."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpuadvisor.collectors.script.child.rehearsal.steepness import steep_functions


def outputs(last, is_short=True):
    """What a model puts out in autocast, brought to float32."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), last)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_short):
        return model(torch.randn(4, 8)).float()


def by_hand(p):
    return -(torch.log(p) + torch.log(1 - p)).mean()


STEEP = [
    (by_hand, {"Log"}),
    (lambda p: torch.log((1 - p[:, :2]).clamp(min=1e-7)).sum(), {"Log"}),
    (lambda p: torch.log(p / (1 - p)).sum(), {"Log"}),
    (lambda p: torch.log(1 - p + 1e-8).sum(), {"Log"}),
    (lambda p: torch.log1p(-p).sum(), {"Log1P"}),
    (lambda p: nn.functional.binary_cross_entropy(p, torch.ones_like(p)), {"BinaryCrossEntropy"}),
    (lambda p: torch.acos(p.clamp(-1 + 1e-7, 1 - 1e-7)).mean(), {"Acos"}),
    (lambda p: torch.logit(p).mean(), {"Logit"}),
    (lambda p: torch.sqrt(1 - p**2).mean(), {"Sqrt"}),
]
FLAT = [
    lambda p: -torch.log(p).mean(),
    lambda p: -torch.log(p + 1e-8).mean(),
    lambda p: torch.log(1 + p).mean(),
    lambda p: torch.log1p(p).mean(),
    lambda p: torch.log1p(torch.exp(-p)).mean(),
    lambda p: torch.logsumexp(p - p.max(), 0).mean(),
    lambda p: torch.log(torch.exp(p - p.max()).sum(1)).mean(),
    lambda p: torch.sqrt((p - 0.5) ** 2 + 1e-6).mean(),
    lambda p: nn.functional.cross_entropy(p, torch.zeros(4, dtype=torch.long)),
    lambda p: nn.functional.binary_cross_entropy_with_logits(p, torch.ones_like(p)),
    lambda p: nn.functional.mse_loss(p, torch.ones_like(p)),
    lambda p: ((p - p.mean()) / p.std()).square().mean(),
]


@pytest.mark.parametrize(("loss", "names"), STEEP)
def test_what_is_steep_where_numbers_with_16_bits_are_far_apart(loss, names):
    assert set(steep_functions(torch, loss(outputs(nn.Sigmoid())))) == names


@pytest.mark.parametrize(("loss", "names"), STEEP)
def test_of_numbers_with_32_bits_nothing_is_told(loss, names):
    assert not list(steep_functions(torch, loss(outputs(nn.Sigmoid(), is_short=False))))


@pytest.mark.parametrize("loss", FLAT)
def test_what_is_not_steep(loss):
    assert not list(steep_functions(torch, loss(outputs(nn.Sigmoid()))))


def test_what_a_model_computes_of_it_in_16_bits_itself():
    torch.manual_seed(0)
    layer = nn.Linear(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        loss = by_hand(layer(torch.randn(4, 8)).sigmoid())
    assert set(steep_functions(torch, loss)) == {"Log"}


def test_a_loss_without_a_graph():
    assert not list(steep_functions(torch, torch.zeros(())))
