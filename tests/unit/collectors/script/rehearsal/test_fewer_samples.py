"""Data sets that are made smaller in place, and those that are left as they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from gpuadvisor.collectors.script.child.rehearsal.fewer_samples import keep_fewer

PATHS = [f"{n}.png" for n in range(100)]


class Pictures:
    """As torchvision's `ImageFolder`: one list under two names, and another."""

    def __init__(self, count=100):
        self.classes = ["cat", "dog"]
        self.samples = self.imgs = [(f"{n}.png", n % 2) for n in range(count)]
        self.targets = [n % 2 for n in range(count)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, n):
        return self.samples[n], self.targets[n]


class Reading:
    """As timm's `ImageDataset`, whose reader knows the files."""

    def __init__(self):
        self.reader = Pictures()

    def __len__(self):
        return len(self.reader.samples)

    def filenames(self):
        return [path for path, _ in self.reader.samples]


def test_all_that_tells_of_samples_is_shortened_alike():
    data = Pictures()
    known = data.samples
    assert keep_fewer(data, 3, 8) == 100
    assert len(data) == len(data.targets) == 2 * 8 + 100 % 8
    assert data.imgs is data.samples is known, "the script may have a name for it, too"
    assert data.classes == ["cat", "dog"]
    assert [n % 2 for n in range(0, 100, 5)] == [target for _, target in data.samples]
    assert data.samples[0][0] == "0.png" and data.samples[-1][0] == "95.png"


def test_what_lies_within():
    data = Reading()
    assert keep_fewer(data, 2, 10) == 100
    assert len(data) == len(data.filenames()) == 20


@pytest.mark.parametrize(
    "data",
    [
        TensorDataset(torch.arange(100), torch.arange(100)),
        Subset(Pictures(200), range(20, 120)),
        Subset(Pictures(200), list(range(100))),
    ],
    ids=["tensors", "a range of others", "some of others"],
)
def test_those_of_torch(data):
    assert keep_fewer(data, 2, 10) == 100
    assert len(data) == 20
    assert len([data[n] for n in range(20)]) == 20


def test_an_array():
    class Arrays:
        def __init__(self):
            self.x = np.arange(300).reshape(100, 3)

        def __len__(self):
            return len(self.x)

    data = Arrays()
    assert keep_fewer(data, 1, 5) == 100
    assert data.x[:, 0].tolist() == [0, 60, 120, 180, 240]


class Counted:
    def __init__(self):
        self.paths, self.count = list(PATHS), 100

    def __len__(self):
        return self.count


class Failing(Counted):
    def __len__(self):
        return self.paths.index("99.png") + 1


class Stream:
    pass


@pytest.mark.parametrize("make", [Counted, Failing, Stream, lambda: Pictures(20), lambda: PATHS])
def test_what_does_not_follow_is_left_as_it_is(make):
    data = make()
    before = {name: list(value) for name, value in getattr(data, "__dict__", {}).items()
              if isinstance(value, list)}  # fmt: skip
    assert keep_fewer(data, 2, 10) is None
    for name, value in before.items():
        assert vars(data)[name] == value
    assert len(PATHS) == 100
