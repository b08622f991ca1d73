"""What optimizers do themselves in steps that call a closure.

The recordings are what torch 2.13 and Lightning 2.6 say on a CPU, three or four steps each, as if
on a GPU (`tests.on_gpu`).
"""

from collections import Counter
from pathlib import Path

import pytest

from gpuadvisor.rules.catalogue import unfused_optimizer
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from tests.on_gpu import on_gpu
from tests.profiles import Made

CLOSURES = Path(__file__).parents[3] / "data" / "profiles" / "closures"
LAYERS = 3
"""Layers of the recorded models, each with a weight and a bias."""
FOREACH = ("add_", "add_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "addcdiv_")
"""Kernels of Adam of several parameters at once."""


@pytest.fixture
def recorded(tmp_path):
    return lambda name, **how: on_gpu(CLOSURES / f"{name}.json.gz", tmp_path, **how)


def launched(facts, rows):
    names = facts.work.name[rows].tolist()
    return Counter(facts.work.texts[each].removeprefix("at::native::aten::") for each in names)


def test_without_a_closure_all_of_the_step_is_the_optimizers(recorded):
    found = recorded("adam_single_plain").optimizer_steps
    assert (found.count, found.closures.total_ns) == (3, 0)


def test_adam_has_the_same_kernels_with_a_closure_as_without(recorded):
    plain, called = recorded("adam_single_plain"), recorded("adam_single_closure")
    assert called.optimizer_steps.count == 3
    assert launched(called, called.optimizer_steps.rows) == launched(
        plain, plain.optimizer_steps.rows
    )
    assert len(called.optimizer_steps.rows) < called.work.kernels


def test_lightning_calls_the_closure_in_the_optimizers_step(recorded):
    facts = recorded("lightning_foreach")
    found = facts.optimizer_steps
    expected = Counter(f"_foreach_{name}" for name in found.count * FOREACH)
    assert launched(facts, found.rows) == expected
    assert found.names == ("Optimizer.step#Adam.step",)
    assert not list(unfused_optimizer.check(Evidence(facts=facts))), "eight kernels are few"


def test_sgd_updates_each_parameter(recorded):
    facts = recorded("sgd_closure")
    found = facts.optimizer_steps
    # Momentum takes one more operation, and the copies are what `mul_` by a number is on a CPU.
    assert launched(facts, found.rows)["add_"] == found.count * 2 * 2 * LAYERS


def test_lbfgs_works_after_each_call_of_its_closure(recorded):
    facts = recorded("lbfgs_closure")
    found = facts.optimizer_steps
    each = 3  # `max_iter`
    assert found.count == 3
    assert len(found.times) == found.count * each
    of_passes = {"addmm", "mm", "threshold_backward", "clamp_min", "mean"}
    assert not of_passes & launched(facts, found.rows).keys()


@pytest.mark.parametrize("name", ["adam_single_closure", "lbfgs_closure", "lightning_foreach"])
def test_without_numbers_the_backward_pass_tells_where_the_closure_ends(recorded, name):
    facts = recorded(name, numbered=False)
    of_backward = {"mm", "threshold_backward"}
    assert facts.optimizer_steps.count
    assert not of_backward & launched(facts, facts.optimizer_steps.rows).keys()


def test_where_nothing_tells_the_closure_nothing_is_known(recorded):
    """`zero_grad()` in the step says that there is one; a trace of older PyTorch no more."""
    facts = recorded("adam_single_closure", autograd=False, numbered=False)
    found = facts.optimizer_steps
    assert (found.count, len(found.rows), found.names) == (0, 0, ())
    assert found.closures.total_ns > 0
    assert not list(unfused_optimizer.check(Evidence(facts=facts)))


def test_what_the_host_does_in_a_closure_is_not_blamed_on_the_optimizer(recorded):
    """Lightning's Python between the passes, in a step that takes most of the time."""
    facts = recorded("lightning_single")
    assert facts.optimizer_steps.closures.total_ns > 0.6 * facts.window.run_ns
    assert facts.host_doing.share < 0.1


class Stepped:
    """A step by hand from 0 to 300 us: a forward pass to 50 us, the optimizer from 200 us on."""

    def __init__(self):
        self.made = Made()
        self.made.range("Optimizer.step#Own.step", (0, 300))
        self.operator("aten::mm", 10, sequence=7)
        self.operator("aten::mm", 40, sequence=8)
        self.operator("aten::mm", 400, sequence=9)

    def operator(self, name, at, **values):
        thread = values.get("thread", 1)
        self.made.operator(name, (at, 8), **{"forward_thread": 0, "sequence": -1, **values})
        self.made.launched(name, (at + 2, 3), (at + 10, 1), thread=thread)
        return self

    def backward(self, at, thread=9, forward_thread=1):
        told = {"sequence": 7, "thread": thread, "forward_thread": forward_thread}
        return self.operator("autograd::engine::evaluate_function: MmBackward0", at, **told)

    def own_us(self):
        found = Facts(self.made.profile()).optimizer_steps.times
        begins, stops = found.begin_ns.tolist(), found.end_ns.tolist()
        return [(begin / 1000, stop / 1000) for begin, stop in zip(begins, stops, strict=True)]


def test_the_optimizers_work_begins_with_its_first_operator_without_a_number():
    made = Stepped().backward(100).operator("aten::detach", 150, sequence=9)
    assert made.operator("aten::add_", 200).own_us() == [(200, 300)]


def test_or_with_the_first_one_where_all_of_them_have_numbers():
    """An optimizer of the user's that updates `parameter.data`."""
    made = Stepped().backward(100)
    assert made.operator("aten::add_", 200, sequence=9).own_us() == [(200, 300)]


def test_or_with_the_first_launch_from_outside_of_all_operators():
    made = Stepped().backward(100)
    made.made.launched("multi_tensor_adam", (180, 5), (190, 10))
    assert made.operator("aten::add_", 200).own_us() == [(180, 300)]


def test_the_backward_pass_of_another_thread_is_no_closure():
    made = Stepped()
    for at in (10, 40, 400):
        made.operator("aten::mm", at, thread=2, sequence=at)
    told = {"sequence": 40, "thread": 9, "forward_thread": 2}
    made.operator("autograd::engine::evaluate_function: MmBackward0", 100, **told)
    assert made.own_us() == [(0, 300)]


def test_an_optimizer_that_steps_within_the_backward_pass_calls_no_closure():
    made = Stepped()
    made.made.operator(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", (-10, 400)
    )
    assert made.own_us() == [(0, 300)]


def test_gradients_that_the_step_clears_itself_are_no_closure():
    made = Stepped().backward(310)
    made.made.range("Optimizer.zero_grad#Own.zero_grad", (290, 5))
    assert made.own_us() == [(0, 300)]


def test_after_two_backward_passes_of_one_closure_the_optimizer_works_once():
    """Gradients that are accumulated in the closure."""
    made = Stepped().backward(20).backward(100)
    assert made.operator("aten::add_", 200).own_us() == [(200, 300)]
