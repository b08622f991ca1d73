"""The same kernel, `y += a * x`, in CuPy and in Numba."""

import cupy
from numba import cuda

from gpuadvisor import Kernel, array, output

RAW = cupy.RawKernel(
    r"""
extern "C" __global__ void scaled_sum(float *y, const float *x, float a, int count)
{
#pragma unroll
    for (int k = 0; k < per_thread; ++k) {
        int at = (blockIdx.x * per_thread + k) * block_x + threadIdx.x;
        if (at < count) y[at] += a * x[at];
    }
}
""",
    "scaled_sum",
)


def compiled(per_thread):
    """Return the kernel for a number of elements a thread, which Numba compiles in."""

    @cuda.jit
    def scaled_sum(y, x, a, count):
        first = cuda.blockIdx.x * cuda.blockDim.x * per_thread + cuda.threadIdx.x
        for k in range(per_thread):
            at = first + k * cuda.blockDim.x
            if at < count:
                y[at] += a * x[at]

    return scaled_sum


for source, name in ((RAW, "scaled_sum_cupy"), (compiled, "scaled_sum_numba")):
    Kernel(
        source,
        name=name,
        parameters={
            "block_x": [32, 64, 128, 192, 256, 384, 512, 768, 1024],
            "per_thread": [1, 2, 4, 8, 16],
        },
        default={"block_x": 256, "per_thread": 1},
        problems=[{"n": 1 << 26}],
        grid="ceil_div(n, block_x * per_thread)",
        block="block_x",
        arguments=[output("n", fill=1.0), array("n"), 2.0, "n"],
        reference=lambda y, x, a, count: y + a * x,
        bytes="3 * 4 * n",
    )
