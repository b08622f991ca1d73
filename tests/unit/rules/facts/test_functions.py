"""What a project's functions take of each step, by what they call."""

import pytest

from gpuadvisor.domain.profile import Range
from gpuadvisor.rules.facts.functions import Function, function_times
from tests.profiles import Made

MODULE, STEP = Function("train.py", "<module>"), Function("train.py", "step", 5)


def own(file):
    return file if file in ("train.py", "net.py") else None


def made(steps=2):
    """Steps of 100 us: 10 in the module, the rest in `step`, of which 60 in operators."""
    profile = Made()
    profile.range("train.py(30): <module>", (-10, 100 * steps + 20), Range.PYTHON)
    for number in range(steps):
        at = 100 * number
        profile.range(f"ProfilerStep#{number}", (at, 100), Range.STEP)
        profile.range("train.py(5): step", (at + 10, 90), Range.PYTHON)
        profile.range("torch/nn/functional.py(9): linear", (at + 20, 70), Range.PYTHON)
        profile.operator("aten::linear", (at + 25, 60))
        profile.operator("aten::mm", (at + 30, 20))
        profile.operator("aten::elsewhere", (at, 100), thread=9)
    return profile


def means(found, function):
    return {name: part.step_ns.mean() / 1e3 for name, part in found.parts[function].items()}


def test_all_times_add_up_to_the_step():
    found = function_times(made().profile(), own)
    assert found.step_ns.tolist() == [100e3, 100e3]
    assert sum(sum(means(found, each).values()) for each in found.parts) == pytest.approx(100)


def test_a_function_has_what_it_calls_by_the_outermost_operator():
    found = function_times(made().profile(), own)
    linear = "torch/nn/functional.py: linear"
    assert means(found, STEP) == {"": 20, linear: 10, "aten::linear": 60}
    assert means(found, MODULE) == {"": 10}
    assert {name: part.count for name, part in found.parts[STEP].items()} == {
        "": 1, linear: 1, "aten::linear": 1,
    }  # fmt: skip


def test_a_function_within_another_has_its_own_time():
    profile = made()
    profile.range("net.py(7): forward", (22, 66), Range.PYTHON)
    found = function_times(profile.profile(), own)
    forward = found.parts[Function("net.py", "forward", 7)]
    assert forward["aten::linear"].step_ns.tolist() == [60e3, 0]
    assert forward[""].count == 0.5


def test_one_that_runs_already_begins_where_it_begins_later():
    profile = made()
    profile.range("train.py(8): step", (-8, 12), Range.PYTHON)  # line 8 of the function at line 5
    found = function_times(profile.profile(), own)
    assert set(found.parts) == {Function(), MODULE, STEP}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<built-in method item of Tensor object at 0x7f5de774d4a0>", "Tensor.item"),
        ("<built-in method maximum of type object at 0x7f5e112cea40>", "maximum"),
        ("<built-in function sleep>", "sleep"),
        ("nn.Module: Conv2d_0", "Conv2d"),
        ("/opt/env/lib/python3.11/site-packages/timm/layers/x.py(3): f", "timm/layers/x.py: f"),
    ],
)
def test_names_of_what_is_called_are_the_same_in_every_process(text, name):
    profile = made()
    profile.range(text, (12, 2), Range.PYTHON)
    assert name in function_times(profile.profile(), own).parts[STEP]


def test_without_stacks_operators_are_known():
    profile = Made()
    profile.range("ProfilerStep#0", (0, 100), Range.STEP)
    profile.operator("aten::mm", (10, 60))
    found = function_times(profile.profile(), own)
    assert means(found, Function()) == {"": 40, "aten::mm": 60}


def test_without_steps_there_is_nothing():
    assert function_times(Made().profile(), own).parts == {}
