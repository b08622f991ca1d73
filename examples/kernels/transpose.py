"""Transpose of a matrix through shared memory; the default is the tile of every textbook."""

from gpuadvisor import Kernel, array, output

SOURCE = r"""
#if width == 1
typedef float Several;
#elif width == 2
typedef float2 Several;
#else
typedef float4 Several;
#endif

// Where a row of the tile has its element i: rows begin in other banks each, as with padding.
__device__ __forceinline__ int placed(int i, int j) { return swizzled ? i ^ j % 32 % tile_x : i; }

extern "C" __global__ void __launch_bounds__(block_x *block_y)
transpose(const float *__restrict__ in, float *__restrict__ out, int rows, int columns)
{
    __shared__ float tile[tile_y][tile_x + padding];
    const int x = blockIdx.x * tile_x, y = blockIdx.y * tile_y;
#pragma unroll
    for (int j = threadIdx.y; j < tile_y; j += block_y)
#pragma unroll
        for (int i = threadIdx.x * width; i < tile_x; i += block_x * width)
            if (y + j < rows && x + i < columns) {
                alignas(Several) float some[width];
                *(Several *)some = *(const Several *)(in + (size_t)(y + j) * columns + x + i);
                for (int u = 0; u < width; ++u) tile[j][placed(i + u, j)] = some[u];
            }
    __syncthreads();
    // The block's threads are laid out anew, so that writes are as wide as reads.
    const int across = tile_y / width;
#pragma unroll
    for (int k = threadIdx.y * block_x + threadIdx.x; k < tile_x * across; k += block_x * block_y) {
        int j = k % across * width, i = k / across;
        if (y + j < rows && x + i < columns) {
            alignas(Several) float some[width];
            for (int u = 0; u < width; ++u) some[u] = tile[j + u][placed(i, j + u)];
            *(Several *)(out + (size_t)(x + i) * rows + y + j) = *(Several *)some;
        }
    }
}
"""

Kernel(
    SOURCE,
    parameters={
        "block_x": [8, 16, 32],
        "block_y": [2, 4, 8, 16, 32],
        "tile_x": [16, 32, 64, 128],
        "tile_y": [16, 32, 64, 128],
        "width": [1, 2, 4],
        "padding": [0, 1],
        "swizzled": [0, 1],
    },
    default={
        "block_x": 32, "block_y": 8, "tile_x": 32, "tile_y": 32, "width": 1, "padding": 1,
        "swizzled": 0,
    },
    restrictions=[
        "64 <= block_x * block_y <= 512",
        "block_x * width <= tile_x and block_y <= tile_y",
        "rows % width == 0 and columns % width == 0",
        # As many accesses as a thread has under way at once, and as many as pay for its start.
        "block_x * block_y * width <= tile_x * tile_y <= 32 * block_x * block_y * width",
        "padding + swizzled <= 1",
        "(tile_x + padding) * tile_y * 4 <= 48 * 1024",
    ],
    problems=[{"rows": 8192, "columns": 8192}, {"rows": 1000, "columns": 30000}],
    grid=["ceil_div(columns, tile_x)", "ceil_div(rows, tile_y)"],
    block=["block_x", "block_y"],
    arguments=[array("rows", "columns"), output("columns", "rows"), "rows", "columns"],
    reference=lambda matrix, out, rows, columns: matrix.T.contiguous(),
    tolerance=0,
    bytes="2 * 4 * rows * columns",
)  # fmt: skip
