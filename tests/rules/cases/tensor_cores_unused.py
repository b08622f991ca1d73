"""16-bit products without tensor cores, and 32-bit ones where tensor cores take only 16 bits."""

from tests.rules.building import T4
from tests.rules.queued import A100, V100, K, queued

HALF = '["c10::Half", "c10::Half"]'

FIRES = {
    "half precision by name": lambda: queued([K("volta_fp16_sgemm_fp16_128x64_nn", 300)] * 9, V100),
    "half precision by the operator": lambda: queued(
        [K("cutlass_80_simt_gemm_128x64", 300, "aten::mm", "[[64, 64], [64, 64]]", HALF)] * 9, A100
    ),
    "float32 on a V100": lambda: queued([K("volta_sgemm_128x64_nn", 300)] * 9, V100),
    "float32 convolutions on a T4": lambda: queued(
        [K("void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3>(int)", 300)] * 9, T4
    ),
}
SILENT = {
    "float32 on an A100 is TF32's matter": lambda: queued(
        [K("ampere_sgemm_128x128_tn", 300)] * 9, A100
    ),
    "on tensor cores": lambda: queued([K("volta_fp16_s884gemm_fp16_128x128_ldg8", 300)] * 9, V100),
    "a chip without tensor cores": lambda: queued(
        [K("turing_sgemm_128x64_nn", 300)] * 9, _without_tensor_cores()
    ),
    "depthwise convolutions": lambda: queued(
        [K("void at::native::conv_depthwise2d_forward_kernel<3, c10::Half, int>(int)", 300)] * 9
    ),
    "a kernel of an unknown type": lambda: queued([K("cutlass_80_simt_gemm_128x64", 300)] * 9),
}


def _without_tensor_cores():
    from dataclasses import replace

    return replace(T4, name="NVIDIA GeForce GTX 1660 Ti")
