"""A call of Kernel Tuner's `tune_kernel`, taken over: what is made of it, and what is refused."""

import sys

import numpy as np
import pytest

from gpuadvisor.collectors.kernels.child.arguments import Arguments, difference
from gpuadvisor.collectors.kernels.child.taken_over import declare
from gpuadvisor.collectors.kernels.runner import KernelProcess
from gpuadvisor.domain.kernels import declared
from gpuadvisor.errors import UsageError
from gpuadvisor.kernel_tuner import Call, tune_kernel, written
from gpuadvisor.storage.kernel_caches import read
from tests import cuda_on_cpu, simulated_kernels

SOURCE = """
extern "C" __global__ void vector_add(float *c, const float *a, const float *b, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""
N = 1000
A, B = np.random.default_rng(0).standard_normal((2, N)).astype(np.float32)
ARGUMENTS = [np.zeros(N, np.float32), A, B, np.int32(N)]
PARAMETERS = {"block_size_x": [32, 64, 128, 256, 512], "vector": [1, 2]}


def call(**changes):
    given = {
        "name": "vector_add",
        "source": SOURCE,
        "parameters": PARAMETERS,
        "arguments": ARGUMENTS,
        "problem_size": N,
        "grid_divisors": (None, None, None),
        "block_size_names": ["block_size_x", "block_size_y", "block_size_z"],
        "shared_bytes": 0,
        "restrictions": [],
    }
    return Call(**{**given, **changes})


@pytest.mark.parametrize(
    "changes, launch",
    [
        ({}, {"grid": [16, 1, 1], "block": [64, 1, 1], "shared_bytes": 0}),
        ({"problem_size": (N, 3)}, {"grid": [16, 3, 1], "block": [64, 1, 1], "shared_bytes": 0}),
        (
            {"grid_divisors": (["block_size_x", "vector"], None, None)},
            {"grid": [8, 1, 1], "block": [64, 1, 1], "shared_bytes": 0},
        ),
        (
            {"grid_divisors": (lambda p: p["vector"] * 10, ["1"], None)},
            {"grid": [50, 1, 1], "block": [64, 1, 1], "shared_bytes": 0},
        ),
        (
            {"problem_size": ("1000 // vector", 1), "shared_bytes": "4 * block_size_x"},
            {"grid": [8, 1, 1], "block": [64, 1, 1], "shared_bytes": 256},
        ),
        (
            {"block_size_names": ["vector", "block_size_y", "block_size_z"]},
            {"grid": [500, 1, 1], "block": [2, 1, 1], "shared_bytes": 0},
        ),
    ],
)
def test_grid_and_block_are_those_of_kernel_tuner(changes, launch):
    assert call(**changes).launch({"block_size_x": 64, "vector": 2}) == launch


@pytest.mark.parametrize(
    "restrictions",
    [
        ["block_size_x * vector <= 128"],
        [lambda p: p["block_size_x"] * p["vector"] <= 128],
        [lambda block_size_x, vector: block_size_x * vector <= 128],
    ],
)
def test_restrictions_are_expressions_or_functions(restrictions):
    points = call(restrictions=restrictions).points()
    assert points == [(32, 1), (32, 2), (64, 1), (64, 2), (128, 1)]


def test_what_is_compared_with_is_an_ordinary_block():
    made = call()
    assert made.default(made.points())[0] == {"block_size_x": 256, "vector": 1}


def test_the_process_that_runs_the_kernel_finds_the_call(tmp_path):
    made = call(answer=[A + B, None, None, None], options=["-lineinfo"])
    start = {"block_size_x": 128, "vector": 1}
    file = written(tmp_path, made, made.points(), start)
    with KernelProcess(sys.executable, file) as process:
        (described,) = process.describe()
    assert (described["name"], described["default"]) == ("vector_add", start)
    assert described["problems"][0]["sizes"] == {"problem_size_x": N}
    assert [tuple(each) for each in described["problems"][0]["points"]] == made.points()
    declare(str(file))
    (kernel,) = declared()
    assert kernel.options == ["-lineinfo"]
    arguments = Arguments(kernel, start, 0, "cpu")
    cuda_on_cpu.compiled(kernel, start, tmp_path)(arguments.values)
    assert arguments.values[3] == N
    limits = kernel.tolerance, kernel.absolute_tolerance
    assert difference(arguments.written(), arguments.expected(), *limits) is None
    arguments.values[0][5] += 1e-3
    assert "1 of 1,000 elements differ" in difference(
        arguments.written(), arguments.expected(), *limits
    )


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"verify": lambda *given: True}, "verify= is not taken over by gpuadvisor: leave it out"),
        ({"cmem_args": {"a": 1}}, "cmem_args= is not taken over by gpuadvisor: keep Kernel Tuner"),
        ({"lang": "OpenCL"}, "lang='OpenCL' is not taken over"),
        ({"objective": "GFLOP/s"}, "objective='GFLOP/s' is not taken over"),
        ({"strategy": "magic"}, "'magic' is none of Kernel Tuner's"),
        ({"strategy_options": {"popsize": 8}}, "strategy_options has popsize"),
        ({"answer": [A + B]}, "answer has 1 entries and the kernel 4 arguments"),
        ({"restrictions": ["block_size_x > 9999"]}, "its restrictions leave no point"),
        ({"restrictions": ["blok > 1"]}, "there is no blok: there are block_size_x"),
        ({"problem_size": "n"}, "'n' fails: NameError"),
        ({"kernel_source": "nosuch.cu"}, "nosuch.cu cannot be read"),
        ({"kernel_source": "__kernel void add();\n"}, "no __global__ function"),
        ({"kernel_source": SOURCE + "int g = grid_size_x;"}, "grid_size_x, which the source"),
    ],
)
def test_what_is_not_taken_over_is_refused_by_name(changes, said):
    given = {
        "kernel_name": "vector_add",
        "kernel_source": SOURCE,
        "problem_size": N,
        "arguments": ARGUMENTS,
        "tune_params": PARAMETERS,
    }
    with pytest.raises(UsageError) as refused:
        tune_kernel(**{**given, **changes})
    assert said in str(refused.value)


def test_results_are_those_of_kernel_tuner(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    # No point hangs: it would do so until its minute is up.
    python, _ = simulated_kernels.python(tmp_path, bad={**simulated_kernels.BAD, "hang": {}})
    monkeypatch.setattr(sys, "executable", str(python))
    results, env = tune_kernel(
        "simulated",
        "__global__ void simulated(float *x) {}\n",
        8,
        [np.zeros(8, np.float32)],
        simulated_kernels.SPACE,
        block_size_names=["block"],
        quiet=True,
        strategy="genetic_algorithm",
        strategy_options={"max_fevals": 30},
        cache=tmp_path / "cache",
        metrics={"rate": lambda p: 8 / p["time"], "twice": "2 * rate"},
    )
    assert len(results) == 30
    timed = [each for each in results if "__error__" not in each]
    assert all(each["twice"] == 16 / each["time"] for each in timed)
    assert {"time", "times", "compile_time", "block", "tile"} <= timed[0].keys()
    assert env["device_name"] == "NVIDIA H200"
    assert env["best_config"]["block"] == 128
    assert len(read(tmp_path / "cache.json").evaluations) == 30


def test_without_a_file_the_store_keeps_the_evaluations_of_a_kernel_in_one_place(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    python, _ = simulated_kernels.python(tmp_path)
    monkeypatch.setattr(sys, "executable", str(python))
    arguments = [np.zeros(8, np.float32)]
    source = "__global__ void simulated(float *x) {}\n"
    for _ in range(2):
        _, env = tune_kernel(
            "simulated", source, 8, arguments, simulated_kernels.SPACE, block_size_names=["block"],
            quiet=True, strategy_options={"max_fevals": 3},
        )  # fmt: skip
    (record,) = (tmp_path / "home" / "kernels").rglob("*.json")
    assert env["record"] == str(record)


def test_without_a_gpu_the_sentence_names_what_a_script_can_do(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UsageError, match=r"run the script with a Python whose torch finds one$"):
        tune_kernel("vector_add", SOURCE, N, ARGUMENTS, PARAMETERS, quiet=True)


@pytest.mark.gpu
def test_a_call_is_tuned_on_a_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    results, env = tune_kernel(
        "vector_add",
        SOURCE,
        N,
        ARGUMENTS,
        PARAMETERS,
        answer=[A + B, None, None, None],
        quiet=True,
    )
    assert len(results) == 10
    assert all("time" in each for each in results)
    assert env["best_config"]["time"] > 0
