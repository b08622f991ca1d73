"""Elementwise kernels in a row, and interrupted."""

from tests.rules.queued import MI300, K, queued


def elementwise(functor, tensors):
    """Return a kernel's name."""
    arrays = f"std::array<char*, {tensors}ul>"
    return (
        f"void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<float>, {arrays}>"
    )


MUL = elementwise("AUnaryFunctor", 2)
ADD = elementwise("CUDAFunctor_add", 3)
FILL = elementwise("FillFunctor", 1)
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"

FIRES = {
    "a long chain": lambda: queued([K(MUL)] * 12),
    "between products": lambda: queued([K(GEMM, 400), K(ADD), K(MUL), K(ADD)] * 5),
    "just enough": lambda: queued([K(GEMM, 897), *[K(ADD, 34.5)] * 3] * 5),
    "on an AMD GPU": lambda: queued([K(MUL)] * 12, MI300),
}
SILENT = {
    "pairs": lambda: queued([K(GEMM, 400), K(ADD), K(MUL)] * 9),
    "too little": lambda: queued([K(GEMM, 910), *[K(ADD, 30)] * 3] * 5),
    "filled tensors": lambda: queued([K(FILL)] * 12),
    "fused by a compiler": lambda: queued([K("triton_poi_fused_add_mul_0")] * 12),
}
