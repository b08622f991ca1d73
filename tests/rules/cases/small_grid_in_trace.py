"""Long kernels with few blocks."""

from gpuadvisor.domain.profile import Direction, Memory
from tests.profiles import Made
from tests.rules.building import timeline
from tests.rules.queued import K, grid, queued

GEMM = "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize128x128x64_warpgroupsize1x1x1"
NORMALISE = "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float)"


def beside_copies():
    """Copies, or pages that move back to the host, fill no multiprocessor."""
    made = Made()
    back = {"source": Memory.DEVICE, "destination": Memory.MANAGED}
    for number in range(20):
        call = (10 + 20 * number, 4)
        made.launched("reduce_rows", call, (100 + 100 * number, 90), **grid(16))
        made.copy((100 + 100 * number, 90), stream=9, direction=Direction.MIGRATION, **back)
    return timeline(made)


def beside_others(blocks):
    """Four streams at a time."""
    made = Made()
    for number in range(20):
        for stream in range(4):
            runs = (100 + 100 * number, 90)
            call = (10 + 20 * number + 5 * stream, 4)
            made.launched("reduce_rows", call, runs, stream=stream, **grid(blocks))
    return timeline(made)


def faulting(first, every, lasts=600):
    """Twenty kernels to each of which pages move, so long after its begin and then so often."""
    made = Made()
    pages = {"source": Memory.MANAGED, "destination": Memory.DEVICE, "bytes": 4096}
    for number in range(20):
        at = 1000.0 * number
        made.launched("reduce_rows", (at, 4), (at + 10, lasts), **grid(16))
        for page in range(first, lasts, every):
            made.copy((at + 10 + page, 5), stream=9, direction=Direction.MIGRATION, **pages)
    return timeline(made)


FIRES = {
    "pages move seldom in it": lambda: faulting(5, 300),
    "beside copies": beside_copies,
    "four at a time, which have half of it": lambda: beside_others(16),
    "an eighth of the GPU": lambda: queued([K("reduce_rows", 200, more=grid(16))] * 9),
    "one launch of two, hidden in the mean of both": lambda: queued(
        [K("reduce_rows", 2000, more=grid(1)), K("reduce_rows", 200, more=grid(900_000))] * 9
    ),
    "one block too few": lambda: queued([K("reduce_rows", 200, more=grid(131))] * 9),
    "a library's with a quarter": lambda: queued([K(GEMM, 200, more=grid(33))] * 9),
}
SILENT = {
    "pages move in it all the time": lambda: faulting(5, 20),
    "it begins when its page has moved": lambda: faulting(550, 100),
    "as many as multiprocessors": lambda: queued([K("reduce_rows", 200, more=grid(132))] * 9),
    "a library's that keeps one on nearly each": lambda: queued([K(GEMM, 200, more=grid(120))] * 9),
    "too short for more": lambda: queued([K("reduce_rows", 10, more=grid(16))] * 9),
    "a small part of the time": lambda: queued(
        [K("reduce_rows", 50, more=grid(16)), K("other", 600, more=grid(999))] * 9
    ),
    "four at a time, which fill it": lambda: beside_others(33),
    "normalisation between conversions": lambda: queued(
        [K(NORMALISE, 200, more=grid(64)), K("void nchwToNhwcKernel<float>(int)", 50)] * 9
    ),
    "communication": lambda: queued([K("ncclDevKernel_AllReduce_Sum", 200, more=grid(16))] * 9),
}
