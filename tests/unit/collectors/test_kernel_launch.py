"""`gpuadvisor.kernel_launch`: which kernel and point of a file is meant, and what is refused."""

import json

import pytest

import gpuadvisor
from gpuadvisor.collectors.kernels.child import launching
from gpuadvisor.errors import MissingError, UsageError

FILE = '''
from gpuadvisor import Kernel, array, output
for name in ("double", "triple")[:{count}]:
    Kernel("""extern "C" __global__ void NAME(float *y, const float *x, int n) {{}}""".replace(
        "NAME", name), parameters={{"tile": [32, 64]}}, problems=[{{"n": 4096}}, {{"n": 64}}],
        restrictions=["n % tile == 0"], grid="n // tile", block="tile",
        arguments=[output("n"), array("n"), "n"])
'''


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch, tmp_path):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))


@pytest.fixture
def kernels(tmp_path):
    def written(count):
        path = tmp_path / "kernels.py"
        path.write_text(FILE.format(count=count))
        return path

    return written


@pytest.mark.parametrize(
    "words, given, said",
    [
        ([], {}, "has several kernels: name one of double, triple"),
        (["nothing"], {}, "has no kernel nothing; it has double, triple"),
        (["double"], {"m": 3}, "m is no size of it: its sizes are n"),
        (["double"], {"n": 33}, 'violates the restriction "n % tile == 0"'),
        (["double"], {"point": {"block": 3}}, "a point gives a value to tile"),
        (["double"], {"point": "fastest"}, "a point gives a value to tile"),
        (["double"], {"best_file": "nowhere.json"}, "nowhere.json cannot be read"),
    ],
)
def test_what_is_not_there_is_said(kernels, words, given, said):
    with pytest.raises(UsageError) as refused:
        gpuadvisor.kernel_launch(kernels(2), *words, **given)
    assert said in str(refused.value)


def test_without_a_gpu_nothing_is_launched(kernels):
    with pytest.raises(MissingError, match="finds no GPU to launch the kernel on"):
        gpuadvisor.kernel_launch(kernels(2), "double")


def test_a_file_that_is_not_there():
    with pytest.raises(UsageError, match=r"there is no file nowhere\.py"):
        gpuadvisor.kernel_launch("nowhere.py")


def test_the_point_is_the_best_one_of_the_file_else_the_default(kernels, tmp_path):
    best = tmp_path / "best.json"
    entry = {"device": "NVIDIA H200", "compute_capability": None, "problem": {"n": 64},
             "best": {"tile": 64}, "shown": "2x"}  # fmt: skip
    known = {"double": {"default": {"tile": 32}, "restrictions": [], "tuned": [entry]}}
    best.write_text(json.dumps({"gpuadvisor_best": 1, "kernels": known}))
    kernel = launching.kernel_of(kernels(1), None)
    # No GPU is known here, so the file's default it is; without a file, the kernel's own.
    assert launching.point_of(kernel, None, best, {"n": 64}) == {"tile": 32}
    assert launching.point_of(kernel, None, None, {"n": 64}) == {"tile": 32}
    assert launching.point_of(kernel, {"tile": 64}, None, {"n": 64}) == {"tile": 64}


def test_what_others_declared_before_is_none_of_the_files(kernels):
    gpuadvisor.Kernel(
        "__global__ void other() {}", parameters={"tile": [1]}, grid=1, block=1, arguments=[]
    )
    assert launching.kernel_of(kernels(1), None).name == "double"
