"""What a kernel file gets wrong, told before anything is compiled."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from gpuadvisor.collectors.kernels.child.backends import CannotBuild, Target, check, prepare
from gpuadvisor.domain.kernels import Kernel, array, output
from gpuadvisor.errors import UsageError

CUDA = """
extern "C" __global__ void __launch_bounds__((BLOCK * 2) / (1 * 2), 1)
scale(float *y, const float *x /* read, only */, int n)
{ for (int k = 0; k < TILE; ++k) y[k + blockIdx.x * BLOCK] = n * x[k]; }
"""
FAKE = Path(__file__).parents[2] / "fake_triton"


def checked(source=CUDA, **changes):
    given = {
        "parameters": {"BLOCK": [32, 64], "TILE": [1, 2]},
        "problems": [{"n": 4096}],
        "grid": "n // BLOCK",
        "block": "BLOCK",
        "arguments": [output("n"), array("n"), "n"],
        "bytes": "8 * n",
    }
    kernel = Kernel(source, **{**given, **changes})
    check(kernel, {**kernel.problems[0], **kernel.start})
    return kernel


@pytest.mark.parametrize(
    "source",
    [
        CUDA,
        CUDA.replace("void", "/**/ void") + CUDA.replace("scale", "other").replace("TILE", "k"),
        "#ifndef TILE\n#define TILE 1\n#endif\n" + CUDA,
        "#if !defined(TILE)\n#define TILE 1\n#endif\n" + CUDA,
        "#ifndef BLOCK\n#define BLOCK 9\n#define TILE 1\n#endif\n" + CUDA,
        "#ifdef BLOCK\n#define wide 1\n#else\n#if 1\n#define TILE 1\n#endif\n#endif\n" + CUDA,
        '#include "tiles.h"\n' + CUDA.replace("TILE", "tiles()"),
        CUDA.replace("float *y, const float *x /* read, only */, int n", "ARGUMENTS"),
        CUDA.replace("float *y,", "std::array<float, 4> *y,"),
    ],
)
def test_a_text_that_fits(source):
    assert checked(source, name="scale").name == "scale"


HALVES = """
#include <cuda_fp16.h>
#include "twice.h"
__global__ void scale(__half *y, int n) { y[blockIdx.x * BLOCK + threadIdx.x] = TWICE(TILE * n); }
"""


def compiled(folder, options=(), source=HALVES):
    pytest.importorskip("cuda.core", reason="NVRTC and cuda-core are not installed")
    given = {"parameters": {"BLOCK": [32], "TILE": [1]}, "problems": [{"n": 4096}], "name": "scale"}
    arguments = [output("n", dtype="float16"), "n"]
    kernel = Kernel(source, **given, grid="n // BLOCK", block="BLOCK", arguments=arguments,
                    options=options, file=str(folder / "kernels.py"))  # fmt: skip
    return prepare(kernel, {"n": 4096, **kernel.start}, Target("90"))


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-std=c++14", "-O3", "-lineinfo", "-use_fast_math", "-Wno-deprecated-gpu-targets"],
        ["-Xcompiler", "-fPIC", "-Xcompiler=-Wall", "-O2"],
        ["-I", "elsewhere", "-Ielsewhere", "--include-path=elsewhere", "-DM=1", "-D", "N", "-UN"],
        ["--std", "c++17", "-maxrregcount", "32", "-Xptxas=-v", "--ftz=true", "-fmad=false"],
    ],
)
def test_headers_and_usual_options_are_found(tmp_path, monkeypatch, options):
    (tmp_path / "include").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    (tmp_path / "include" / "cuda_fp16.h").write_text("typedef unsigned short __half;\n")
    (tmp_path / "twice.h").write_text("#define TWICE(x) (2 * (x))\n")
    assert compiled(tmp_path, options)["threads"] == 32


CONSTANT = """
__constant__ float weights[4];
extern "C" __global__ void scale(float *y, int n) { y[blockIdx.x * BLOCK] = TILE * READ; }
"""


def with_constants(size, source=CONSTANT):
    pytest.importorskip("cuda.core", reason="NVRTC and cuda-core are not installed")
    kernel = Kernel(source, parameters={"BLOCK": [32], "TILE": [1, 2]}, grid="n // BLOCK",
                    block="BLOCK", problems=[{"n": 64}], arguments=[output("n"), "n"], name="scale",
                    constants={"weights": np.ones(size, np.float32)})  # fmt: skip
    return prepare(kernel, {"n": 64, **kernel.start}, Target("90"))


ELSEWHERE = CONSTANT.replace("__c", "#if TILE == 2\n__c").replace("4];", "4];\n#endif")


@pytest.mark.parametrize(
    "source, size",
    [
        (CONSTANT.replace("READ", "weights[n]"), 4),
        (CONSTANT.replace("READ", "weights[n]"), 3),
        (ELSEWHERE.replace("READ", "1"), 9),
    ],
)
def test_constants_that_have_room_or_are_not_there_compile(source, size):
    assert with_constants(size, source)["threads"] == 32


def test_a_constant_without_room_is_refused_before_it_is_copied():
    with pytest.raises(CannotBuild, match="constant weights has 16 bytes, and constants= gives 20"):
        with_constants(5, CONSTANT.replace("READ", "weights[n]"))


def test_a_text_that_a_function_makes_is_compiled_with_the_parameters():
    made = with_constants(4, lambda p: CONSTANT.replace("READ", f"weights[{p['TILE']} % BLOCK]"))
    assert made["threads"] == 32
    with pytest.raises(CannotBuild, match=r"takes 3 arguments .*, and arguments= gives 2"):
        with_constants(4, lambda: CONSTANT.replace("int n", "int n, int m"))


def test_a_header_of_the_host_is_said_to_be_none_of_nvrtc_s(tmp_path):
    source = HALVES.replace("cuda_fp16.h", "map")
    with pytest.raises(
        CannotBuild, match=r'"map".*NVRTC has CUDA.s headers and of the host.s only'
    ):
        compiled(tmp_path, source=source)


def test_a_text_may_have_functions_of_the_host(tmp_path):
    source = """
const double half = 0.5;
double halved(double x) { return half * x; }
__global__ void scale(float *y, int n) { y[blockIdx.x * BLOCK] = TILE * halved(n); }
int main() { return halved(2) != 1; }
"""
    assert compiled(tmp_path, source=source)["threads"] == 32


def test_what_a_kernel_uses_of_c_s_headers_is_there(tmp_path):
    of_c = "float limits stdint math stddef stdio stdlib string assert"
    names = [each for name in of_c.split() for each in (f"{name}.h", f"c{name}")]
    source = (
        "".join(f"#include <{name}>\n" for name in [*names, "cuda_runtime.h"])
        + """
static_assert(sizeof(int64_t) == 8 && sizeof(std::uint16_t) == 2 && INT_MIN < -INT_MAX, "");
static_assert(1.0f + FLT_EPSILON > 1.0f && 1.0f + FLT_EPSILON / 2 == 1.0f, "");
static_assert(1.0 + DBL_EPSILON > 1.0 && 1.0 + DBL_EPSILON / 2 == 1.0, "");
static_assert(FLT_MAX < FLT_MAX * 1.0000001 && UINT_MAX + 1U == 0, "");
__global__ void scale(float *y, int n) {
    assert(n > 0);
    y[blockIdx.x * BLOCK] = TILE * std::sqrt(M_PI) + (n ? INFINITY : NAN) + std::abs(-1.5f);
}
"""
    )
    assert compiled(tmp_path, source=source)["threads"] == 32


def test_an_option_that_is_none_is_named(tmp_path):
    with pytest.raises(UsageError, match="kernel scale: its option nonsense is none of NVRTC's"):
        compiled(tmp_path, ["--nonsense"])


@pytest.mark.parametrize("options", [["-arch=sm_80"], ["--gpu-architecture", "compute_80"]])
def test_the_architecture_is_the_gpu_s(options):
    with pytest.raises(UsageError, match=r"is compiled for the GPU that it is measured on: leave"):
        checked(options=options)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"constants": {"filter": 1}}, "constants= has filter, which its text has not"),
        ({"block": None}, "needs block=: threads in x, y and z"),
        ({"grid": "n / BLOCK"}, "grid must be one to three whole numbers from 1 on, not [128.0]"),
        ({"arguments": [array("n"), array("n"), "n"]}, "nothing says what it writes: use output("),
        ({"bytes": "8 * m"}, 'bytes, "8 * m": there is no m: there are n, BLOCK, TILE'),
        ({"arguments": [output("n"), array("n")]}, "it takes 3 arguments (float *y, const float"),
        ({"source": "#define TILE 4\n" + CUDA}, "a `#define TILE` that hides the parameter"),
        (
            {"source": "#ifdef BLOCK\n#define TILE 4\n#endif\n" + CUDA},
            "a `#define TILE` that hides the parameter",
        ),
        (
            {"source": CUDA.replace("TILE", "tile")},
            "TILE is neither in its text nor in a rule of its launch",
        ),
        (
            {"source": CUDA.replace('extern "C"', "template <int BLOCK, class T>")},
            "BLOCK is a parameter of its template, and parameters are macros: delete "
            "`template <int BLOCK, class T>`",
        ),
    ],
)
def test_what_does_not_fit_is_told_without_a_gpu(changes, said):
    with pytest.raises(UsageError, match=r"^kernel scale") as refused:
        checked(**changes)
    assert said in str(refused.value)


@pytest.fixture
def add(monkeypatch):
    """A function of Triton below the decorators that choose its blocks."""
    monkeypatch.syspath_prepend(FAKE)
    before = {name for name in sys.modules if name.partition(".")[0] == "triton"}
    triton = import_module("triton")

    @triton.autotune(configs=[triton.Config({"BLOCK": 128})], key=["n"])
    @triton.jit
    def add(out, x, n, BLOCK, FLAG):  # noqa: N803 - as kernels are written
        pass

    yield add
    for name in [n for n in sys.modules if n.partition(".")[0] == "triton" and n not in before]:
        del sys.modules[name]


def test_a_function_below_decorators_has_its_name_and_takes_all_its_arguments(add):
    given = {"BLOCK": [64, 128], "FLAG": [False], "num_warps": [2, 4]}
    assert checked(add, parameters=given, grid="ceil_div(n, BLOCK)", block=None).name == "add"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"BLOCK": [64, 128]}, "nothing gives its argument FLAG: arguments= has 3"),
        (
            {"BLOCK": [64], "FLAG": [True], "num_warp": [2, 4]},
            "num_warp is neither in its arguments or Triton's options nor in a rule of its launch: "
            "did you mean num_warps?",
        ),
    ],
)
def test_what_does_not_fit_a_function_of_triton_is_told(add, parameters, said):
    with pytest.raises(UsageError, match=r"^kernel add") as refused:
        checked(add, parameters=parameters, grid="ceil_div(n, BLOCK)", block=None)
    assert said in str(refused.value)
