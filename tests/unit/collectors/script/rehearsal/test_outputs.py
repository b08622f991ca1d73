"""Numbers of outputs at the same places of a text, however long the batch is."""

from __future__ import annotations

import pytest

from gpuadvisor.collectors.script.child.rehearsal.outputs import outputs_of

torch = pytest.importorskip("torch")


def of(result, *given):
    return outputs_of(torch, result, (given, {}))


def test_fixed_outputs_are_evenly_spread():
    found = of(torch.arange(200.0).reshape(2, 100), torch.zeros(2, 5))
    assert found["values"][0] == [0, 14, 28, 42, 56, 70, 84, 99]
    assert (found["rows_out"], found["shapes"], found["lengths"]) == (2, [[100]], [])
    assert found["starts"] == []


@pytest.mark.parametrize("layout", ["length first", "length last", "height and width"])
def test_the_start_of_a_longer_output_is_at_the_same_places(layout):
    full = torch.randn(3, 60, 7, 60)
    cut = {
        "length first": lambda n: full[:, :n, :, 0],
        "length last": lambda n: full[:, 0, :, :n],
        "height and width": lambda n: full[:, :n, :, :n],
    }[layout]
    short, long = (of(cut(n), torch.zeros(3, n, 2 * n)) for n in (13, 50))
    assert short["shapes"] == long["shapes"]
    assert set(short["lengths"]) == {13}
    for ours, theirs in zip(short["starts"], long["starts"], strict=True):
        assert 7 <= len(ours) < len(theirs)
        assert theirs[: len(ours)] == ours
        assert len(set(ours)) == len(ours)


def test_several_outputs_of_which_one_has_no_length():
    full, pooled = torch.randn(2, 40, 6), torch.randn(2, 5)
    short, long = (
        of({"hidden": full[:, :n], "pooled": pooled}, torch.zeros(2, n)) for n in (11, 40)
    )
    count = len(short["starts"][0])
    assert [row[:count] for row in long["starts"]] == short["starts"]
    assert len(set(pooled[0].double().tolist()) & set(short["starts"][0])) >= 4


@pytest.mark.parametrize("result", [None, (), torch.zeros(0, 3), "text"])
def test_nothing_that_can_be_kept(result):
    assert of(result)["values"] == []


def test_numbers_of_other_kinds():
    assert of(torch.tensor(3.5))["values"] == [[3.5]]
    assert of(torch.tensor([True, False]))["values"] == [[1.0], [0.0]]
    assert of(torch.complex(torch.ones(2, 3), torch.zeros(2, 3)))["values"][0] == [1, 0] * 3


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_inputs_without_a_shape():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert of(torch.ones(2, 3), nested)["values"] == [[1.0] * 3] * 2
