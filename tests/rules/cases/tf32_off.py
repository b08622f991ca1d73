"""Products of 32-bit floats, with TF32 off, on, and on a GPU without."""

from tests.rules.queued import A100, MI300, V100, K, queued

SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64x8_stage3_warpsize2x2x1_ffma_aligna4"
TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_warpgroupsize1x1x1"
CONVOLUTION = "implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"
FLOAT = '["float", "float"]'
LARGE = "[[4096, 4096], [4096, 4096]]"


def products(name, us=2700, count=8, **other):
    return [K(name, us, "aten::mm", LARGE, FLOAT, **other)] * count


FIRES = {
    "large products on an H100": lambda: queued(products(SGEMM)),
    "on an A100, without shapes": lambda: queued([K("ampere_sgemm_128x128_tn", 500)] * 20, A100),
    "convolutions, though products use TF32": lambda: queued(
        [K(CONVOLUTION, 900, "aten::cudnn_convolution"), *products(TF32, 400, 1)] * 5
    ),
    "products, though convolutions use TF32": lambda: queued(
        [K(TF32, 900, "aten::cudnn_convolution"), *products(SGEMM, 2700, 1)] * 5
    ),
    "just enough": lambda: queued([K("ampere_sgemm_128x128_tn", 51), K(ADD, 949)] * 4),
}
SILENT = {
    "too little": lambda: queued([K("ampere_sgemm_128x128_tn", 19), K(ADD, 981)] * 4),
    "TF32 is on": lambda: queued(products(TF32, 420)),
    "TF32 is on, and a size for which the library does without": lambda: queued(
        [*products(TF32, 420, 4), K("ampere_sgemm_32x128_nn", 300, "aten::mm")]
    ),
    "a V100 has none": lambda: queued(products("volta_sgemm_128x64_nn"), V100),
    "an AMD GPU": lambda: queued(products(SGEMM), MI300),
    "bfloat16": lambda: queued(products("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", 200)),
    "doubles": lambda: queued(products("ampere_dgemm_128x64_nn"), A100),
    "vectors": lambda: queued([K("void gemv2T_kernel_val<int, int, float, float, float>")] * 9),
    "nothing is known of the GPU": lambda: queued(products(SGEMM), None),
}
