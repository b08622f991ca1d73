"""A padded sample without its padding is the sample that was there before."""

from __future__ import annotations

import numpy
import pytest

from gpuadvisor.collectors.script.child.rehearsal.fingerprints import samples_of, unpadded
from gpuadvisor.collectors.script.child.rehearsal.life import _divided

torch = pytest.importorskip("torch")
ARRAYS = {
    "tokens": torch.randint(1, 900, (1, 9)),
    "sounds": torch.randn(1, 20, 8),
    "channels first": torch.randn(1, 8, 20),
    "picture": torch.rand(1, 3, 12, 10),
    "half": torch.randn(1, 20, 4).bfloat16(),
    "mask": torch.ones(1, 9, dtype=torch.bool),
    "array": numpy.random.default_rng(0).standard_normal((1, 9, 4)),
}


def padded(array, number, *sizes):
    """Return a row at the start of a larger one that is filled with a number."""
    full = torch.full((1, *sizes), number, dtype=torch.as_tensor(array).dtype)
    full[tuple(slice(0, n) for n in array.shape)] = torch.as_tensor(array)
    return full.numpy() if isinstance(array, numpy.ndarray) else full


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("number", [0, 1])
def test_what_was_padded(name, number):
    array = ARRAYS[name]
    number = 0 if name == "mask" else number
    sizes = {"channels first": (8, 31), "picture": (3, 16, 16)}.get(name)
    sizes = sizes or (array.shape[1] + 4, *array.shape[2:])
    (found,) = unpadded(padded(array, number, *sizes), 1)
    assert found[0] == samples_of(array, 1)[0][0]
    (other,) = unpadded(padded(array, number, *(n + 1 for n in sizes)), 1)
    assert other == found
    assert samples_of(padded(array, number, *sizes), 1)[0][0] != found[0]


def test_numbers_that_pad_are_told_apart():
    ends = [unpadded(padded(ARRAYS["sounds"], n, 25, 8), 1)[0][1] for n in (0.0, -1.0, 2.0)]
    assert len(set(ends)) == 3


def test_each_row_has_its_own_length():
    rows = torch.tensor([[4, 5, 0, 0], [4, 5, 6, 0], [4, 8, 6, 7], [0, 0, 0, 0]])
    found = unpadded(rows, 4)
    assert len({row for row, _ in found}) == 4
    assert [end for _, end in found] == [0, 0, 7, 0]


def test_a_sample_alone_is_the_sample_that_it_is_in_a_batch():
    rows = torch.randn(4, 3, 5)
    assert samples_of(rows[1:2], 1)[0][0] == samples_of(rows, 4)[0][1]


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1, 0]), torch.randn(2, 3, 8, 8), torch.zeros(2, 0), [1, 2], "ab",
        torch.zeros(3, 4), torch.eye(2).to_sparse(), torch.zeros(2, 4, dtype=torch.complex128),
        numpy.array([["a", None], ["b", "c"]], object),
    ],
)  # fmt: skip
def test_nothing_that_could_be_padding(value):
    assert unpadded(value, 2) == []


def test_arrays_that_stand_together_are_parts_of_their_own():
    tokens, mask, labels = torch.ones(4, 9), torch.ones(4, 9), torch.ones(4)
    pictures = [torch.ones(3, 5) for _ in range(4)]
    alone = [torch.ones(4, 5) for _ in range(4)]
    assert len(_divided([(tokens, mask), labels], 4)) == 3
    assert len(_divided([{"ids": tokens, "mask": mask, "labels": labels}], 4)) == 3
    for whole in (pictures, alone, (tokens, "name"), [], "text", None):
        assert _divided([whole, labels], 4) == [whole, labels]
