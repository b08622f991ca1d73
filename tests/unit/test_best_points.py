"""`gpuadvisor.best`: which point a program gets, and what it is told of it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpuadvisor
from gpuadvisor import best_points
from gpuadvisor.domain import kernel_rules
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.home import readable_home

H200, H100, A100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def tuned(n, tile, device=H200, capability=(9, 0)):
    return {
        "device": device,
        "compute_capability": capability,
        "problem": {"n": n},
        "best": {"tile": tile},
        "shown": "1.50x the default's speed",
    }


KERNEL = {
    "default": {"tile": 16},
    "restrictions": ["n % tile == 0"],
    "tuned": [tuned(1024, 32), tuned(4096, 128), tuned(4096, 64, A100, [8, 0])],
}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch, tmp_path):
    """Each test is a process of its own: nothing is remembered, and no GPU is found."""
    best_points.forget()
    monkeypatch.delenv(best_points.FILE_VARIABLE, raising=False)
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "best.json", {"matmul": KERNEL})


def written(path, known, version=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"gpuadvisor_best": version, "kernels": known}))
    return path


@pytest.mark.parametrize(
    "gpu, n, tile, found, said",
    [
        (H200, 4096, 128, "tuned", "tuned on NVIDIA H200 for n=4096: 1.50x the default's speed"),
        (H200, 1536, 32, "nearest_size", "tuned on NVIDIA H200 for n=1024"),
        (H200, 8192, 128, "nearest_size", "tuned on NVIDIA H200 for n=4096"),
        # 2048 + 32 is nearest to 4096, whose tile of 128 does not divide it; 32 does.
        (H200, 3104, 32, "nearest_size", "tuned on NVIDIA H200 for n=1024"),
        (H200, 2049, 16, "default", "its restriction n % tile == 0 does not hold"),
        (H200, 1 << 20, 16, "default", "no tuned size is near n=1048576"),
        (A100, 4096, 64, "tuned", A100),
        (A100, 1024, 64, "nearest_size", A100),
        (H100, 4096, 16, "default", "it was not tuned on NVIDIA H100 80GB HBM3"),
        ("9.0", 4096, 128, "nearest_gpu", "tuned on NVIDIA H200 for n=4096"),
        ("9.0", 2048, 32, "nearest_gpu", "tuned on NVIDIA H200"),
        ("12.0", 4096, 16, "default", "it was not tuned on compute capability 12.0"),
    ],
)
def test_the_nearest_point_that_may_be_launched_else_the_default(file, gpu, n, tile, found, said):
    point = gpuadvisor.best("matmul", file=file, gpu=gpu, n=n)
    assert (point, point.found) == ({"tile": tile}, found)
    assert said in point.why


@pytest.mark.parametrize(
    "restriction, tile, found, said",
    [
        ("n % tile == 0", 16, "default", "breaks the kernel's own restriction n % tile == 0"),
        ("n % nobody == 0", 96, "tuned", "tuned on NVIDIA H200 for n=1024"),  # nobody knows
        (None, 96, "tuned", "tuned on NVIDIA H200 for n=1024"),
    ],
)
def test_a_tuned_point_that_breaks_its_own_restriction_is_not_taken(
    tmp_path, restriction, tile, found, said
):
    restrictions = None if restriction is None else [restriction]
    known = {**KERNEL, "restrictions": restrictions, "tuned": [tuned(1024, 96)]}
    file = written(tmp_path / "best.json", {"matmul": known})
    point = gpuadvisor.best("matmul", file=file, gpu=H200, n=1024)
    assert (point, point.found) == ({"tile": tile}, found)
    assert said in point.why


@pytest.mark.parametrize("gpu, n", [(H200, 2048), ("9.0", 4096), (H100, 4096)])
def test_strictly_nothing_but_what_was_measured(file, gpu, n):
    assert gpuadvisor.best("matmul", file=file, gpu=gpu, strict=True, n=n).found == "default"
    assert gpuadvisor.best("matmul", file=file, gpu=H200, strict=True, n=4096).found == "tuned"


def test_restrictions_that_nobody_knows_keep_points_at_their_sizes(tmp_path):
    file = written(tmp_path / "f.json", {"matmul": {**KERNEL, "restrictions": None}})
    assert gpuadvisor.best("matmul", file=file, gpu=H200, n=4096).found == "tuned"
    assert gpuadvisor.best("matmul", file=file, gpu=H200, n=4097).found == "default"


def test_what_a_caller_changes_is_his_own(file):
    mine = gpuadvisor.best("matmul", file=file, gpu=H200, n=4096)
    mine["tile"] = 7
    assert gpuadvisor.best("matmul", file=file, gpu=H200, n=4096) == {"tile": 128}


def test_the_file_is_named_by_a_variable_or_is_gpuadvisors_own(file, tmp_path, monkeypatch):
    monkeypatch.setenv(best_points.FILE_VARIABLE, str(file))
    assert gpuadvisor.best("matmul", gpu=H200, n=4096).found == "tuned"
    monkeypatch.delenv(best_points.FILE_VARIABLE)
    best_points.forget()
    other = {**KERNEL, "default": {"tile": 8}, "tuned": []}
    written(best_points.store_file(), {"matmul": other})
    assert gpuadvisor.best("matmul", gpu=H200, n=4096) == {"tile": 8}


@pytest.mark.parametrize(
    "variables",
    [
        {"GPUADVISOR_HOME": "/data/here"},
        {"GPUADVISOR_HOME": "~/here"},
        {"XDG_DATA_HOME": "/data"},
        {"XDG_DATA_HOME": "relative"},
        {},
    ],
)
def test_gpuadvisors_folder_is_that_of_all_of_it(monkeypatch, variables):
    for name in ("GPUADVISOR_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert best_points.store_file() == readable_home() / "best_points.json"


def test_a_default_of_the_callers_own_stands_in(file, tmp_path):
    mine = {"tile": 4}
    assert gpuadvisor.best("matmul", default=mine, n=4096) == mine
    assert gpuadvisor.best("other", default=mine, file=file).why.startswith(f"{file} has no kernel")
    assert gpuadvisor.best("matmul", default=mine, file=file, gpu=H100, n=4096) == mine
    assert gpuadvisor.best("matmul", default=mine, file=file, gpu=H200, n=4096) == {"tile": 128}


@pytest.mark.parametrize(
    "name, sizes, said",
    [
        ("matmull", {"n": 1}, "has no kernel matmull (there is matmul)"),
        ("matmul", {"m": 1}, "there is no size m: its sizes are n"),
        ("matmul", {}, "n is missing: its sizes are n"),
        ("matmul", {"n": [1]}, "numbers or texts"),
    ],
)
def test_what_is_not_known_is_said(file, name, sizes, said):
    with pytest.raises(UsageError) as refused:
        gpuadvisor.best(name, file=file, gpu=H200, **sizes)
    assert said in str(refused.value)


def test_a_kernel_that_was_never_tuned_needs_a_default():
    with pytest.raises(UsageError, match="no kernel was tuned here: run `gpuadvisor tune-kernel"):
        gpuadvisor.best("matmul", n=1)


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"gpuadvisor_best": 0}', "is damaged"),
        ('{"gpuadvisor_best": 1}', "is damaged"),
        ('{"gpuadvisor_best": 1, "kernels": {"k": {"default": {}}}}', "is damaged"),
        (json.dumps({"gpuadvisor_best": 1, "kernels": {"k": {**KERNEL, "restrictions": [
            "__import__('os')"]}}}), "is not allowed in a restriction"),
        (json.dumps({"gpuadvisor_best": 1, "kernels": {"k": {**KERNEL, "default": {}}}}),
         "other parameters than the default"),
        ('{"gpuadvisor_best": 2, "kernels": 1}', "newer gpuadvisor (format 2, this one reads 1)"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_named(tmp_path, text, said):
    file = tmp_path / "best.json"
    file.write_text(text)
    with pytest.raises(UsageError) as refused:
        gpuadvisor.best("k", default={}, file=file, gpu=H200, n=1)
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


def test_a_file_that_is_named_and_missing_is_an_error_whatever_the_default():
    with pytest.raises(UsageError, match=r"nowhere\.json cannot be read"):
        gpuadvisor.best("matmul", default={"tile": 1}, file="nowhere.json", n=1)


@pytest.mark.parametrize(
    "text, names, value",
    [
        ("n % tile == 0", {"n": 8, "tile": 4}, True),
        ("64 <= x * y <= 1024 and not x == 3", {"x": 3, "y": 32}, False),
        ("x in (1, 2) or ceil_div(x, 2) + next_power_of_2(x) > 10", {"x": 7}, True),
        ("(x if y else -x) ** 2 // 3 - x / 2", {"x": 4, "y": False}, 3.0),
        ("min(x, 2) + max(x, 2) + abs(-x) + round(2.4) + int(log2(x))", {"x": 4}, 14),
    ],
)
def test_restrictions_are_computed(text, names, value):
    assert best_points.expression(text)(names) == value


@pytest.mark.parametrize(
    "text", ["x.__class__", "[x for x in y]", "open('f')", "lambda: 1", "f'{x}'", "x[0]", "x =", ""]
)
def test_restrictions_are_nothing_but_arithmetic(text):
    with pytest.raises(ValueError):
        best_points.expression(text)


def test_no_restriction_computes_for_ever():
    with pytest.raises(ValueError, match="too large an exponent"):
        best_points.expression("9 ** 9 ** 9")({})


def test_a_restriction_may_call_what_a_rule_may():
    assert best_points.FUNCTIONS.keys() == kernel_rules.FUNCTIONS.keys()
    for name, function in best_points.FUNCTIONS.items():
        arguments = (7, 2) if name in ("ceil_div", "max", "min") else (7,)
        assert function(*arguments) == kernel_rules.FUNCTIONS[name](*arguments)


def test_a_copy_of_the_file_alone_serves_without_gpuadvisor(file, tmp_path):
    shutil.copy(Path(best_points.__file__), tmp_path / "best_points.py")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from best_points import best\n"
        f"print(best('matmul', file={str(file)!r}, gpu='NVIDIA H200', n=4096))\n"
        f"print([n for n in sys.modules if 'gpuadvisor' in n or n in ('ctypes', 'numpy')])\n"
        "try: best('nothing', n=1)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "GPUADVISOR_HOME": str(tmp_path)},
    )
    assert run.stdout.splitlines() == [
        "{'tile': 128}",
        "[]",
        "UsageError no kernel was tuned here: run `gpuadvisor tune-kernel FILE`, or give default=",
    ]


OF_THIS = "from gpuadvisor.best_points import this_gpu; print(*this_gpu())"


@pytest.mark.parametrize(
    "models, visible, said",
    [
        ("h100,t4", None, "NVIDIA H100 80GB HBM3 (9, 0)"),
        ("h100,t4", "1", "Tesla T4 (7, 5)"),
        ("h100,t4", "", "None None"),
        ("h100,t4", "7", "None None"),
    ],
)
def test_the_first_gpu_that_the_process_may_see(nvml_environ, models, visible, said):
    environ = {**nvml_environ, "FAKE_NVML_MODELS": models}
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible
    command = [sys.executable, "-c", OF_THIS]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == said


def test_gpus_are_named_by_their_uuids_too(nvml_environ):
    listed = "from gpuadvisor.collectors.devices import list_gpus; print(list_gpus()[1].uuid)"
    environ = {**nvml_environ, "FAKE_NVML_MODELS": "h100,t4"}
    uuid = subprocess.run(
        [sys.executable, "-c", listed], env=environ, capture_output=True, text=True, check=True
    ).stdout.strip()
    run = subprocess.run(
        [sys.executable, "-c", OF_THIS],
        env={**environ, "CUDA_VISIBLE_DEVICES": uuid},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == "Tesla T4 (7, 5)"
