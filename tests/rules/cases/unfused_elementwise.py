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

STATISTICS = "void at::native::batch_norm_collect_statistics_kernel<at::native::InvStd, c10::Half>"
NORMALIZE = "void at::native::batch_norm_transform_input_kernel<c10::Half, float, true, int>"
RELU = elementwise("clamp_min_scalar_kernel_impl", 2)
CONVOLUTION = "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc"
POOL = "void at::native::(anonymous namespace)::max_pool_forward_nhwc<c10::Half>"

FIRES = {
    "between convolutions under AMP": lambda: queued(
        [K(CONVOLUTION, 200), K(STATISTICS, 60), K(NORMALIZE, 100), K(RELU, 90), K(POOL, 80)] * 5
    ),
    "cuDNN's normalization and an activation": lambda: queued(
        [K(CONVOLUTION, 200), K("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", 100), K(RELU)] * 9
    ),
    "a long chain": lambda: queued([K(MUL)] * 12),
    "between products": lambda: queued([K(GEMM, 400), K(ADD), K(MUL), K(ADD)] * 5),
    "just enough": lambda: queued([K(GEMM, 897), *[K(ADD, 34.5)] * 3] * 5),
    "on an AMD GPU": lambda: queued([K(MUL)] * 12, MI300),
}
SILENT = {
    "normalization alone": lambda: queued([K(CONVOLUTION, 200), K(NORMALIZE, 100)] * 9),
    "pairs": lambda: queued([K(GEMM, 400), K(ADD), K(MUL)] * 9),
    "too little": lambda: queued([K(GEMM, 910), *[K(ADD, 30)] * 3] * 5),
    "filled tensors": lambda: queued([K(FILL)] * 12),
    "fused by a compiler": lambda: queued([K("triton_poi_fused_add_mul_0")] * 12),
}
