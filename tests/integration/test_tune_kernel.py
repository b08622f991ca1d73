"""`gpuadvisor tune-kernel`: replays and bad files without a GPU, and real kernels on one."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gpuadvisor
from gpuadvisor import best_points
from gpuadvisor.cli import main
from gpuadvisor.collectors.kernels.child.backends.numba import is_of_numba
from gpuadvisor.collectors.kernels.runner import KernelProcess
from gpuadvisor.errors import AdvisorError, RegressionError, UsageError

EXAMPLES = Path(__file__).parents[2] / "examples" / "kernels"
HEAD = "from gpuadvisor import Kernel, array, output\n"
FAILING = r'''
Kernel("""
extern "C" __global__ void bad(float *y, const float *x, int n)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
#if mode == 5
    this is no C
#endif
    if (mode == 1) y[(size_t)1 << 40] = 1;
    if (mode == 3) while (*(volatile const float *)x == *(volatile const float *)x) ;
    if (mode == 6 && at == 0) y[n] = 3;
    if (at < n) y[at] = mode == 2 ? x[at] : 2 * x[at];
}""", parameters={"mode": [0, 1, 2, 3, 4, 5, 6, 7]}, default={"mode": 0}, problems=[{"n": 4096}],
    grid="1 << 31 if mode == 7 else n // 256", block=256,
    shared_bytes="1 << 20 if mode == 4 else 0",
    arguments=[output("n"), array("n"), "n"], reference=lambda y, x, n: 2 * x)
'''


def recorded(path):
    """A file of Kernel Tuner with 400 points, the best of which is 128, 4."""
    xs, ys = [8 * n for n in range(1, 41)], list(range(1, 11))
    cache = {
        f"{x},{y}": {"x": x, "y": y, "time": 1 + abs(x - 128) / 64 + abs(y - 4) / 5}
        for x in xs
        for y in ys
    }
    cache["8,1"]["time"] = "RuntimeFailedConfig"
    document = {
        "device_name": "H200",
        "kernel_name": "add",
        "problem_size": 1000,
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": xs, "y": ys},
        "cache": cache,
    }
    path.write_text(json.dumps(document))
    return str(path)


def test_a_recorded_space_is_searched_without_a_gpu(tmp_path, capsys):
    arguments = ["--seeds", "1", "--budget", "25", "--json"]
    assert main(["tune-kernel", "--replay", recorded(tmp_path / "add.json"), *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["points"], found["valid_points"], found["best_ms"]) == (400, 399, 1.0)
    model, chance = found["strategies"]
    assert model["best"] == {"x": 128, "y": 4}
    assert model["score"] > chance["score"]
    once = ["--budget", "5", "--seeds", "1", "--t4", str(tmp_path / "t4")]
    assert main(["tune-kernel", "--replay", str(tmp_path / "add.json"), *once]) == 0
    assert "400 points, 1 of them fail; best 1.00 ms" in capsys.readouterr().out
    (written,) = (tmp_path / "t4").iterdir()
    assert main(["tune-kernel", "--replay", str(written), "--budget", "5", "--seeds", "1"]) == 0
    assert "400 points, 1 of them fail; best 1.00 ms" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text, said",
    [
        ("import nosuchlibrary", "needs nosuchlibrary, which"),
        ("x = 1", "declares no kernel"),
        ("\n1 / 0", "line 3: ZeroDivisionError"),
        (
            "Kernel('f.cu', parameter={'a': [1]})",
            "line 2: a Kernel has no parameter=: did you mean",
        ),
        (
            "Kernel('f.cu', zzz={'a': [1]})",
            "a Kernel has no zzz=: it takes source, parameters,",
        ),
        ("Kernel('f.cu', parameters={'a': [1]}, grid=1, arguments=[])", "f.cu cannot be read"),
        ("import os\nos.abort()", "cannot be loaded: signal SIGABRT"),
        ("input('size? ')", "line 2: EOFError"),
        (
            "Kernel('__global__ void f() {}\\n', parameters={'a': [1]}, grid=1, block=1, "
            "arguments=[output(1)], restrictions=[lambda a: exit(3)])",
            "cannot be read: exit status 3",
        ),
        (
            "for _ in range(2):\n    Kernel('__global__ void f() {}\\n', parameters={'a': [1]}, "
            "grid=1, arguments=[])",
            "declares two kernels called f: give one another name=",
        ),
    ],
)
def test_a_file_that_cannot_be_tuned_is_refused_in_a_sentence(tmp_path, text, said):
    import sys

    file = tmp_path / "kernels.py"
    file.write_text(HEAD + text)
    with KernelProcess(sys.executable, file) as process, pytest.raises(UsageError) as refused:
        process.describe()
    assert said in str(refused.value)


def test_one_file_is_named(capsys, tmp_path):
    assert main(["tune-kernel"]) == 2
    assert main(["tune-kernel", "nosuchfile.py"]) == 2
    assert "there is no file nosuchfile.py" in capsys.readouterr().err
    assert main(["tune-kernel", str(EXAMPLES)]) == 2
    assert "kernels is a folder: name the file in it with the kernels" in capsys.readouterr().err
    source = tmp_path / "transpose.cu"
    source.write_text("__global__ void transpose() {}")
    assert main(["tune-kernel", str(source)]) == 2
    assert "transpose.cu is the kernel itself: name a Python file" in capsys.readouterr().err


ONE = r'''
Kernel("""
extern "C" __global__ void one(float *y, const float *x, int n)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    LINE
}""", parameters={"block": [128, 256]}, problems=[{"n": 4096}], grid="GRID", block="block",
    arguments=[output("n"), array("n"), "n"], reference=lambda y, x, n: 2 * x)
'''


def tuned(tmp_path, capsys, monkeypatch, text, *arguments, status=0):
    """Tune a file with this text, and return what was printed: JSON, or the error."""
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    file = tmp_path / "kernels.py"
    file.write_text(HEAD + text)
    assert main(["tune-kernel", str(file), "--timeout", "6", "--json", *arguments]) == status
    out, error = capsys.readouterr()
    return json.loads(out)["kernels"] if status == 0 else error


def test_what_no_gpu_launches_is_left_out_without_one(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(HEAD + FAILING)
    with KernelProcess(sys.executable, file) as process:
        ((problem,),) = (each["problems"] for each in process.describe())
    assert (problem["points"], problem["unlaunchable"]) == ([[n] for n in (0, 1, 2, 3, 5, 6)], 2)


@pytest.mark.gpu
def test_what_fails_on_a_gpu_is_counted_and_the_gpu_is_usable_afterwards(
    tmp_path, capsys, monkeypatch
):
    (found,) = tuned(tmp_path, capsys, monkeypatch, FAILING)
    assert found["states"] == {"complete": 1, "crashed": 1, "wrong": 2, "hung": 1, "unsupported": 1}
    assert found["restarts"] == 2
    assert any("2 points were left out" in each for each in found["remarks"])
    record = json.loads(Path(found["record"]).read_text())["cache"]
    assert "error: " in record["5"]["reason"]
    assert "in `this is no C`" in record["5"]["reason"]
    fine = ONE.replace("LINE", "if (at < n) y[at] = 2 * x[at];").replace("GRID", "n // block")
    (found,) = tuned(tmp_path, capsys, monkeypatch, fine)
    assert found["states"] == {"complete": 2}


@pytest.mark.gpu
@pytest.mark.parametrize(
    "line, grid, said",
    [
        ("y[at] = 2 * z[at];", "n // block", 'identifier "z" is undefined in `y[at] = 2 * z[at];`'),
        ("if (at < n) y[at] = x[at];", "n // block", "of 4,096 elements differ by more than"),
        ("if (at < n / 2) y[at] = 2 * x[at];", "n // block", "was left unwritten or is NaN"),
        ("if (at < n) y[at] = 2 * x[at]; y[n] = 1;", "n // block", "writes outside of argument 1"),
        ("y[at] = 2 * x[at];", "1 << 31", "at most 2,147,483,647 blocks in x, not 2,147,483,648"),
        ("y[(size_t)1 << 40] = 2;", "n // block", "the default cannot be run"),
        (
            "while (*(volatile float *)y != 5) ;",
            "n // block",
            "the default cannot be run: no answer",
        ),
    ],
)
def test_a_default_that_fails_ends_the_study_with_a_sentence(
    tmp_path, capsys, monkeypatch, line, grid, said
):
    monkeypatch.setattr("gpuadvisor.collectors.kernels.runner.STARTING_S", 30.0)
    text = ONE.replace("LINE", line).replace("GRID", grid)
    error = tuned(tmp_path, capsys, monkeypatch, text, status=2)
    assert said in error
    assert "Traceback" not in error


@pytest.mark.gpu
def test_results_that_change_from_launch_to_launch_are_said(tmp_path, capsys, monkeypatch):
    line = "if (at < n) y[at] = 2 * x[at] * (1 + 1e-6f * (clock64() % 7));"
    text = ONE.replace("LINE", line).replace("GRID", "n // block")
    (found,) = tuned(tmp_path, capsys, monkeypatch, text)
    assert found["repeats"] is False


@pytest.mark.gpu
def test_caches_clocks_and_energy_are_said(tmp_path, capsys, monkeypatch):
    line = "if (at < n) y[at] = 2 * x[at];"
    text = ONE.replace("LINE", line).replace("GRID", "n // block")
    (warm,) = tuned(tmp_path, capsys, monkeypatch, text, "--l2", "warm")
    assert any("L2 cache as the one before left it" in each for each in warm["remarks"])
    assert any("SM clock" in each for each in warm["remarks"])
    (energy,) = tuned(tmp_path, capsys, monkeypatch, text, "--objective", "energy")
    assert any("mJ a launch" in each for each in energy["remarks"])


@pytest.mark.gpu
def test_two_gpus_share_the_points(tmp_path, capsys, monkeypatch):
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    file = str(EXAMPLES / "transpose.py")
    assert main(["tune-kernel", file, "--budget", "40", "--gpus", "0,1", "--json"]) == 0
    for found in json.loads(capsys.readouterr().out)["kernels"]:
        assert sum(found["states"].values()) == 40
        assert any("2 GPUs measured side by side" in each for each in found["remarks"])


NUMBA = """
import numpy
from numba import cuda

@cuda.jit
def one(values):
    values[0] = 1

one[1, 1](cuda.to_device(numpy.zeros(1, numpy.float32)))
cuda.synchronize()
"""


def test_numba_that_is_older_than_its_numpy_is_told_from_a_kernel_that_fails():
    text = "def compiled():\n    raise AttributeError(\"module 'numpy' has no 'row_stack'\")"
    raised = {}
    for module in ("numba.np.arrayobj", "kernels"):
        library = {"__name__": module}
        exec(text, library)
        with pytest.raises(AttributeError) as failed:
            library["compiled"]()
        raised[module] = is_of_numba(failed.value)
    assert raised == {"numba.np.arrayobj": True, "kernels": False}


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name, kernel",
    [
        *((name, name) for name in ("transpose", "reduction", "matmul", "stencil", "prefix_sum",
                                    "softmax", "layer_norm", "attention")),
        ("matmul_bf16", "product"),
        ("scaled_sum", "scaled_sum_cupy"),
        ("scaled_sum", "scaled_sum_numba"),
    ],
)  # fmt: skip
def test_the_examples_are_tuned_and_never_slower(tmp_path, capsys, monkeypatch, name, kernel):
    if kernel == "scaled_sum_numba":
        tried = subprocess.run([sys.executable, "-c", NUMBA], capture_output=True, text=True)
        if tried.returncode:
            pytest.skip(f"Numba runs no kernel here: {tried.stderr.strip().splitlines()[-1]}")
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path))
    best_points.forget()
    file = str(EXAMPLES / f"{name}.py")
    assert main(["tune-kernel", file, "--kernel", kernel, "--budget", "15", "--json"]) == 0
    for found in json.loads(capsys.readouterr().out)["kernels"]:
        assert found["states"]["complete"] + found["states"].get("pruned", 0) >= 10
        assert found["best"] is None or found["speedup"]["ci99_low"] > 1
        assert found["roofline"] is not None
        point = gpuadvisor.best(found["kernel"], **found["problem"])
        assert (point, point.found) == (found["best"] or found["default"], "tuned")


GUARD = """
import json, sys, gpuadvisor
point = json.loads(sys.argv[1])
launch = gpuadvisor.kernel_launch(FILE, point=point, rows=8192, columns=8192)
for _ in range(20000):
    launch()
    gpuadvisor.step()
"""
FAST = {
    "block_x": 32, "block_y": 8, "tile_x": 32, "tile_y": 32, "width": 1, "padding": 1,
    "swizzled": 0,
}  # fmt: skip
"""The default of the transpose."""


@pytest.mark.gpu
@pytest.mark.parametrize(
    "changed, status",
    [({}, 0), ({"block_x": 8, "padding": 0}, RegressionError.exit_code)],
    ids=["the same point", "a slower one"],
)
def test_the_gate_guards_a_point_of_a_kernel(tmp_path, monkeypatch, changed, status):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guard.py").write_text(GUARD.replace("FILE", repr(str(EXAMPLES / "transpose.py"))))
    # As arguments, not in the environment: runs of one environment are forked from one process.
    base, head = (
        f"python guard.py {shlex.quote(json.dumps(point))}" for point in (FAST, {**FAST, **changed})
    )
    commands = ["--base-cmd", base, "--head-cmd", head]
    assert main(["gate", "--measure", "1", "--no-explain", *commands]) == status


@pytest.mark.gpu
def test_a_launch_is_a_benchmark_of_the_pytest_plugin(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    (tmp_path / "test_kernels.py").write_text(
        "import gpuadvisor\n"
        "def test_transpose(gpu_benchmark):\n"
        f"    gpu_benchmark(gpuadvisor.kernel_launch({str(EXAMPLES / 'transpose.py')!r}))\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    row = next(line for line in run.stdout.splitlines() if line.startswith("test_transpose"))
    assert row.split()[-1] == "GPU"


@pytest.mark.gpu
def test_a_point_that_computes_something_else_is_no_launch(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text(HEAD + FAILING)
    with pytest.raises(AdvisorError, match="is wrong: "):
        gpuadvisor.kernel_launch(file, point={"mode": 2})
    with pytest.raises(AdvisorError, match="does not compile"):
        gpuadvisor.kernel_launch(file, point={"mode": 5})
