"""Product of two float32 matrices with tiles in shared memory and registers."""

from gpuadvisor import Kernel, array, output

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(block_x *block_y)
matmul(const float *a, const float *b, float *c, int rows, int columns, int inner)
{
    const int tile_m = block_y * work_y, tile_n = block_x * work_x;
    __shared__ float as[tile_k][tile_m + padding];
    __shared__ float bs[tile_k][tile_n];
    const int thread = threadIdx.y * block_x + threadIdx.x, threads = block_x * block_y;
    const int m0 = blockIdx.y * tile_m, n0 = blockIdx.x * tile_n;
    float sums[work_y][work_x] = {};
    for (int k0 = 0; k0 < inner; k0 += tile_k) {
        for (int t = thread; t < tile_m * tile_k; t += threads)
            as[t % tile_k][t / tile_k] = a[(size_t)(m0 + t / tile_k) * inner + k0 + t % tile_k];
        for (int t = thread; t < tile_n * tile_k; t += threads)
            bs[t / tile_n][t % tile_n] = b[(size_t)(k0 + t / tile_n) * columns + n0 + t % tile_n];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < tile_k; ++k) {
            float left[work_y], right[work_x];
#pragma unroll
            for (int y = 0; y < work_y; ++y) left[y] = as[k][threadIdx.y + y * block_y];
#pragma unroll
            for (int x = 0; x < work_x; ++x) right[x] = bs[k][threadIdx.x + x * block_x];
#pragma unroll
            for (int y = 0; y < work_y; ++y)
#pragma unroll
                for (int x = 0; x < work_x; ++x) sums[y][x] += left[y] * right[x];
        }
        __syncthreads();
    }
    for (int y = 0; y < work_y; ++y)
        for (int x = 0; x < work_x; ++x)
            c[(size_t)(m0 + threadIdx.y + y * block_y) * columns + n0 + threadIdx.x + x * block_x] =
                sums[y][x];
}
"""


def product(a, b, c, rows, columns, inner):
    return a.double() @ b.double()


Kernel(
    SOURCE,
    parameters={
        "block_x": [8, 16, 32],
        "block_y": [4, 8, 16, 32],
        "work_x": [1, 2, 4, 8],
        "work_y": [1, 2, 4, 8],
        "tile_k": [8, 16],
        "padding": [0, 1],
    },
    default={"block_x": 16, "block_y": 16, "work_x": 1, "work_y": 1, "tile_k": 16, "padding": 0},
    restrictions=[
        "64 <= block_x * block_y <= 1024",
        "work_x * work_y <= 64",
        "n % (block_x * work_x) == 0 and n % (block_y * work_y) == 0 and n % tile_k == 0",
        "4 * tile_k * (block_x * work_x + block_y * work_y + padding) <= 48 * 1024",
    ],
    problems=[{"n": 2048}],
    grid=["n // (block_x * work_x)", "n // (block_y * work_y)"],
    block=["block_x", "block_y"],
    arguments=[array("n", "n"), array("n", "n"), output("n", "n"), "n", "n", "n"],
    reference=product,
    bytes="3 * 4 * n * n",
    flops="2 * n ** 3",
)
