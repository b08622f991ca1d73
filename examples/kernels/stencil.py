"""Seven-point stencil on a cube, such as a step of the heat equation; the default is one thread a
point in blocks of 8 x 8 x 8, as textbooks begin."""

from gpuadvisor import Kernel, array, output

SOURCE = r"""
__device__ __forceinline__ float value(const float *in, int x, int y, int z, int side)
{
    bool inside = min(min(x, y), z) >= 0 && max(max(x, y), z) < side;
    return inside ? in[((size_t)z * side + y) * side + x] : 0.0f;
}

extern "C" __global__ void __launch_bounds__(block_x *block_y *block_z)
stencil(const float *__restrict__ in, float *__restrict__ out, int side)
{
    const int x = blockIdx.x * block_x + threadIdx.x, y = blockIdx.y * block_y + threadIdx.y;
    const int first = (blockIdx.z * block_z + threadIdx.z) * planes;
#if staged
    __shared__ float tiles[block_z][block_y + 2][block_x + 2];
    float(*tile)[block_x + 2] = tiles[threadIdx.z];
    const int i = threadIdx.x + 1, j = threadIdx.y + 1;
#endif
    // Of a column of points, three are kept in registers while the thread walks along z.
    float below = value(in, x, y, first - 1, side), here = value(in, x, y, first, side);
#pragma unroll unrolled
    for (int z = first; z < first + planes; ++z) {
        float above = value(in, x, y, z + 1, side);
#if staged
        __syncthreads();
        tile[j][i] = here;
        if (i == 1) tile[j][0] = value(in, x - 1, y, z, side);
        if (i == block_x) tile[j][block_x + 1] = value(in, x + 1, y, z, side);
        if (j == 1) tile[0][i] = value(in, x, y - 1, z, side);
        if (j == block_y) tile[block_y + 1][i] = value(in, x, y + 1, z, side);
        __syncthreads();
        float around = tile[j][i - 1] + tile[j][i + 1] + tile[j - 1][i] + tile[j + 1][i];
#else
        float around = value(in, x - 1, y, z, side) + value(in, x + 1, y, z, side) +
                       value(in, x, y - 1, z, side) + value(in, x, y + 1, z, side);
#endif
        if (x < side && y < side && z < side)
            out[((size_t)z * side + y) * side + x] = 0.4f * here + 0.1f * (around + below + above);
        below = here;
        here = above;
    }
}
"""


def stepped(values, out, side):
    """One step, outside of the cube everything is zero."""
    result = 0.4 * values
    for axis in range(3):
        inner, shifted = [slice(None)] * 3, [slice(None)] * 3
        inner[axis], shifted[axis] = slice(1, None), slice(None, -1)
        result[tuple(inner)] += 0.1 * values[tuple(shifted)]
        result[tuple(shifted)] += 0.1 * values[tuple(inner)]
    return result


Kernel(
    SOURCE,
    parameters={
        "block_x": [8, 16, 32, 64, 128, 256],
        "block_y": [1, 2, 4, 8],
        "block_z": [1, 2, 4, 8],
        "planes": [1, 4, 16],
        "unrolled": [1, 4],
        "staged": [0, 1],
    },
    default={"block_x": 8, "block_y": 8, "block_z": 8, "planes": 1, "unrolled": 1, "staged": 0},
    restrictions=["64 <= block_x * block_y * block_z <= 1024", "unrolled <= planes"],
    problems=[{"n": 512}],
    grid=["ceil_div(n, block_x)", "ceil_div(n, block_y)", "ceil_div(n, block_z * planes)"],
    block=["block_x", "block_y", "block_z"],
    arguments=[array("n", "n", "n"), output("n", "n", "n"), "n"],
    reference=stepped,
    bytes="2 * 4 * n ** 3",
    flops="8 * n ** 3",
)
