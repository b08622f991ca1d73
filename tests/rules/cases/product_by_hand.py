"""Elementwise products that are summed up, of tensors that are spread over each other."""

from dataclasses import replace

from gpuadvisor.domain.profile import Range
from gpuadvisor.rules.facts.ceilings import theoretical
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made
from tests.rules.building import H100, timeline
from tests.rules.queued import K, queued

MUL = (
    "void at::native::elementwise_kernel<128, 4, at::native::BinaryFunctor<float, float,"
    " at::native::binary_internal::MulFunctor<float>>, std::array<char*, 3ul>>"
)
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::sum_functor>>"
SORT = "at::native::mbtopk::gatherTopK"
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT"
FLOATS = '["float", "float"]'
VECTORS = "[[100000, 512], [512]]"
OUTER = "[[2000, 1, 64], [1, 3000, 64]]"


def by_hand(shapes=VECTORS, reads="", *, us=(200, 100), mul="aten::mul", total="aten::sum"):
    """Return a product and its sum; the sum reads a tensor of that shape."""
    reads = reads or ("[[2000, 3000, 64], []]" if shapes == OUTER else "[[100000, 512], []]")
    return [K(MUL, us[0], mul, shapes, FLOATS), K(SUM, us[1], total, reads, '["float", ""]')]


def search(queries=8, between=60, device=H100, **how):
    """Return searches of one query after the other, with what is done with each result."""
    step = [each for _ in range(queries) for each in (*by_hand(**how), K(SORT, between))]
    evidence = queued([K(GEMM, 400), *step, K(GEMM, 400)] * 3, device)
    ceilings = theoretical(device)
    facts = Facts(evidence.facts.profile, ceilings.values())
    return replace(evidence, facts=facts, ceilings=ceilings)


def backward():
    """The same within an operator of the backward pass."""
    made = Made()
    for number in range(40):
        at = 400.0 * number
        made.operator("autograd::engine::evaluate_function: MulBackward0", (at, 90))
        for place, each in enumerate(by_hand()):
            begin = at + 10 + 40 * place
            made.operator(each.operator, (begin, 20), shapes=each.shapes, types=each.types)
            made.launched(each.name, (begin + 5, 5), (at + 20 + 200 * place, each.us))
    made.range("ProfilerStep#0", (0, 16_000), Range.STEP)
    return timeline(made)


FIRES = {
    "one vector after the other": search,
    "each of two tensors has what the other lacks": lambda: queued(
        [*by_hand(OUTER), K(GEMM, 400)] * 3
    ),
    "the vector first": lambda: search(shapes="[[512], [100000, 512]]"),
}
SILENT = {
    "few vectors": lambda: search(queries=2),
    "more work between two": lambda: search(between=400),
    "tensors alike, as for similarities": lambda: search(shapes="[[100000, 512], [100000, 512]]"),
    "a number": lambda: search(shapes="[[100000, 512], []]"),
    "another tensor is summed": lambda: search(reads="[[512, 512], []]"),
    "a sum of elements, no product": lambda: search(mul="aten::add"),
    "the largest one": lambda: search(total="aten::amax"),
    "little of the time": lambda: search(us=(0.8, 0.4), between=1),
    "a backward pass": backward,
}
