"""The kernels of `examples/kernels`: that they compile, and compute what their references do.

There is no GPU here: CUDA C++ is compiled by NVRTC where it is installed and run by the host's
compiler, and Triton kernels run in Triton's interpreter.
"""

import json
import os
import random
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpuadvisor.collectors.kernels.child.arguments import Arguments, difference
from gpuadvisor.collectors.kernels.child.backends import Target, prepare
from gpuadvisor.domain.kernels import declared
from gpuadvisor.tuning.kernels.fleet import cannot_launch
from tests import cuda_on_cpu

EXAMPLES = Path(__file__).parents[2] / "examples" / "kernels"
CUDA = {
    "matmul": {"n": 128},
    "transpose": {"rows": 100, "columns": 76},
    "reduction": {"n": 10_007, "blocks": 66},
    "stencil": {"n": 19},
    "prefix_sum": {"n": 5_003},
}
"""Examples in CUDA C++, and a problem that a CPU does in no time, some with fewer blocks."""
TRITON = {
    "softmax": {"rows": 5, "columns": 300},
    "layer_norm": {"rows": 5, "columns": 300},
    "attention": {"heads": 2, "length": 100, "DEPTH": 16},
    "matmul_bf16": {"m": 100, "n": 70, "k": 128},
}
RANDOM_POINTS = 10


def loaded(name):
    declared()
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__gpuadvisor__")
    (kernel,) = declared()
    return kernel


def sample(kernel, problem, count):
    """The default, and some other points that the problem allows."""
    points = [dict(zip(kernel.parameters, each, strict=True)) for each in kernel.points(problem)]
    assert kernel.start in points
    return [kernel.start, *random.Random(0).sample(points, count)]


def covering(kernel, problem, count):
    """The default, and points of which each brings as many values as any that none before has."""
    points = sample(kernel, problem, len(list(kernel.points(problem))))
    found, seen = [], set()
    for _ in range(1 + count):
        most = max(points, key=lambda each: len(each.items() - seen)) if found else kernel.start
        found.append(most)
        seen |= most.items()
    return found


@pytest.mark.parametrize("name", CUDA)
def test_cuda_cpp_has_enough_points_and_compiles(name):
    kernel = loaded(name)
    for problem in kernel.problems:
        points = kernel.checked_points(problem)
        assert len(kernel.launchable(problem, points)) >= 500
    pytest.importorskip("cuda.core", reason="NVRTC and cuda-core are not installed")
    problem = kernel.problems[0]
    for point in sample(kernel, problem, RANDOM_POINTS):
        taken = prepare(kernel, {**problem, **point}, Target("90"))
        assert taken["registers"] > 0
        assert cannot_launch(taken, "90") == ""


@pytest.mark.parametrize("name", CUDA)
def test_cuda_cpp_computes_what_its_reference_does(name, tmp_path):
    kernel, problem = loaded(name), CUDA[name]
    for point in covering(kernel, problem, 3):
        names = {**problem, **point, **problem}
        launch = cuda_on_cpu.compiled(kernel, names, tmp_path)
        arguments = Arguments(kernel, names, 1, "cpu")
        expected = arguments.expected()
        for _ in range(2):  # what it leaves behind must do for the next launch
            arguments.poison()
            if name == "reduction":
                arguments.values[1].zero_()
            launch(arguments.values)
            wrong = difference(arguments.written(), expected, kernel.tolerance)
            assert (arguments.overrun(), wrong) == (None, None), point


def on_cpu(name, problem, points, **environment):
    """Ask `tests/triton_on_cpu.py` of these points."""
    file = str(EXAMPLES / f"{name}.py")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.triton_on_cpu",
            file,
            json.dumps(problem),
            json.dumps(points),
        ],
        capture_output=True,
        text=True,
        cwd=EXAMPLES.parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name, problem", TRITON.items())
def test_triton_computes_what_its_reference_does(name, problem):
    pytest.importorskip("triton", reason="Triton is not installed")
    if name == "matmul_bf16":
        pytest.skip("the interpreter of Triton 3.6 multiplies the bits of bfloat16 as integers")
    kernel = loaded(name)
    points = covering(kernel, {**kernel.problems[0], **problem}, RANDOM_POINTS)
    assert on_cpu(name, problem, points, TRITON_INTERPRET="1") == [None] * len(points)


@pytest.mark.parametrize("name", TRITON)
def test_triton_has_enough_points_and_compiles(name, tmp_path):
    pytest.importorskip("triton", reason="Triton is not installed")
    kernel = loaded(name)
    assert all(len(kernel.checked_points(each)) >= 500 for each in kernel.problems)
    problem = kernel.problems[0]
    points = sample(kernel, problem, 2)
    for taken in on_cpu(name, problem, points, TRITON_CACHE_DIR=str(tmp_path)):
        assert taken["registers"] > 0
        assert cannot_launch(taken, "90") == ""


def test_the_runner_of_cuda_cpp_on_a_cpu_sees_what_is_wrong(tmp_path):
    kernel, problem = loaded("stencil"), {"n": 19}
    names = {**problem, **kernel.start}
    arguments = Arguments(kernel, names, 1, "cpu")
    expected = arguments.expected()
    torch.as_tensor(arguments.values[0])[3, 3, 3] += 1
    cuda_on_cpu.compiled(kernel, names, tmp_path)(arguments.values)
    assert "7 of 6,859 elements differ" in difference(arguments.written(), expected, None)
