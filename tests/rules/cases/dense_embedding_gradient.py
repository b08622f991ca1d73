"""Tables with few rows looked up, and such whose gradient has to be dense."""

from tests.rules.queued import K, queued

FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>,"
    " std::array<char*, 1ul> >(int)"
)
ADD_UP = "void at::native::(anonymous namespace)::compute_grad_weight<float, long>(long const*)"
GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT"
UPDATE = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata>(int)"
)
STEP = "Optimizer.step#SGD.step"
TYPES = '["float", "long int", "Scalar", "Scalar", "Scalar"]'


def training(
    rows=4_000_000, looked_up=(16_384, 26), layer="[[64], [4096, 1664], [1664, 64]]", fill=220.0,
    product=2000.0, lookup="aten::embedding", backward="aten::embedding_dense_backward",
):  # fmt: skip
    """Four steps of a look-up, a layer, the table's gradient and its update."""
    indices = f"[{looked_up[0]}, {looked_up[1]}]"
    kernels, ranges = [], []
    for _ in range(4):
        kernels += [
            K(GATHER, 250, lookup, f"[[{rows}, 64], {indices}, [], [], []]", TYPES),
            K(GEMM, product, "aten::addmm", layer),
            K(FILL, fill, backward, _gradient(indices), TYPES),
            K(ADD_UP, 300, backward, _gradient(indices), TYPES),
        ]
        ranges.append((STEP, len(kernels), len(kernels) + 1))
        kernels.append(K(UPDATE, 800, "aten::_foreach_add_"))
    return queued(kernels, ranges=ranges)


def _gradient(indices):
    return f"[[{indices[1:-1]}, 64], {indices}, [], [], []]"


FIRES = {
    "a tenth of the rows": training,
    "bags": lambda: training(
        lookup="aten::_embedding_bag", backward="aten::_embedding_bag_dense_backward"
    ),
    "hardly any": lambda: training(looked_up=(256, 26)),
    "a step without update": lambda: training(fill=900.0),
}
SILENT = {
    "half of the rows": lambda: training(rows=850_000),
    "also the output layer": lambda: training(layer="[[8192, 64], [64, 4000000]]"),
    "also the output layer, as it stands": lambda: training(layer="[[8192, 64], [4000000, 64]]"),
    "hardly any time": lambda: training(product=200_000.0),
    "looked up by nothing that is known": lambda: training(lookup="mine::look_up"),
}
