"""Softmax between batched products, and what only looks like it."""

from tests.rules.queued import K, queued

HALF = '["c10::Half", "c10::Half"]'
GEMM = "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize128x128x64_warpgroupsize1x1x1"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::Half>(c10::Half*)"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>,"
    " std::array<char*, 3ul> >(int)"
)

SCORES = K(GEMM, 300, "aten::bmm", "[[128, 2048, 64], [128, 64, 2048]]", HALF)
VALUES = K(GEMM, 300, "aten::bmm", "[[128, 2048, 2048], [128, 2048, 64]]", HALF)
NORMALISED = K(SOFTMAX, 700, "aten::_softmax", "[[128, 2048, 2048], [], []]", HALF)
SCALED = K(ADD, 700, "aten::add", "[[128, 2048, 2048], [128, 2048, 2048], []]", HALF)
COPIED = K(ADD, 700, "aten::copy_", "[[16, 2048, 8, 64], [16, 2048, 8, 64], []]", HALF)
CHOSEN = K(
    "void at::native::sbtopk::gatherTopK<c10::Half, unsigned int, 2, false>()", 7, "aten::topk"
)
LINEAR = K(GEMM, 300, "aten::addmm", "[[64], [2048, 64], [64, 64], [], []]", HALF)

FIRES = {
    "scores, softmax, values": lambda: queued([SCORES, NORMALISED, VALUES] * 4),
    "with a scale and a mask": lambda: queued([SCORES, SCALED, SCALED, NORMALISED, VALUES] * 4),
    "backward": lambda: queued(
        [SCORES, K(SOFTMAX, 700, "aten::_softmax_backward_data"), VALUES] * 4
    ),
    "without shapes": lambda: queued(
        [K(GEMM, 300, "aten::bmm"), K(SOFTMAX, 700, "aten::_softmax"), K(GEMM, 300, "aten::bmm")]
        * 4
    ),
    "once": lambda: queued([SCORES, NORMALISED, VALUES]),
}
SILENT = {
    "a loss": lambda: queued([SCORES, K(SOFTMAX, 700, "aten::_log_softmax"), VALUES] * 4),
    "a classifier": lambda: queued([LINEAR, NORMALISED, LINEAR] * 4),
    "a router of experts": lambda: queued([VALUES, NORMALISED, CHOSEN, VALUES] * 4),
    "a router after its product": lambda: queued([VALUES, LINEAR, NORMALISED, VALUES] * 4),
    "far apart": lambda: queued([SCORES, *[SCALED] * 9, NORMALISED, *[SCALED] * 9, VALUES] * 4),
    "too little": lambda: queued(
        [SCORES, NORMALISED, VALUES, K("my_kernel", 70_000, "mine::op")] * 4
    ),
    "fused": lambda: queued(
        [LINEAR, K("void pytorch_flash::flash_fwd_kernel<64>(int)", 300, "aten::_flash_attention")]
        * 4
    ),
}
