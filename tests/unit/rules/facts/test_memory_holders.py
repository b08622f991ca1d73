"""What holds the memory at its peak, by hand and in a real step of training."""

from pathlib import Path

import pytest

from gpuadvisor.domain.profile import UNKNOWN, Range
from gpuadvisor.profiling.reading import read_profile
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

PROFILES = Path(__file__).parents[3] / "data" / "profiles"
ENGINE = "autograd::engine::evaluate_function: MmBackward0"
OLDER = 1000
"""Bytes that are older than the recording."""
PARAMETERS = 65 * 64 + 65 * 64 + 65 * 128
"""Of the last three linear layers of the model of `cpu_language_model_stacks`."""


class Trained:
    """A training step by hand: forward to 100 us, backward to 200, the optimizer's step to 300;
    with a closure both passes are within the latter."""

    def __init__(self, closure=False):
        self.made = Made()
        self.total = OLDER
        made = self.made
        made.range("train.py(3): main", (0, 400), Range.PYTHON)
        made.range("nn.Module: Net_0", (5, 90), Range.PYTHON)
        made.range("net.py(7): forward", (6, 80), Range.PYTHON)
        made.operator("aten::mm", (10, 70), sequence=7, forward_thread=0)
        told = {"thread": 9, "sequence": 7, "forward_thread": 1}
        made.operator(ENGINE, (100, 90), **told)
        made.operator("aten::mul", (110, 40), thread=9)
        made.range("Optimizer.step#Adam.step", (2, 298) if closure else (200, 100))
        made.operator("aten::addcmul", (210, 50))

    def memory(self, at, size, address):
        self.total += size
        self.made.row(
            "memory", time_ns=round(1000 * at), device=0, bytes=size, address=address,
            allocated_bytes=self.total, reserved_bytes=self.total,
        )  # fmt: skip
        return self

    def held(self):
        (found,) = Facts(self.made.profile()).held_memory
        return found


def told(holders):
    return {each.name: each.bytes for each in holders}


@pytest.mark.parametrize("closure", [False, True], ids=["plain", "in a closure"])
def test_what_memory_is_held_for(closure):
    found = (
        Trained(closure)
        .memory(20, 100, 1)  # an activation
        .memory(30, 7, 2)  # what forward releases itself
        .memory(40, -7, 2)
        .memory(50, 20, 3)  # a loss that nobody releases
        .memory(120, 300, 4)  # a gradient
        .memory(130, 4000, 5)  # at the peak
        .memory(140, -4000, 5)
        .memory(150, -100, 1)
        .memory(350, -300, 4)
        .held()
    )
    assert found.bytes == OLDER + 100 + 20 + 300 + 4000
    assert told(found.categories) == {
        "temporary": 4000, "older": OLDER, "gradients": 300, "kept_for_backward": 100, "other": 20,
    }  # fmt: skip
    assert sum(each.bytes for each in found.categories) == found.bytes


@pytest.mark.parametrize("closure", [False, True], ids=["plain", "in a closure"])
def test_the_optimizers_state_and_what_its_step_releases(closure):
    found = Trained(closure).memory(220, 60, 1).memory(230, 5000, 2).memory(250, -5000, 2).held()
    assert told(found.categories) == {"temporary": 5000, "older": OLDER, "optimizer_state": 60}


def test_memory_released_by_a_later_pass_of_the_same_kind_is_no_temporary():
    trained = Trained()
    trained.made.operator("aten::mm", (310, 20), sequence=8, forward_thread=0)
    trained.made.operator(ENGINE, (340, 50), thread=9, sequence=8, forward_thread=1)
    found = trained.memory(120, 300, 1).memory(350, -300, 1).held()
    assert told(found.categories) == {"older": OLDER, "gradients": 300}


def test_what_is_older_than_the_first_operator_is_older():
    """As where the diagnosis leaves out a start, and looks at the steps after it."""
    found = Trained().memory(3, 100, 1).memory(150, -100, 1).memory(160, 30, 2).held()
    assert told(found.categories) == {"older": OLDER + 100}


def test_who_holds_it_is_told_by_line_module_and_operator():
    found = Trained().memory(20, 100, 1).memory(120, 300, 2).memory(130, 50, 3).held()
    assert told(found.lines) == {"net.py:7 (forward)": 450}
    assert told(found.modules) == {"Net_0": 450}  # backward's are its forward operator's
    assert told(found.operators) == {"aten::mul": 350, "aten::mm": 100}
    assert [each.count for each in found.operators] == [2, 1]


def test_without_a_backward_pass_nothing_tells_what_it_is_for():
    made = Made()
    made.operator("aten::mm", (10, 70))
    made.row("memory", time_ns=20_000, device=0, bytes=10, allocated_bytes=10, address=1)
    (found,) = Facts(made.profile()).held_memory
    assert found.categories == ()
    assert told(found.operators) == {"aten::mm": 10}


def test_without_addresses_nothing_is_known():
    made = Made()
    made.row("memory", time_ns=20_000, device=0, bytes=10, allocated_bytes=10)
    profile = made.profile(not_measured={"memory.address": "this version did not write them"})
    assert Facts(profile).held_memory == ()


def test_a_finding_about_memory_names_the_operator_also_without_stacks():
    facts = Facts(read_profile(PROFILES / "h100_small_cnn_train.json.gz"))
    source, place = facts.places.of_memory()
    assert source is None
    assert place.operator == "aten::convolution_backward"
    assert 0.1 < place.operator_share < 0.4


@pytest.fixture(scope="module")
def real():
    (found,) = Facts(read_profile(PROFILES / "cpu_language_model_stacks.json.gz")).held_memory
    return found


def test_in_a_real_step_gradients_are_as_large_as_the_parameters(real):
    """The peak is where attention is computed again: the layers after it have theirs by then."""
    assert real.device == UNKNOWN
    assert told(real.categories)["gradients"] == 4 * PARAMETERS
    assert sum(each.bytes for each in real.categories) == real.bytes


def test_in_a_real_step_each_layer_holds_its_gradient_and_what_is_kept_of_it(real):
    modules = told(real.modules)
    assert modules["Net_0.Head_0.Linear_3"] == 4 * 65 * 128
    # And its output, which the product with its own sigmoid needs.
    assert modules["Net_0.Head_0.Linear_2"] == 4 * 65 * 64 + 4 * 8 * 32 * 64
    assert modules["Net_0.Embedding_0"] == 4 * 8 * 32 * 64


def test_on_a_real_gpu_the_categories_sum_to_the_peak():
    facts = Facts(read_profile(PROFILES / "h100_small_cnn_train.json.gz"))
    device = next(each for each in facts.held_memory if each.device == 0)
    assert sum(each.bytes for each in device.categories) == device.bytes
    assert device.categories[0].name == "temporary"
    assert device.operators[0].name == "aten::convolution_backward"
