"""Occupancy by registers, shared memory and block size of a trace."""

from tests.rules.queued import MI300, K, grid, queued

GEMM = "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize128x128x64_warpgroupsize1x1x1"

FIRES = {
    "registers": lambda: queued([K("stencil", 200, more=grid(5000, 256, 168))] * 9),
    "shared memory": lambda: queued([K("stencil", 200, more=grid(5000, 128, 32, 60_000))] * 9),
    "some launches of several": lambda: queued(
        [K("stencil", 200, more=grid(5000, 256, 168)), K("stencil", 400, more=grid(5000, 64))] * 9
    ),
    "small blocks": lambda: queued([K("stencil", 200, more=grid(5000, 32, 90))] * 9),
}
SILENT = {
    "enough": lambda: queued([K("stencil", 200, more=grid(5000, 256, 40))] * 9),
    "a library's": lambda: queued([K(GEMM, 200, more=grid(5000, 384, 168, 200_000))] * 9),
    "too few blocks to matter": lambda: queued([K("stencil", 200, more=grid(131, 256, 168))] * 9),
    "a small part of the time": lambda: queued(
        [K("stencil", 9, more=grid(5000, 256, 168)), K("other", 91)] * 9
    ),
    "an AMD GPU": lambda: queued([K("stencil", 200, more=grid(5000, 256, 168))] * 9, MI300),
}
