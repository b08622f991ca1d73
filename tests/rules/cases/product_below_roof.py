"""Products that reach much and little of what a GPU can do, measured and by its data sheet."""

from dataclasses import replace

from gpuadvisor.rules.facts.ceilings import Peak, theoretical
from gpuadvisor.rules.facts.summary import Facts
from tests.rules.queued import A100, K, queued

HALF = '["c10::Half", "c10::Half"]'
LARGE = "[[4096, 4096], [4096, 4096]]"  # 0.44 ms at 312 TFLOP/s
MANY = "[[64, 512, 512], [64, 512, 512]]"
NARROW = "[[4096, 4096], [4096, 1]]"  # 21.6 us at 1.56 TB/s


def products(us, shapes=LARGE, measured=None, operator="aten::mm", others=0):
    kernels = [K("ampere_fp16_s16816gemm_fp16_128x128", us, operator, shapes, HALF)] * 10
    evidence = queued([*kernels, *[K("other", us)] * others], A100)
    ceilings = theoretical(A100)
    if measured is not None:
        peak = Peak(measured, "flop/s", "measured", "2026-01-01T00:00:00+00:00")
        ceilings = replace(ceilings, by_quantity={**ceilings.by_quantity, "fp16": peak})
    facts = Facts(evidence.facts.profile, ceilings.values())
    return replace(evidence, facts=facts, ceilings=ceilings)


FIRES = {
    "a fifth of the data sheet's": lambda: products(2200),
    "a third of what was measured": lambda: products(1500, measured=250e12),
    "a batch of small ones": lambda: products(400, MANY, operator="aten::bmm"),
}
SILENT = {
    "most of it": lambda: products(600),
    "most of what this GPU reaches": lambda: products(1200, measured=150e12),
    "bound by memory": lambda: products(30, NARROW),
    "too little of the time": lambda: products(2200, others=200),
    "shapes that do not multiply": lambda: products(2200, "[[4096, 4096], [7, 4096]]"),
    "no product": lambda: products(2200, operator="aten::add"),
}
