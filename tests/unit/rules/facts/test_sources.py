"""Which line of the user's own code something comes from."""

import numpy as np
import pytest

from gpuadvisor.domain.profile import Range
from gpuadvisor.rules.facts.sources import own_line
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

SITE = "/opt/envs/a/lib/python3.11/site-packages/"


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        ("train.py(12): main", "train.py:12"),
        ("./src/net/layers.py(7): forward", "./src/net/layers.py:7"),
        ("/home/me/code/train.py(3): <module>", "/home/me/code/train.py:3"),
        ("train.py(0): <module>", "train.py:1"),
        ("/home/me/lib/train.py(3): f", "/home/me/lib/train.py:3"),
        (f"{SITE}torch/nn/modules/linear.py(3): forward", None),
        ("/usr/lib/python3/dist-packages/mine/x.py(3): f", None),
        ("/opt/python/lib/python3.11/threading.py(3): run", None),
        ("torch/nn/modules/module.py(1553): _call_impl", None),  # cut off at sys.path
        ("transformers/models/vit/modeling_vit.py(252): forward", None),
        ("threading.py(1032): _bootstrap", None),
        ("<string>(1): <module>", None),
        ("<frozen os>(709): __getitem__", None),
        ("<built-in method empty of type object at 0x7f>", None),
        ("nn.Module: Linear_0", None),
        ("", None),
    ],
)
def test_which_frames_are_the_users_own(frame, line):
    assert own_line(frame) == (line and (line, frame.partition(": ")[2]))


def made():
    """A function of the user's that calls into PyTorch, which launches; and a second one."""
    profile = Made()
    profile.range("train.py(1): main", (0, 1000), Range.PYTHON)
    profile.range("net.py(5): forward", (100, 300), Range.PYTHON)
    profile.range("torch/nn/functional.py(9): linear", (110, 200), Range.PYTHON)
    profile.operator("aten::mm", (120, 100))
    profile.launched("gemm", call=(130, 5), runs=(500, 400))
    profile.launched("gemm", call=(600, 5), runs=(900, 100))
    profile.launched("elsewhere", call=(700, 5), runs=(1000, 10), thread=9)
    return profile


def line_of_kernel(facts, name):
    """The line that launched most of what kernels of this name took."""
    rows = [row for row in range(len(facts.work)) if facts.work.describe(row) == name]
    return facts.places.of_work(np.array(rows, np.int64))[0]


def test_the_innermost_of_the_users_functions_with_most_of_the_time():
    facts = Facts(made().profile())
    assert line_of_kernel(facts, "gemm") == "net.py:5"
    assert facts.places.of_work(np.array([1]))[0] == "train.py:1"
    assert facts.places.of_calls(np.array([0]))[0] == "net.py:5"


def test_another_threads_work_has_no_line():
    facts = Facts(made().profile())
    assert line_of_kernel(facts, "elsewhere") is None
    assert line_of_kernel(facts, "no such kernel") is None


def test_stacks_of_operators_tell_it_too():
    profile = Made()
    stack = f"{SITE}torch/nn/functional.py(9): linear\nnet.py(17): forward\ntrain.py(30): main"
    profile.operator("aten::linear", (0, 100), stack=stack)
    profile.operator("aten::mm", (10, 50))
    profile.launched("gemm", call=(20, 5), runs=(50, 10))
    facts = Facts(profile.profile())
    assert line_of_kernel(facts, "gemm") == "net.py:17"


def test_a_range_that_is_called_like_a_file_is_none():
    profile = Made()
    profile.range("train.py(1): main", (0, 1000), Range.USER)
    profile.launched("gemm", call=(20, 5), runs=(50, 10))
    assert line_of_kernel(Facts(profile.profile()), "gemm") is None


def test_a_profile_of_nothing():
    facts = Facts(Made().profile())
    assert line_of_kernel(facts, "gemm") is None
