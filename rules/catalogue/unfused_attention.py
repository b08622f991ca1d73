"""Attention writes its matrix of scores to memory, instead of running in one fused kernel."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.device import rate
from gpuadvisor.rules.estimates import PLAYED, RowGain, launching, row_saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.roofline import product
from gpuadvisor.rules.requirements import DEVICE, LAUNCHES, OPERATORS
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent

BEST_OF_PEAK, WORST_OF_PEAK = 0.6, 0.25
"""Share of the peak for its type that fused attention reaches: 0.35 to 0.4 with FlashAttention 2 on
an H100, 0.6 to 0.75 with version 3, 0.6 with version 2 on an A100 (their papers); less for short
sequences. [own]"""
BEST_IN_FP32, WORST_IN_FP32 = 1.0, 0.35
"""Share of the rate outside of tensor cores, in 32 bits: the memory-efficient kernel does a product
in three of TF32. [own]"""
BETWEEN_LOW, BETWEEN_HIGH = 0.6, 1.0
PRODUCTS_HIGH = 0.5
"""Share of the time of what lies between the products, and of these, where shapes do not tell.
[own]"""
MOST_LAUNCHING = 0.75
"""Largest share of the host's time to launch the steps: one operator of four and more is left."""

RULE = Rule(Category.ATTENTION, needs=(LAUNCHES, OPERATORS, DEVICE), knobs=("compile",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find softmax between two batched products."""
    facts = evidence.known_facts
    found, work, total = facts.attention, facts.work, facts.kernel_uses.time_ns
    products = int(work.duration_ns[found.products].sum())
    between = int(work.duration_ns[found.between].sum())
    share = (products + between) / total if total else 0.0
    if share < NOTICEABLE:
        return
    fused = _fused_ns(evidence)
    if fused is None:
        low, high = BETWEEN_LOW * between, BETWEEN_HIGH * between + PRODUCTS_HIGH * products
    else:
        low, high = (max(products + between - each, 0.0) for each in reversed(fused))
    time, copied = products + between, int(work.duration_ns[found.copies].sum())
    rows = [*found.products.tolist(), *found.between.tolist()]
    dispatched = any("scaled_dot_product" in each.name for each in facts.operators.by_name)
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into attention in separate steps"
        f" ({found.times:,} times a product, softmax, a product)",
        (
            percent("unfused_attention", share, NOTICEABLE),
            Figure("softmax_between_products", found.times),
        ),
        "Let `scaled_dot_product_attention` take a fused kernel: no `attn_weights`, 16-bit inputs,"
        " and no mask that needs a gradient."
        if dispatched
        else "Call `torch.nn.functional.scaled_dot_product_attention`, which runs as one kernel.",
        row_saving(
            facts,
            [RowGain(rows, time, low / time, high / time), RowGain(found.copies, copied, 0.0, 1.0)],
            launching(facts, found.each),
            (0.0, MOST_LAUNCHING),
        ),
        "What the same operations take at 25 to 60 % of the peak rate, without the scores in"
        f" memory; {PLAYED}, and at most without the copies beside them, which put operands in one"
        " piece, and three quarters of the host's time for them.",
        knobs=("sdpa_backend", *RULE.knobs) if dispatched else RULE.knobs,
    )


def _fused_ns(evidence: Evidence) -> tuple[float, float] | None:
    """Return the least and the most that fused kernels take; None without shapes or a peak."""
    facts = evidence.known_facts
    rows = set(facts.attention.products.tolist())
    least = most = 0.0
    for each in facts.kernel_uses.of("gemm"):
        count = sum(row in rows for row in each.rows.tolist())
        if not count:
            continue
        multiplied = product(each.operator, each.shapes, each.types)
        half = each.precision in ("fp16", "bf16")
        peak = rate(evidence, each.precision or "") if half else rate(evidence, "fp32")
        if multiplied is None or peak is None:
            return None
        time = 1e9 * count * multiplied.flops / peak.value
        least += time / (BEST_OF_PEAK if half else BEST_IN_FP32)
        most += time / (WORST_OF_PEAK if half else WORST_IN_FP32)
    return (least, most) if most else None
