"""A call of Kernel Tuner's `tune_kernel`, taken over: what is made of it, and what is refused."""

import json
import sys

import numpy as np
import pytest

from gpuadvisor.collectors.kernels.child.arguments import Arguments, difference
from gpuadvisor.collectors.kernels.child.taken_over import declare
from gpuadvisor.collectors.kernels.runner import KernelProcess
from gpuadvisor.domain.kernels import declared
from gpuadvisor.errors import MissingError, UsageError
from gpuadvisor.kernel_tuner import _block_size_names, tune_kernel
from gpuadvisor.storage.kernel_caches import read
from gpuadvisor.tuning.kernels.kernel_tuner_call import Call, written
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


PARTLY = """
__constant__ float weights[3];
extern "C" __global__ void weigh(float *y, const float *x, int n) {
    int i = blockIdx.x * block_size_x * block_size_y + threadIdx.x;
    float sum = 0;
    #pragma unroll loop_unroll_factor
    for (int k = 0; k < 3; ++k) sum += weights[k];
    int problem_size_x = n;
    if (i < problem_size_x) y[i] = sum * x[i] + grid_size_x;
}
"""
WEIGHTS = np.array([1, 2, 3.5], np.float32)


def weighing(source=PARTLY):
    return call(
        name="weigh", source=source, constants={"weights": WEIGHTS},
        parameters={"block_size_x": [64, 128], "loop_unroll_factor": [0, 3]},
        arguments=[np.zeros(N, np.float32), A, np.int32(N)],
    )  # fmt: skip


@pytest.mark.parametrize(
    "source", [PARTLY, lambda p: PARTLY.replace("k < 3", f"k < {p['block_size_x'] // 64}")]
)
@pytest.mark.parametrize("point", [(64, 0), (128, 3)])
def test_constants_and_macros_of_kernel_tuner_hold_in_the_process_of_the_kernel(
    tmp_path, source, point
):
    made = weighing(source)
    start = dict(zip(made.parameters, point, strict=True))
    file = written(tmp_path, made, made.points(), start)
    declare(str(file))
    (kernel,) = declared()
    arguments = Arguments(kernel, start, 0, "cpu")
    names = {**kernel.problems[0], **start}
    cuda_on_cpu.compiled(kernel, names, tmp_path)(arguments.values)
    blocks = -(-N // start["block_size_x"])
    count = 3 if source is PARTLY else start["block_size_x"] // 64
    assert arguments.values[0].numpy() == pytest.approx(WEIGHTS[:count].sum() * A + blocks)


def test_points_of_a_text_share_it(tmp_path):
    made = weighing(lambda p: PARTLY.replace("grid_size_x", "0"))
    written(tmp_path, made, made.points(), {})
    document = json.loads((tmp_path / "call.json").read_text())
    assert [each["text"] for each in document["launches"]] == [0, 1, 0, 1]
    assert "#pragma unroll" not in document["texts"][0]
    assert "constexpr int loop_unroll_factor = 3;" in document["texts"][1]


def test_blocks_are_named_in_any_case():
    assert _block_size_names(None, {"BLOCK_SIZE_X": [1]})[:2] == ["BLOCK_SIZE_X", "block_size_y"]
    assert _block_size_names(["threads"], {})[1:] == ["block_size_y", "block_size_z"]


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"verify": lambda *given: True}, "verify= is not taken over by gpuadvisor: leave it out"),
        ({"texmem_args": {"a": A}}, "texture references are gone since CUDA 12"),
        ({"kernel_source": lambda p: SOURCE}, 'a function makes the source: say lang="CUDA"'),
        (
            {"kernel_source": lambda p: p["tile"], "lang": "CUDA"},
            "kernel_source fails for {'block_size_x': 32, 'vector': 1}: KeyError: 'tile'",
        ),
        ({"kernel_source": lambda p: "", "lang": "CUDA"}, "gives no text with a __global__"),
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
    with pytest.raises(MissingError, match=r"run the script with a Python whose torch finds one$"):
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


@pytest.mark.gpu
@pytest.mark.parametrize("source", [PARTLY, lambda p: PARTLY.replace("k < 3", f"k < {p['k']}")])
def test_constants_and_a_function_as_source_are_taken_on_a_gpu(tmp_path, monkeypatch, source):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    results, _ = tune_kernel(
        "weigh",
        source if source is PARTLY else lambda p: source({**p, "k": 3}),
        N,
        [np.zeros(N, np.float32), A, np.int32(N)],
        {"block_size_x": [64], "loop_unroll_factor": [0, 3]},
        answer=[6.5 * A + 16, None, None],
        cmem_args={"weights": WEIGHTS},
        lang="CUDA",
        quiet=True,
    )
    assert len(results) == 2
    assert all("time" in each for each in results)
