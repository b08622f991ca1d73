"""Changing the tensors in what modules return."""

import dataclasses
from collections import OrderedDict, namedtuple

import pytest

torch = pytest.importorskip("torch")

from gpuadvisor.tuners.knobs._tensors import map_tensors  # noqa: E402 - torch may be missing

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: object
    note: str = "kept"


class Output(OrderedDict):
    """Stands for a Hugging Face output: keys and attributes are the same."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class TestTensors:
    @pytest.mark.parametrize(
        "pack",
        [
            lambda t: t,
            lambda t: (t, 1),
            lambda t: [t, [t]],
            lambda t: {"a": t, "b": None},
            lambda t: Pair(t, "text"),
            lambda t: Frozen(t),
            lambda t: Output(logits=t),
            lambda t: torch.max(t, dim=0),
            lambda t: {"deep": [(Pair(t, t),)]},
        ],
    )
    def test_keeps_the_container(self, pack):
        value = pack(torch.ones(2, 2))
        result = map_tensors(value, lambda tensor: tensor.double())
        assert type(result) is type(value)
        found = []
        map_tensors(result, lambda tensor: found.append(tensor.dtype))
        assert set(found) == {torch.float64}

    def test_keys_and_attributes_stay_the_same(self):
        value = Output(logits=torch.ones(1))
        result = map_tensors(value, lambda tensor: tensor + 1)
        assert result.logits is result["logits"] and result.logits.item() == 2
        assert value.logits is value["logits"] and value.logits.item() == 1

    @pytest.mark.parametrize("value", [(torch.ones(1), 2), {"a": torch.ones(1)}, Frozen(1), "text"])
    def test_returns_what_did_not_change(self, value):
        assert map_tensors(value, lambda tensor: tensor) is value
