"""Fused attention that reaches much and little of what a GPU can do."""

from dataclasses import replace

from gpuadvisor.rules.facts.ceilings import theoretical
from gpuadvisor.rules.facts.summary import Facts
from tests.rules.queued import A100, K, queued

FLASH = "aten::_scaled_dot_product_flash_attention"
HALF = '["c10::Half", "c10::Half", "c10::Half", "Scalar", "Scalar", "Scalar", ""]'
LONG = "[[4, 16, 4096, 64], [4, 16, 4096, 64], [4, 16, 4096, 64], [], [], [], []]"
"""275 GFLOP, 0.88 ms at 312 TFLOP/s."""
FULL = '["", "", "", "0.", "False", "False", ""]'
CAUSAL = '["", "", "", "0.", "True", "False", ""]'
ONE_QUERY = "[[64, 16, 1, 64], [64, 16, 4096, 64], [64, 16, 4096, 64], [], [], [], []]"
"""1.07 GB of keys and values, 0.69 ms at 1.56 TB/s."""


def attention(us, shapes=LONG, inputs=FULL, operator=FLASH, others=0):
    kernel = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>"
    kernels = [K(kernel, us, operator, shapes, HALF, inputs=inputs)] * 10
    evidence = queued([*kernels, *[K("other", us)] * others], A100)
    ceilings = theoretical(A100)
    facts = Facts(evidence.facts.profile, ceilings.values())
    return replace(evidence, facts=facts, ceilings=ceilings)


FIRES = {
    "a fifth of the rate": lambda: attention(4400),
    "a fifth of it, as half is masked": lambda: attention(2200, inputs=CAUSAL),
    "at most a fifth of it, masked or not": lambda: attention(4400, inputs=""),
}
SILENT = {
    "half of the rate": lambda: attention(1760),
    "a third of it, though half is masked": lambda: attention(1320, inputs=CAUSAL),
    "bound by memory": lambda: attention(1200, ONE_QUERY),
    "too little of the time": lambda: attention(4400, others=200),
    "shapes that do not fit": lambda: attention(4400, LONG.replace("64]", "32]", 1)),
    "no attention": lambda: attention(4400, operator="aten::add"),
}
