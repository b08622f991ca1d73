"""What a kernel file can say, and the sentences for what it gets wrong."""

from itertools import product

import numpy as np
import pytest

from gpuadvisor.domain.kernels import Kernel, array, declared, output
from gpuadvisor.errors import UsageError

CUDA = "__global__ void __launch_bounds__(64) add(float *y, const float *x, int n) {}"


def kernel(**changes):
    given = {
        "parameters": {"block": [32, 64, 128], "tile": [1, 2, 4]},
        "restrictions": ["block * tile <= n", lambda block, tile: block // tile >= 32],
        "problems": [{"n": 128}],
        "grid": "ceil_div(n, block * tile)",
        "block": "block",
        "arguments": [output("n"), array("n"), "n"],
    }
    return Kernel(changes.pop("source", CUDA), **{**given, **changes})


def test_the_points_are_those_of_the_grid_that_meet_the_restrictions():
    made = kernel()
    grid = product([32, 64, 128], [1, 2, 4])
    allowed = [(b, t) for b, t in grid if b * t <= 128 and b // t >= 32]
    assert made.checked_points({"n": 128}) == allowed


@pytest.mark.parametrize(
    "rule, sides",
    [
        ("ceil_div(n, block)", (4,)),
        (["n // 2", 3], (50, 3)),
        (lambda n, block: (n, block), (100, 32)),
        (lambda p: p["n"] + p["block"], (132,)),
        (7, (7,)),
    ],
)
def test_a_rule_is_a_number_an_expression_or_a_function(rule, sides):
    assert kernel().sides("grid", rule, {"n": 100, "block": 32, "tile": 1}) == sides


def test_the_name_and_the_macros_come_from_the_source():
    made = kernel()
    assert made.name == "add"
    text = made.with_macros(CUDA, {"n": 5, "block": 32, "fast": True})
    assert text == f'#define block 32\n#define fast 1\n#line 1 "add"\n{CUDA}'
    assert declared()[-1] is made
    assert declared() == []


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"parameters": {}}, "has no parameters"),
        ({"parameters": {"block": 32}}, "needs a list of values, not 32"),
        ({"parameters": {"block": [1, 1]}}, "block has a value twice"),
        ({"default": {"blok": 32}}, "its default sets blok, but there is no blok: did you mean"),
        ({"parameters": ["block"]}, """parameters is written as {"block": [64, 128]}, not ["""),
        ({"restrictions": "n > 1"}, """restrictions is written as ["block <= n"], not 'n > 1'"""),
        (
            {"arguments": None},
            """arguments is written as [output("n"), array("n"), "n"], not None""",
        ),
        ({"problems": {"n": 1}}, """problems is written as [{"n": 4096}], not {"""),
        ({"default": {"block": 33}}, "block=33 is none of the values"),
        ({"tolerance": -1}, "tolerance is a number from 0 on, not -1"),
        ({"problems": [{"block": 1}]}, "block is both a parameter and a size"),
        ({"source": "nothing"}, "nothing cannot be read"),
        ({"source": CUDA + CUDA.replace("add", "mul")}, "is one of add, mul"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(changes, said):
    with pytest.raises(UsageError, match=r"kernel .* of test_kernels.py: ") as refused:
        kernel(**changes)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "restriction, said",
    [
        ("blok > 3", "there is no blok: did you mean block?"),
        ("block >", "it is no Python expression"),
        ("block // (tile - 1) > 0", "fails for n=128, block=32, tile=1: ZeroDivisionError"),
        ("block > 1000", 'leave no point for n=128: no values meet "block > 1000"; loosen it'),
        ("block > 32", 'default (block=32, tile=1) violates the restriction "block > 32"'),
    ],
)
def test_a_restriction_that_makes_no_sense_is_named(restriction, said):
    with pytest.raises(UsageError) as refused:
        kernel(restrictions=[restriction]).checked_points({"n": 128})
    assert said in str(refused.value)


def test_restrictions_that_leave_nothing_together_are_said_to():
    made = kernel(restrictions=["block > 64", "block // (tile - 1) > 64 if tile > 1 else False",
                                "block * tile < 256"])  # fmt: skip
    with pytest.raises(UsageError, match="leave no point for n=128: loosen them, or give more"):
        made.checked_points({"n": 128})


@pytest.mark.parametrize("grid", ["n / 3", "0", [1, 2, 3, 4], "n > 3"])
def test_a_grid_is_one_to_three_whole_numbers(grid):
    with pytest.raises(UsageError, match="grid must be one to three whole numbers"):
        kernel().sides("grid", grid, {"n": 100, "block": 32, "tile": 1})


@pytest.mark.parametrize(
    "grid, why",
    [
        ("n", None),
        (["n", "65535 * tile"], "a grid has at most 65,535 blocks in y, not 131,070"),
        ([1, 1, "65535 + tile"], "a grid has at most 65,535 blocks in z, not 65,537"),
        ("n * 2**27 * tile", "a grid has at most 2,147,483,647 blocks in x, not 25,769,803,776"),
        ("n // 9999", None),  # that is told by itself
    ],
)
def test_a_grid_that_no_gpu_launches_is_told_without_one(grid, why):
    names = {"n": 96, "block": 32, "tile": 2}
    assert kernel(grid=grid).unlaunchable(names) == why


def test_values_of_numpy_are_numbers():
    made = kernel(parameters={"block": np.array([32, 64]), "tile": [np.int32(1), np.float32(2)]})
    assert made.parameters == {"block": [32, 64], "tile": [1, 2.0]}
    assert {type(each) for values in made.parameters.values() for each in values} == {int, float}


def test_a_reference_is_a_function():
    with pytest.raises(UsageError, match=r"reference is a function of the arguments, not '2 \* x'"):
        kernel(reference="2 * x")
