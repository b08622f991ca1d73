"""Long kernels in blocks that are no multiple of a warp."""

from tests.rules.queued import K, grid, queued

GEMM = "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize128x128x64_warpgroupsize1x1x1"
MANY = 1_000_000

FIRES = {
    "four threads": lambda: queued([K("insert", 200, more=grid(MANY, 4, 32))] * 9),
    "a warp and a half": lambda: queued([K("insert", 200, more=grid(MANY, 48, 32))] * 9),
    "some launches of several": lambda: queued(
        [K("insert", 200, more=grid(MANY, 16, 32)), K("insert", 200, more=grid(MANY, 256, 32))] * 9
    ),
}
SILENT = {
    "whole warps": lambda: queued([K("insert", 200, more=grid(MANY, 32, 32))] * 9),
    "nearly whole": lambda: queued([K("insert", 200, more=grid(MANY, 250, 32))] * 9),
    "too few threads to fill the GPU": lambda: queued(
        [K("insert", 200, more=grid(10_000, 4, 32))] * 9
    ),
    "a small part of the time": lambda: queued(
        [K("insert", 40, more=grid(MANY, 4, 32)), K("other", 900)] * 9
    ),
    "too short": lambda: queued([K("insert", 10, more=grid(MANY, 4, 32))] * 9),
    "a library's": lambda: queued([K(GEMM, 200, more=grid(MANY, 48, 32))] * 9),
}
