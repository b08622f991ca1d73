"""The GPU's memory is nearly used up."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure, Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, scope
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

LEAST_SHARE = 0.95
"""On 80 GB that leaves 4 GB, less than an activation or a batch of many models. [own]"""
GIB = 2**30

RULE = Rule(Category.MEMORY_CAPACITY, needs=(sampled("memory_used_bytes"),))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs whose memory was used to more than 95 % at some time."""
    for window in gpus_of_run(evidence):
        used, told = (
            window.series.get(name) for name in ("memory_used_bytes", "memory_total_bytes")
        )
        total = told.last if told else window.gpu.memory_total_bytes
        if used is None or not total or used.high <= LEAST_SHARE * total:
            continue
        yield RuleResult(
            f"{called(window.gpu)} has up to {used.high / total:.0%} of its memory in use"
            f" ({used.high / GIB:.1f} of {total / GIB:.1f} GiB)",
            (Figure("memory_used", round(100 * used.high / total, 1), "%", 100 * LEAST_SHARE),),
            "See who holds it (`gpuadvisor watch`): a program that runs out of memory ends, and"
            " PyTorch's allocator slows down before that as it gives memory back; a smaller batch"
            " or activation checkpointing needs less.",
            scope=scope(window.gpu),
            severity=Severity.NOTICE,
        )
