"""A tuned kernel as a header that compilers take, as configurations of Triton, and as CSV."""

import csv
import io
import shutil
import subprocess
from dataclasses import replace

import pytest

from gpuadvisor.domain.study import Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.reports.kernel.exports import header, space_csv, triton_configurations
from tests.tuned_kernels import RESULT, evaluations

SMALL = replace(RESULT, problem={"rows": 512, "columns": 512}, best={"block_x": 8, "unroll": 4})
A100 = replace(
    RESULT, device="NVIDIA A100", compute_capability=(8, 0), best={"block_x": 64, "unroll": 1}
)
H100 = replace(RESULT, device="NVIDIA H100", best={"block_x": 64, "unroll": 2})


def preprocessed(text, *options, compiler="cpp"):
    """What a program that includes the header has for both parameters."""
    program = f"{text}\nPOINT block_x unroll\n"
    command = [compiler, "-E", "-P", "-Werror", *options, "-x", "c++", "-"]
    run = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (line,) = (each for each in run.stdout.splitlines() if each.startswith("POINT"))
    return line.removeprefix("POINT ")


H200_ARCH, A100_ARCH = "-DGPUADVISOR_ARCH=900", "-DGPUADVISOR_ARCH=800"
LARGE = ("-DTRANSPOSE_rows=8192", "-DTRANSPOSE_columns=8192")
OTHER = ("-DTRANSPOSE_rows=8192", "-DTRANSPOSE_columns=512")


@pytest.mark.skipif(shutil.which("cpp") is None, reason="needs a C preprocessor")
@pytest.mark.parametrize(
    "results, options, point",
    [
        ([RESULT], [H200_ARCH], "16 2"),
        ([RESULT], ["-D__CUDA_ARCH_LIST__=900"], "16 2"),
        ([RESULT], [], "32 1"),
        ([RESULT], ["-D__CUDA_ARCH_LIST__=800,900"], "32 1"),
        ([RESULT], ["-D__CUDA_ARCH_LIST__=800,900", H200_ARCH], "16 2"),
        ([RESULT], ["-D__CUDACC_RTC__", "-D__CUDA_ARCH__=900"], "16 2"),
        ([RESULT], [A100_ARCH], "32 1"),
        ([RESULT, A100], [A100_ARCH], "64 1"),
        ([RESULT], [H200_ARCH, *LARGE], "16 2"),
        ([RESULT], [H200_ARCH, *OTHER], "32 1"),
        ([RESULT, SMALL], [H200_ARCH, *LARGE], "16 2"),
        ([RESULT, SMALL], [H200_ARCH], "32 1"),
        ([SMALL, RESULT], [H200_ARCH, "-DTRANSPOSE_rows=512", "-DTRANSPOSE_columns=512"], "8 4"),
        ([H100, RESULT], [H200_ARCH], "64 2"),
        ([replace(RESULT, best=None, verdict=Verdict.NO_GAIN)], [H200_ARCH], "32 1"),
    ],
)
def test_a_program_gets_the_point_of_its_architecture_and_size(results, options, point):
    assert preprocessed(header(results), *options) == point


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs CUDA's compiler")
def test_host_and_device_code_get_the_same_point(tmp_path):
    """The launch is host code, for which CUDA defines no architecture."""
    (tmp_path / "transpose.h").write_text(header([RESULT, A100]))
    (tmp_path / "program.cu").write_text(
        '#include "transpose.h"\n'
        'static_assert(block_x == WANTED, "");\n'
        "__global__ void kernel(int *out) { out[0] = block_x * unroll; }\n"
        "int main() { int *out; cudaMalloc(&out, 4); kernel<<<1, block_x>>>(out); }\n"
    )
    for arch, wanted in (("sm_90", 16), ("sm_80", 64)):
        command = ["nvcc", f"-arch={arch}", f"-DWANTED={wanted}", "-c", "program.cu", "-o", "p.o"]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr


def test_a_header_says_where_its_points_come_from_and_what_it_left_out():
    text = header([H100, RESULT])
    assert "NVIDIA H100 (9.0), rows=8192, columns=8192: 1.61x [99 % interval 1.60-1.62]" in text
    assert "left out, as another GPU of its compute capability is newer: NVIDIA H200" in text


def test_no_header_without_a_compute_capability_or_whole_sizes():
    with pytest.raises(UsageError, match="no compute capability is known"):
        header([replace(RESULT, compute_capability=None)])
    with pytest.raises(UsageError, match="the size dtype=half is no whole number"):
        header([replace(RESULT, problem={"dtype": "half"})])


SOFTMAX = replace(
    RESULT,
    kernel="softmax",
    language="triton",
    default={"BLOCK": 1024, "CAUSAL": False, "num_warps": 4, "num_stages": 3},
    best={"BLOCK": 4096, "CAUSAL": True, "num_warps": 8, "num_stages": 1},
)


def test_configurations_are_python_with_each_point_once():
    class Config:
        """What Triton's class takes."""

        def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None):
            self.all = {**kwargs, "num_warps": num_warps, "num_stages": num_stages}

    small = replace(SOFTMAX, problem={"rows": 1, "columns": 1})
    same = replace(SOFTMAX, best=None, verdict=Verdict.NO_GAIN)
    text = triton_configurations([SOFTMAX, small, same])
    names = {"triton": type("triton", (), {"Config": Config})}
    exec(text.replace("import triton\n", ""), names)
    assert [each.all for each in names["CONFIGS"]] == [SOFTMAX.best, SOFTMAX.default]
    assert "# NVIDIA H200 (9.0), rows=1, columns=1: 1.61x" in text


def test_every_point_is_a_line_of_csv():
    with_points = replace(RESULT, evaluations=evaluations())
    rows = list(csv.DictReader(io.StringIO(space_csv([with_points]))))
    assert len(rows) == 12
    first = {k: rows[0][k] for k in ("kernel", "rows", "block_x", "unroll", "state", "time_ms")}
    assert first == {
        "kernel": "transpose", "rows": "8192", "block_x": "8", "unroll": "1", "state": "complete",
        "time_ms": str(0.4 * 1.02),
    }  # fmt: skip
    assert (rows[-1]["state"], rows[-1]["time_ms"], rows[-1]["reason"]) == (
        "crashed", "", "an illegal address",
    )  # fmt: skip
