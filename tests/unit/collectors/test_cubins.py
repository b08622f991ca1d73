"""What is read from a compiled kernel, and from what its compiler says."""

import io
import re

import pytest

from gpuadvisor.collectors.kernels.child.backends import CannotBuild, Target, cubin, prepare
from gpuadvisor.collectors.kernels.child.backends.cuda_cpp import compiler_errors
from gpuadvisor.domain.kernels import Kernel, output

SOURCE = """
extern "C" __global__ void sums(float *y, int n) {
    __shared__ float s[block + 3];
    float a[24];
    for (int i = 0; i < 24; i++) a[i] = y[i * threadIdx.x];
    s[threadIdx.x] = a[n % 24];
    __syncthreads();
    y[0] = s[5] * a[(n + 1) % 24];
}
template <int N> __global__ void scaled(float *y) { y[threadIdx.x] *= N; }
"""
LOG = """6: NVRTC_ERROR_COMPILATION, compilation log:

add(2): error: "this" may only be used inside a nonstatic member function
      this is no C
      ^

add(3): error: identifier "undefined_thing" is undefined
      y[0] = undefined_thing;
             ^

2 errors detected in the compilation of "add".
"""


def kernel(source=SOURCE, **changes):
    given = {
        "name": "sums",
        "parameters": {"block": [64, 128]},
        "grid": 1,
        "block": "block",
        "arguments": [output(8192), 7],
    }
    return Kernel(source, **{**given, **changes})


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_what_a_kernel_takes_is_what_the_assembler_says(architecture):
    core = pytest.importorskip("cuda.core", reason="cuda-core and NVRTC are not installed")
    log = io.StringIO()
    options = core.ProgramOptions(std="c++17", arch=architecture, ptxas_options=["-v"])
    names = ("sums", "scaled<3>")
    made = core.Program(f"#define block 128\n{SOURCE}", "c++", options).compile(
        "cubin", name_expressions=names, logs=log
    )
    said = re.split("Compiling entry function", log.getvalue())[1:]
    for name in names:
        symbol = made.symbol_mapping[name].decode()
        (own,) = [each for each in said if f"'{symbol}'" in each]
        expected = [
            re.search(pattern, own)
            for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem", r"(\d+) bytes stack")
        ]
        numbers = [int(each[1]) if each else 0 for each in expected]
        found = cubin.resources(bytes(made.code), symbol)
        assert [found[key] for key in ("registers", "shared_bytes", "local_bytes")] == numbers


def test_other_files_and_kernels_say_nothing():
    assert cubin.resources(b"", "add") == {}
    assert cubin.resources(b"\x7fELF" + bytes(100), "add") == {}


def test_a_binary_is_left_for_whoever_launches(tmp_path):
    pytest.importorskip("cuda.core", reason="cuda-core and NVRTC are not installed")
    target = Target("90", folder=str(tmp_path))
    taken = prepare(kernel(shared_bytes="4 * block"), {"block": 64}, target)
    assert (taken["threads"], taken["shared_bytes"]) == (64, 4 * 67 + 4 * 64)
    (kept,) = tmp_path.iterdir()
    written = kept.stat().st_mtime_ns
    assert prepare(kernel(shared_bytes="4 * block"), {"block": 64}, target) == taken
    assert kept.stat().st_mtime_ns == written
    prepare(kernel(), {"block": 128}, target)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_compilers_errors_are_told_with_their_lines():
    assert compiler_errors(LOG) == (
        'add(2): error: "this" may only be used inside a nonstatic member function in `this is no '
        'C`; add(3): error: identifier "undefined_thing" is undefined in `y[0] = undefined_thing;`'
    )
    assert compiler_errors("nvrtc: something\nelse") == "nvrtc: something else"


def test_what_does_not_compile_is_refused_with_the_line_of_the_kernel():
    pytest.importorskip("cuda.core", reason="cuda-core and NVRTC are not installed")
    bad = kernel(SOURCE.replace("float a[24];", "flaot a[24];"))
    with pytest.raises(CannotBuild, match=r'sums\(4\): error: .*"flaot".* in `flaot a\[24\];`'):
        prepare(bad, {"block": 64}, Target("90"))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"block": ["block", 32]}, "a block of 2,048 threads is more than 1,024"),
        ({"block": [1, 1, "2 * block"]}, "at most 64 threads in z, not 128"),
        ({"shared_bytes": "block * 4096"}, "262,144 bytes of shared memory are more"),
    ],
)
def test_a_block_that_no_gpu_launches_is_not_compiled(changes, said):
    with pytest.raises(CannotBuild, match=said):
        prepare(kernel(**changes), {"block": 64}, Target("90"))
