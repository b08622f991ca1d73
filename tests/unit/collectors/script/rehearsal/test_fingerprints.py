"""Batches of all kinds: the same samples have the same fingerprints, changed ones others."""

from __future__ import annotations

import collections
import dataclasses
import random
from typing import Any

import hypothesis.strategies as st
import numpy
import pytest
from hypothesis import given, settings

from gpuadvisor.collectors.script.child.rehearsal import fingerprints
from gpuadvisor.collectors.script.child.rehearsal.fingerprints import (
    fingerprint,
    samples_of,
    unpadded,
)
from gpuadvisor.collectors.script.child.rehearsal.life import _divided

torch = pytest.importorskip("torch")


@dataclasses.dataclass
class Sample:
    image: Any
    label: Any


class Encoding(collections.UserDict[str, Any]):
    """As that of `transformers`."""


def images(seed: int = 0, *shape: int) -> Any:
    return torch.randn(4, *(shape or (3, 5)), generator=torch.Generator().manual_seed(seed))


LABELS = torch.tensor([3, 1, 4, 1])
DIVIDED = {
    "tensor": images(),
    "pair": [images(), LABELS],
    "tuple": (images(), LABELS),
    "dict": {"image": images(), "label": LABELS, "name": ["a", "b", "c", "d"]},
    "dataclass": Sample(images(), LABELS),
    "encoding": Encoding(input_ids=images(), mask=LABELS),
    "array": images().numpy(),
    "samples": [Sample(torch.ones(n), n) for n in (1, 2, 3, 5)],
    "texts": ["a", "b", "c", "d"],
    "objects": numpy.array(["a", "b", None, 3], object),
    "bool": images() > 0,
    "bfloat16": images().bfloat16(),
    "float8": images().to(torch.float8_e4m3fn),
    "complex": torch.complex(images(), images(1)),
    "conjugate": torch.complex(images(), images(1)).conj(),
    "channels last": images(0, 3, 4, 4).to(memory_format=torch.channels_last),
    "strided": images(0, 3, 10)[:, :, ::2],
    "requires grad": images().requires_grad_(),
    "dates": numpy.array(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"], "M8[D]"),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_each_sample_has_a_fingerprint_of_its_own(name: str) -> None:
    found, _ = samples_of(DIVIDED[name], 4)
    assert len(set(found)) == 4
    assert found == samples_of(DIVIDED[name], 4)[0]
    assert all(0 <= one < 2**64 for one in found)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_divided() -> None:
    parts = [torch.full((n,), 1.0) for n in (1, 2, 3, 5)]
    found, _ = samples_of(torch.nested.nested_tensor(parts), 4)
    assert len(set(found)) == 4
    other, _ = samples_of(torch.nested.nested_tensor(parts[::-1]), 4)
    assert found == other[::-1]


@pytest.mark.parametrize("name", ["tensor", "pair", "dict", "encoding", "array"])
def test_the_same_samples_in_another_order_have_the_same_fingerprints(name: str) -> None:
    order = [2, 0, 3, 1]

    def shuffled(value: Any) -> Any:
        if isinstance(value, (dict, Encoding)):
            return type(value)({key: shuffled(item) for key, item in value.items()})
        if isinstance(value, list):
            parts = [value[i] for i in order] if isinstance(value[0], str) else map(shuffled, value)
            return list(parts)
        return value[order]

    found, moments = samples_of(DIVIDED[name], 4)
    other, other_moments = samples_of(shuffled(DIVIDED[name]), 4)
    assert other == tuple(found[i] for i in order)
    assert other_moments[::2] == pytest.approx([moments[2 * i] for i in order])


@pytest.mark.parametrize(
    "value",
    [
        images().to_sparse(),
        torch.tensor(3),
        3,
        "text",
        None,
        [],
        {},
        torch.zeros(0, 4),
        collections.deque([1]),
        {1, 2},
    ],
)
def test_what_cannot_be_divided_has_one_fingerprint(value: Any) -> None:
    found, _ = samples_of(value, 4)
    assert len(found) == 1
    assert found[0] == samples_of(value, 4)[0][0]


def test_a_last_batch_is_smaller() -> None:
    assert len(samples_of([images()[:3], LABELS[:3]], 4)[0]) == 3


def test_a_common_part_counts_for_each_sample() -> None:
    found = samples_of({"image": images(), "scale": 1}, 4)[0]
    other = samples_of({"image": images(), "scale": 2}, 4)[0]
    assert len(found) == 4
    assert not set(found) & set(other)


def flipped(value: Any, place: int, bit: int) -> Any:
    content = bytearray(value.numpy().tobytes())
    content[place] ^= 1 << bit
    return torch.frombuffer(content, dtype=value.dtype).reshape(value.shape)


def by_device(value: Any) -> tuple[int, ...]:
    """Compute what a GPU would, here."""
    with torch.no_grad():
        return tuple(fingerprints._device_rows(torch, value, len(value)).tolist())


def by_processor(value: Any) -> tuple[int, ...]:
    return samples_of(value, len(value))[0]


@pytest.mark.parametrize("rows_of", [by_processor, by_device])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_changes_its_sample_alone(rows_of: Any, data: Any) -> None:
    dtype = data.draw(st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.float64]))
    value = torch.arange(4 * 35).reshape(4, 5, 7).to(dtype)
    place = data.draw(st.integers(0, value.nbytes - 1))
    before, after = rows_of(value), rows_of(flipped(value, place, data.draw(st.integers(0, 7))))
    changed = [i for i in range(4) if before[i] != after[i]]
    assert changed == [place // (value.nbytes // 4)]


@pytest.mark.parametrize("rows_of", [by_processor, by_device])
def test_swapped_values_and_signs_change_a_sample(rows_of: Any) -> None:
    draw = random.Random(0)
    value = images(0, 40)
    for _ in range(200):
        i, j = draw.sample(range(40), 2)
        swapped, negated = value.clone(), value.clone()
        swapped[:, [i, j]] = swapped[:, [j, i]]
        negated[:, [i, j]] *= -1
        for other in (swapped, negated):
            assert not set(rows_of(value)) & set(rows_of(other))


def test_a_shift_or_a_split_changes_the_fingerprint() -> None:
    different = [
        [1, [2, 3]], [[1, 2], 3], [1, 2, 3], (1, 2, 3), [1, 2, 3.0], [1, 2, True], ["1", 2, 3],
        {"a": 1}, {"a": "1"}, {"b": 1}, ["ab", "c"], ["a", "bc"], b"a", "a", [None], [], None,
        numpy.float32(1), numpy.float64(1), torch.ones(2, 3), torch.ones(3, 2), torch.ones(6),
        torch.zeros(3), torch.zeros(3, dtype=torch.int32), -torch.zeros(3), numpy.zeros(3, "f4"),
        Sample(1, 2), Sample(2, 1), torch.float32, torch.float16, 1j,
    ]  # fmt: skip
    found = [fingerprint(value) for value in different]
    # An array of numpy's is the same content as a tensor of that type's.
    assert len(set(found)) >= len(found) - 1


def test_neither_input_nor_random_state_nor_gradients_are_touched() -> None:
    value = images().requires_grad_()
    before = (value.detach().clone(), torch.get_rng_state(), value._version)
    samples_of({"image": value, "sparse": images().to_sparse()}, 4)
    fingerprint(((value,), {}))
    assert torch.equal(value, before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert value._version == before[2]
    assert value.grad_fn is None
    assert torch.is_grad_enabled()


def test_moments() -> None:
    value = torch.stack([torch.full((2, 4), float(i)) for i in range(3)])
    value[:, 1] += 2
    expected = pytest.approx((1, 1, 2, 1, 3, 1))
    assert samples_of([torch.arange(3), value], 3)[1] == expected
    value[0, 0, 0] = torch.nan
    value[0, 0, 1] = torch.inf
    moments = samples_of(value, 3)[1]
    assert moments[0] == pytest.approx(8 / 6)
    assert moments[2:] == pytest.approx((2, 1, 3, 1))
    assert samples_of([["x", "y", "z"], ["a", "b", "c"]], 3)[1] == ()
    assert samples_of([torch.arange(3), ["a", "b", "c"]], 3)[1] == (0, 0, 1, 0, 2, 0)
    assert samples_of(value.half().numpy(), 3)[1][2:] == pytest.approx((2, 1, 3, 1))
    assert samples_of([torch.ones(2), torch.ones(5), torch.ones(7)], 3)[1] == (1.0, 0.0) * 3
    assert len(samples_of(torch.ones(3, 2, 9, dtype=torch.uint8), 3)[1]) == 6
    assert samples_of(torch.full((2, 3), torch.nan), 2)[1] == (0.0, 0.0, 0.0, 0.0)


# -- samples without their padding -----------------------------------------------------------------

ARRAYS = {
    "tokens": torch.arange(9)[None] + 2,  # does not end in a number that pads
    "sounds": images(1, 20, 8)[:1],
    "channels first": images(2, 8, 20)[:1],
    "picture": images(3, 3, 12, 10)[:1],
    "half": images(4, 20, 4)[:1].bfloat16(),
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
