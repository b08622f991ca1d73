"""16-bit products of sizes that align, that do not, and where it does not matter."""

from tests.rules.cases.unfused_attention import NORMALISED
from tests.rules.queued import A100, K, queued

HALF = '["c10::Half", "c10::Half"]'
SLOW = (
    "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_nn_align1>(Params)"
)
FAST = (
    "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_nn_align8>(Params)"
)
ODD = "[[4095, 4095], [4095, 4095]]"
EVEN = "[[4096, 4096], [4096, 4096]]"


def products(name, shapes, types=HALF, us=900):
    return queued([K(name, us, "aten::mm", shapes, types)] * 6)


FIRES = {
    "on tensor cores, but unaligned": lambda: products(SLOW, ODD),
    "without tensor cores": lambda: products("cutlass_80_simt_hgemm_256x128_8x4_nn_align1", ODD),
    "one size alone": lambda: products(SLOW, "[[4096, 4096], [4096, 4095]]"),
    "channels that cuDNN pads": lambda: convolutions(PAD, ODD_CHANNELS),
    "channels that miss the tensor cores": lambda: convolutions(DIRECT, ODD_CHANNELS),
    "on an A100": lambda: queued([K(SLOW, 900, "aten::mm", ODD, HALF)] * 6, A100),
}
BOTH = '["c10::BFloat16", "c10::BFloat16"]'
PAD = "void nhwcAddPaddingKernel<__nv_bfloat16, __nv_bfloat16, float, true, 0>(int, int, int)"
CONVOLVE = "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize256x64x32"
DIRECT = (
    "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, false, true, __nv_bfloat16>(int)"
)
ODD_CHANNELS = "[[128, 253, 28, 28], [253, 253, 3, 3], []]"
STEM = "[[128, 3, 224, 224], [64, 3, 7, 7], []]"
DEPTHWISE = "[[128, 253, 28, 28], [253, 1, 3, 3], []]"


def convolutions(extra, shapes, us=300):
    return queued(
        [K(each, us, "aten::cudnn_convolution", shapes, BOTH) for each in (extra, CONVOLVE)] * 4
    )


QUERIES = K(SLOW, 300, "aten::bmm", "[[128, 2047, 64], [128, 64, 2047]]", HALF)
VALUES = K(SLOW, 300, "aten::bmm", "[[128, 2047, 2047], [128, 2047, 64]]", HALF)

SILENT = {
    "the channels of images, which are padded": lambda: convolutions(PAD, STEM),
    "a depthwise convolution": lambda: convolutions(DIRECT, DEPTHWISE),
    "channels that nobody pads": lambda: convolutions(CONVOLVE, ODD_CHANNELS),
    "the products of an attention that is named itself": lambda: queued(
        [QUERIES, NORMALISED, VALUES] * 4
    ),
    "rows that align nowhere, in an aligned kernel": lambda: products(
        FAST, "[[141, 4096], [4096, 4096]]"
    ),
    "aligned sizes": lambda: products(SLOW, EVEN),
    "float32": lambda: products("ampere_sgemm_128x128_nn", ODD, '["float", "float"]'),
    "a kernel whose name tells nothing": lambda: products("my_matmul", ODD),
}
