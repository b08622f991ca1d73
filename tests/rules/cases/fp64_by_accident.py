"""Doubles, where they are slow and where they are not."""

from tests.rules.building import H100, T4
from tests.rules.queued import A10G, A100, V100, K, queued

DGEMM = "ampere_dgemm_128x64_nn"
ADD = "void at::native::vectorized_elementwise_kernel<2, at::native::CUDAFunctor_add<double>, int>"
EXP = "void at::native::vectorized_elementwise_kernel<2, at::native::exp_kernel_cuda>(int)"
FLOATS = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"

GEMV = (
    "void gemv2T_kernel_val<int, int, double, double, double, double, 128, 16, 4, 4, false, false,"
    " cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<double>, double>>(T13, T6, T6)"
)

FIRES = {
    "products of PyTorch on an H100": lambda: queued([K(DGEMM, 5000)] * 3, H100),
    "sums on an A100": lambda: queued([K(ADD, 300)] * 9, A100),
    "products with one vector": lambda: queued([K(GEMV, 500)] * 9, A10G),
    "products on an A10G": lambda: queued([K(DGEMM, 5000)] * 3, A10G),
    "sums on a T4": lambda: queued([K(ADD, 300)] * 9, T4),
    "arrays of doubles on an A10G, in no program of PyTorch": lambda: queued(
        [K("walk(int *, double *, const double *, double)", 300)] * 9, A10G, source="nsys"
    ),
    "by the operator's types": lambda: queued(
        [K(EXP, 300, "aten::exp", "[[1000]]", '["double"]')] * 9, A10G
    ),
}
SILENT = {
    "an H100 is fast at them, and this is no program of PyTorch": lambda: queued(
        [K(DGEMM, 5000)] * 3, H100, source="nsys"
    ),
    "an A100 too": lambda: queued([K("solve<double>", 300)] * 3, A100, source="nsys"),
    "a V100 too": lambda: queued([K(DGEMM, 300)] * 3, V100, source="nsys"),
    "a scalar now and then": lambda: queued([K(ADD, 2), K(FLOATS, 300)] * 9, A10G),
    "arrays of doubles where they are fast": lambda: queued(
        [K("walk(int *, double *, double)", 300)] * 9, A100, source="nsys"
    ),
    "arrays of floats beside, and a double that is no array": lambda: queued(
        [K("sum(float *, double *, int)", 300), K("fill(int *, double)", 300)] * 9,
        A10G,
        source="nsys",
    ),
    "floats": lambda: queued([K(FLOATS, 300)] * 9, A10G),
}
