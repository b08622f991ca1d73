"""Transpose of a matrix through shared memory; the default is the tile of every textbook."""

from gpuadvisor import Kernel, array, output

SOURCE = r"""
extern "C" __global__ void transpose(const float *in, float *out, int rows, int columns)
{
    __shared__ float tile[tile_y][tile_x + padding];
    int x = blockIdx.x * tile_x, y = blockIdx.y * tile_y;
    for (int j = threadIdx.y; j < tile_y; j += block_y)
        for (int i = threadIdx.x; i < tile_x; i += block_x)
            if (y + j < rows && x + i < columns)
                tile[j][i] = in[(size_t)(y + j) * columns + x + i];
    __syncthreads();
    // The block's threads are laid out anew, so that writes are as wide as reads.
    int thread = threadIdx.y * block_x + threadIdx.x;
    for (int k = thread; k < tile_x * tile_y; k += block_x * block_y) {
        int j = k % tile_y, i = k / tile_y;
        if (y + j < rows && x + i < columns)
            out[(size_t)(x + i) * rows + y + j] = tile[j][i];
    }
}
"""

Kernel(
    SOURCE,
    parameters={
        "block_x": [8, 16, 32, 64, 128],
        "block_y": [1, 2, 4, 8, 16, 32],
        "tile_x": [16, 32, 64, 128],
        "tile_y": [16, 32, 64, 128],
        "padding": [0, 1, 2],
    },
    default={"block_x": 32, "block_y": 8, "tile_x": 32, "tile_y": 32, "padding": 1},
    restrictions=[
        "64 <= block_x * block_y <= 1024",
        "block_x <= tile_x",
        "block_y <= tile_y",
        "(tile_x + padding) * tile_y * 4 <= 48 * 1024",
    ],
    problems=[{"rows": 8192, "columns": 8192}, {"rows": 1000, "columns": 30000}],
    grid=["ceil_div(columns, tile_x)", "ceil_div(rows, tile_y)"],
    block=["block_x", "block_y"],
    arguments=[array("rows", "columns"), output("columns", "rows"), "rows", "columns"],
    reference=lambda matrix, out, rows, columns: matrix.T.contiguous(),
    tolerance=0,
    bytes="2 * 4 * rows * columns",
)
