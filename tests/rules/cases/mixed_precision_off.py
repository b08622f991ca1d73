"""Products in TF32, which bfloat16 would do at twice the rate."""

from tests.rules.queued import V100, K, queued

TF32 = "sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_warpgroupsize1x1x1"
OLD = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>(Params)"
BF16 = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1"
OTHER = "void cub::DeviceScanKernel<cub::AgentScanPolicy<128, 15, int> >(int)"

ATTENTION = (
    "fmha_cutlassB_f32_aligned_64x64_k64_sm80(PyTorchMemEffAttention::AttentionBackwardKernel"
    "<cutlass::arch::Sm80, float, (bool)1, (bool)0>::Params)"
)
HALF_ATTENTION = ATTENTION.replace("_f32_", "_bf16_").replace("float", "cutlass::bfloat16_t")

FIRES = {
    "TF32 by name": lambda: queued([K(TF32, 400)] * 8),
    "older names": lambda: queued([K(OLD, 400)] * 8),
    "fused attention in float32 around few products": lambda: queued(
        [K(ATTENTION, 800), K(TF32, 60)] * 3
    ),
    "just enough": lambda: queued([K(TF32, 210), K(OTHER, 790)] * 3),
}
SILENT = {
    "fused attention in bfloat16": lambda: queued([K(HALF_ATTENTION, 800), K(TF32, 60)] * 3),
    "little fused attention": lambda: queued([K(ATTENTION, 150), K(OTHER, 850)] * 3),
    "too little": lambda: queued([K(TF32, 190), K(OTHER, 810)] * 3),
    "bfloat16 already": lambda: queued([K(BF16, 400)] * 8),
    "half precision on the same instruction": lambda: queued(
        [K("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", 400)] * 8
    ),
    "a GPU without bfloat16": lambda: queued([K(OLD, 400)] * 8, V100),
}
