"""Product of two float32 matrices with tiles in shared memory and registers; the default is that of
every textbook, one element a thread."""

from gpuadvisor import Kernel, array, output

SOURCE = r"""
#if width == 1
typedef float Several;
#else
typedef float4 Several;
#endif

__device__ __forceinline__ void copy(float *to, const float *from)
{
    *(Several *)to = *(const Several *)from;
}

extern "C" __global__ void __launch_bounds__(block_x *block_y, resident)
matmul(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int rows,
       int columns, int inner)
{
    const int tile_m = block_y * work_y, tile_n = block_x * work_x;
    const int step = block_x * block_y * width;
    alignas(16) __shared__ float as[1 + ahead][tile_k][tile_m + padding];
    alignas(16) __shared__ float bs[1 + ahead][tile_k][tile_n];
    const int m0 = blockIdx.y * tile_m, n0 = blockIdx.x * tile_n;
    const int first = (threadIdx.y * block_x + threadIdx.x) * width;
    // What this thread has read of the next tiles, and its part of the product.
    alignas(16) float next_a[tile_m * tile_k / step][width];
    alignas(16) float next_b[tile_n * tile_k / step][width];
    alignas(16) float sums[work_y][work_x] = {};
    auto read = [&](int k0) {
#pragma unroll
        for (int p = 0, t = first; p < tile_m * tile_k / step; ++p, t += step)
            copy(next_a[p], a + (size_t)(m0 + t / tile_k) * inner + k0 + t % tile_k);
#pragma unroll
        for (int p = 0, t = first; p < tile_n * tile_k / step; ++p, t += step)
            copy(next_b[p], b + (size_t)(k0 + t / tile_n) * columns + n0 + t % tile_n);
    };
    read(0);
    for (int k0 = 0, at = 0; k0 < inner; k0 += tile_k, at ^= ahead) {
#pragma unroll
        for (int p = 0, t = first; p < tile_m * tile_k / step; ++p, t += step)
            for (int u = 0; u < width; ++u) as[at][t % tile_k + u][t / tile_k] = next_a[p][u];
#pragma unroll
        for (int p = 0, t = first; p < tile_n * tile_k / step; ++p, t += step)
            copy(&bs[at][t / tile_n][t % tile_n], next_b[p]);
        __syncthreads();
        if (ahead && k0 + tile_k < inner) read(k0 + tile_k);  // while these are multiplied
#pragma unroll
        for (int k = 0; k < tile_k; ++k) {
            alignas(16) float left[work_y], right[work_x];
#pragma unroll
            for (int y = 0; y < work_y; y += width)
                copy(left + y, &as[at][k][y * block_y + threadIdx.y * width]);
#pragma unroll
            for (int x = 0; x < work_x; x += width)
                copy(right + x, &bs[at][k][x * block_x + threadIdx.x * width]);
#pragma unroll
            for (int y = 0; y < work_y; ++y)
#pragma unroll
                for (int x = 0; x < work_x; ++x) sums[y][x] += left[y] * right[x];
        }
        if (!ahead) {
            __syncthreads();
            if (k0 + tile_k < inner) read(k0 + tile_k);
        }
    }
#pragma unroll
    for (int y = 0; y < work_y; ++y)
#pragma unroll
        for (int x = 0; x < work_x; x += width) {
            int row = y / width * width * block_y + threadIdx.y * width + y % width;
            copy(c + (size_t)(m0 + row) * columns + n0 + x * block_x + threadIdx.x * width,
                 sums[y] + x);
        }
}
"""


def product(a, b, c, rows, columns, inner):
    return a.double() @ b.double()


Kernel(
    SOURCE,
    parameters={
        "block_x": [8, 16, 32],
        "block_y": [8, 16, 32],
        "work_x": [1, 2, 4, 8],
        "work_y": [1, 2, 4, 8],
        "tile_k": [8, 16],
        "width": [1, 4],
        "padding": [0, 1, 4],
        "ahead": [0, 1],
        "resident": [1, 2],
    },
    default={
        "block_x": 16, "block_y": 16, "work_x": 1, "work_y": 1, "tile_k": 16, "width": 1,
        "padding": 0, "ahead": 0, "resident": 1,
    },
    restrictions=[
        "64 <= block_x * block_y <= 512",
        "work_x % width == 0 and work_y % width == 0 and padding % width == 0",
        "padding <= width",
        "resident == 1 or work_x * work_y >= 32",  # fewer fit anyhow
        # All threads read as much of each tile.
        "block_x * work_x * tile_k % (block_x * block_y * width) == 0",
        "block_y * work_y * tile_k % (block_x * block_y * width) == 0",
        "n % (block_x * work_x) == 0 and n % (block_y * work_y) == 0 and n % tile_k == 0",
        "4 * (1 + ahead) * tile_k * (block_x * work_x + block_y * work_y + padding) <= 48 * 1024",
    ],
    problems=[{"n": 2048}],
    grid=["n // (block_x * work_x)", "n // (block_y * work_y)"],
    block=["block_x", "block_y"],
    arguments=[array("n", "n"), array("n", "n"), output("n", "n"), "n", "n", "n"],
    reference=product,
    bytes="3 * 4 * n * n",
    flops="2 * n ** 3",
)  # fmt: skip
