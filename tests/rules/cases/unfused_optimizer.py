"""Optimizers that update one parameter after the other, and those that do not."""

from tests.rules.queued import K, queued

STEP = "Optimizer.step#Adam.step"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float> >(int)"
DIVIDE = "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel>(int)"
FUSED = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float> >(int)"
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"


def training(update, gemm=200.0, each=2.0, count=60, kernel=MUL):
    """Four steps of 10 products and an update of `count` kernels."""
    kernels, ranges = [], []
    for _ in range(4):
        kernels += [K(GEMM, gemm)] * 10
        begin = len(kernels)
        kernels += [K(kernel, each), K(DIVIDE, each)] * (count // 2) if update else []
        ranges.append((STEP, begin, len(kernels)))
    return queued(kernels, ranges=ranges)


FIRES = {
    "the host is the limit": lambda: training(True, gemm=5),
    "the GPU is the limit": lambda: training(True, gemm=50, each=50),
    "just enough kernels": lambda: training(True, count=30, each=50),
}
SILENT = {
    "few kernels": lambda: training(True, count=28, each=50),
    "a fused update": lambda: training(True, kernel=FUSED),
    "no update": lambda: training(False),
    "too short to matter": lambda: training(True, gemm=20_000),
    "not marked": lambda: queued([K(MUL, 2)] * 100, ranges=[("forward", 0, 100)]),
}
