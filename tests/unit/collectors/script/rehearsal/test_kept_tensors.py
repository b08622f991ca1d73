"""What a model makes in its calls and keeps, and whether it follows what it had before."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpuadvisor.collectors.script.child.rehearsal.kept_tensors import KeptTensors


class Following(nn.Module):
    """Begins with the first features, in their type, and keeps them as `keep` says."""

    def __init__(self, keep):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("there", torch.zeros(4))
        self.kept = None
        self.keep = keep

    def forward(self, x):
        out = self.layer(x)
        with torch.no_grad():
            self.there.lerp_(out.mean(0).float(), 0.01)
            self.kept = self.keep(self.kept, out.detach())
        return out


def moving_average(kept, out):
    return out.mean(0) if kept is None else kept.lerp(out.mean(0), 0.01)


def moving_average_in_place(kept, out):
    return out.mean(0) if kept is None else kept.lerp_(out.mean(0), 0.01)


def total(kept, out):
    kept = {"total": out.new_zeros(())} if kept is None else kept
    kept["total"] += len(out)
    return kept


def last_mean(kept, out):
    return out.mean(0)


def constant(kept, out):
    return out.new_ones(4)


def bank(kept, out):
    """The features of the last 32 batches, a row each."""
    kept = out.new_zeros(32, 4) if kept is None else kept
    place = (kept.sum(1) != 0).sum() % 32
    kept[place] = out[0]
    return kept


def reports(keep, calls=24, autocast=False):
    torch.manual_seed(0)
    model, watched = Following(keep), KeptTensors(torch)
    watched.found(model)
    for _ in range(calls):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            model(torch.randn(16, 4) + 1)
        with torch.no_grad():
            watched.called(model, 0)
    return list(watched.report())


@pytest.mark.parametrize(
    ("keep", "path", "follows"),
    [
        (moving_average, "kept", True),
        (moving_average_in_place, "kept", True),
        (total, "kept['total']", True),
        (last_mean, "kept", False),
        (constant, "kept", False),
        (bank, "kept", False),
    ],
)
def test_what_follows_is_told_from_what_is_made_anew(keep, path, follows):
    assert reports(keep) == [{"root": 0, "path": path, "bits": 32, "follows": follows}]


def test_in_autocast_it_has_the_type_of_the_features():
    (kept,) = reports(moving_average_in_place, autocast=True)
    assert (kept["path"], kept["bits"]) == ("kept", 16)


def test_a_few_calls_say_nothing():
    assert not reports(moving_average, calls=7)[0]["follows"]


def test_what_belongs_to_a_graph_of_gradients_is_no_state():
    model, watched = Following(lambda kept, out: None), KeptTensors(torch)
    watched.found(model)
    model.loss = model(torch.randn(16, 4)).sum()
    watched.called(model, 0)
    assert list(watched.report()) == []


class Follower:
    """Follows the outputs of a layer, as a hook or with a method that is one."""

    def __init__(self):
        self.mean = None

    def __call__(self, module, inputs, out):
        self.mean = moving_average(self.mean, out.detach())


def nested():
    means = [None]

    def hook(module, inputs, out):
        means[0] = moving_average(means[0], out.detach())

    return hook


@pytest.mark.parametrize(
    ("make", "path"),
    [(Follower, "mean"), (lambda: Follower().__call__, "mean"), (nested, "means[0]")],
)
def test_what_a_hook_keeps(make, path):
    torch.manual_seed(0)
    model, watched = nn.Sequential(nn.Linear(4, 4)), KeptTensors(torch)
    model[0].register_forward_hook(make())
    watched.found(model)
    for _ in range(24):
        model(torch.randn(16, 4) + 1)
        with torch.no_grad():
            watched.called(model, 0)
    assert list(watched.report()) == [{"root": 0, "path": path, "bits": 32, "follows": True}]


class Usage:
    """An object of the script's own that a model tells of its features."""

    def __init__(self):
        self._counts = {}

    def follow(self, out):
        self._counts["mean"] = moving_average(self._counts.get("mean"), out.detach())


everywhere = Usage()


class Telling(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self._usage = Usage()

    def forward(self, x):
        out = self.layer(x)
        self._usage.follow(out)
        return out


class TellingAll(Telling):
    def forward(self, x):
        out = self.layer(x)
        everywhere.follow(out)
        return out


@pytest.mark.parametrize(
    ("make", "path"),
    [(Telling, "_usage._counts['mean']"), (TellingAll, "everywhere._counts['mean']")],
)
def test_what_an_object_of_the_scripts_own_keeps(make, path):
    torch.manual_seed(0)
    model, watched = make(), KeptTensors(torch)
    watched.found(model)
    for _ in range(24):
        model(torch.randn(16, 4) + 1)
        with torch.no_grad():
            watched.called(model, 0)
    assert list(watched.report()) == [{"root": 0, "path": path, "bits": 32, "follows": True}]
