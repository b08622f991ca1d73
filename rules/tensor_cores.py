"""How much faster matrix products and convolutions get on tensor cores, or in a smaller type.

With the shapes known it is a roofline: the operations over what tensor cores reach, the bytes over
what the memory reaches, and the time that the smallest kernel takes. Without them it is the ratio
of the two peak rates, times how near to its peak either comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuadvisor.rules.device import per_clock, rate
from gpuadvisor.rules.evidence import Evidence

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.kernels import KernelUse

HALVES = ("fp16", "bf16")
"""Types of half the size of what TF32 and FP32 keep in memory."""
BEST_OF_PEAK, WORST_OF_PEAK = 0.8, 0.45
"""Share of the theoretical peak that large products on tensor cores reach: 0.66 in TF32 and 0.74 in
bfloat16 on an H100 (our workloads), 0.85 on an A100 (data sheets of cuBLAS)."""
BEST_OF_MEASURED, WORST_OF_MEASURED = 1.0, 0.6
"""Share that products reach of a ceiling that was itself measured with large products. [own]"""
BEST_KEPT, WORST_KEPT = 1.3, 0.55
"""How near to its peak a product comes on tensor cores, over how near it came without: 0.86 of
4096 x 4096 products on an H100. [own]"""
BEST_KEPT_CONVOLUTION, WORST_KEPT_CONVOLUTION = 0.8, 0.3
"""How near to its peak a convolution comes on tensor cores, over how near it came without; it may
have to change its layout first. [own]"""
BEST_OF_MEMORY = 0.92
"""Share of the memory's theoretical bandwidth that a stream reaches: copies on A100 and H100.
[own]"""
WORST_OF_MEMORY = 0.6
"""Share of the memory's theoretical bandwidth that products and updates reach at least which the
memory limits. [own]"""
MOST_USUAL, MOST_USUAL_PLAIN = 2.0, 3.0
"""How much faster an aligned product is, as far as one can count on it: with unaligned tensor-core
kernels, and without tensor cores. [own]"""
SHORTEST_NS, SHORT_NS = 3_000, 6_000
"""What the smallest product takes at best, and usually: of H100 and A100 traces. [own]"""


def gain_of(evidence: Evidence, use: KernelUse, target: str) -> tuple[float, float]:
    """Return which share of its time a kernel in FP32 saves in another type, least and most."""
    kept = (WORST_KEPT, BEST_KEPT)
    if convolves(use):
        kept = (WORST_KEPT_CONVOLUTION, BEST_KEPT_CONVOLUTION)
    worst, best = (max(_ratio_bound(evidence, target, each), 1.0) for each in kept)
    least_ns, usual_ns = use.mean_ns / best, use.mean_ns / worst
    roof = _roofline_ns(evidence, use, "fp32", target)
    if roof is not None:
        fast, slow = roof
        least_ns = max(least_ns, fast)
        usual_ns = max(usual_ns, slow, least_ns)
    least_ns, usual_ns = max(least_ns, SHORTEST_NS), max(usual_ns, SHORT_NS)
    low, high = (max(1.0 - each / use.mean_ns, 0.0) for each in (usual_ns, least_ns))
    return min(low, high), high


def gain_when_aligned(evidence: Evidence, use: KernelUse) -> tuple[float, float]:
    """Return which share of its time a 16-bit product saves with sizes that align."""
    precision = use.precision or "fp16"
    roof = _roofline_ns(evidence, use, precision, precision)
    if roof is None:
        return 0.0, 0.0
    usual = MOST_USUAL if use.kind.tensor_cores else MOST_USUAL_PLAIN
    fast, slow = max(roof[0], SHORTEST_NS), max(roof[1], use.mean_ns / usual, SHORT_NS)
    low, high = (max(1.0 - each / use.mean_ns, 0.0) for each in (max(fast, slow), fast))
    return low, high


WEIGHTS = {"aten::cudnn_convolution": 1, "aten::convolution_backward": 2}
"""Operators of convolutions to where among their inputs the weights are: output channels, input
channels of a group, and the sizes of the window."""
OF_IMAGES = 4
"""Most channels of an image: nobody can choose another number of these."""
ELEMENTS = 8
"""Elements of 16 bits that align: 16 bytes, which one load of the tensor cores' kernels takes
(NVIDIA's Deep Learning Performance Guide; PyTorch's tuning guide)."""


def odd_channels(operator: str, shapes: str) -> tuple[int, ...]:
    """Return the channels of a convolution that do not align, and that one could choose otherwise;
    none of a depthwise one, which has no product."""
    from gpuadvisor.rules.facts.roofline import listed

    place, told = WEIGHTS.get(operator), listed(shapes)
    weights = told[place] if place is not None and place < len(told) else None
    if not isinstance(weights, list) or len(weights) < 3 or weights[1] == 1:
        return ()
    output, inner = weights[:2]
    chosen = (output, *((inner,) if inner > OF_IMAGES else ()))
    return tuple(each for each in chosen if each % ELEMENTS)


def _ratio_bound(evidence: Evidence, target: str, kept: float) -> float:
    """Return how much faster than FP32's the target's peak is, times how much of it is reached."""
    rates = per_clock(evidence)
    if "fp32" not in rates or target not in rates:
        return 1.0
    return kept * rates[target] / rates["fp32"]


def convolves(use: KernelUse) -> bool:
    """Return whether a product is a convolution, or part of one."""
    return use.kind.family == "convolution" or "conv" in use.operator


def _roofline_ns(
    evidence: Evidence, use: KernelUse, source: str, target: str
) -> tuple[float, float] | None:
    """Return the least time and a usual time of a large product; None without shapes."""
    from gpuadvisor.rules.facts.roofline import product

    multiplied = product(use.operator, use.shapes, use.types)
    peak = rate(evidence, target)
    if multiplied is None or peak is None:
        return None
    measured = peak.measured
    best = peak.value * (BEST_OF_MEASURED if measured else BEST_OF_PEAK)
    worst = peak.value * (WORST_OF_MEASURED if measured else WORST_OF_PEAK)
    memory = rate(evidence, "dram")
    moved_ns = 0.0
    if memory is not None and multiplied.bytes is not None:
        kept = 0.5 if {source, target} & {"fp32", "tf32"} and target in HALVES else 1.0
        moved_ns = 1e9 * kept * multiplied.bytes / memory.value
    least = max(1e9 * multiplied.flops / best, moved_ns / BEST_OF_MEMORY)
    return least, max(1e9 * multiplied.flops / worst, moved_ns / WORST_OF_MEMORY)
