"""The grid has fewer blocks than the GPU has multiprocessors."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from gpuadvisor.domain.finding import Category, Figure, Scope, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_loads import UNCUT_S, Loads, Shares
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    counts,
    has_few_threads,
    most_of_each,
    of_few_threads,
    result_of,
    short,
    too_small,
)
from gpuadvisor.rules.rule import LEAST_REACHED, SERIOUS, Rule, RuleResult, percent

OF_SERIAL = (
    "Give the work more threads first: with as many in more blocks it is hardly faster, as each has"
    " too much to do one after the other."
)

ADVICE = (
    "Cut the work into more blocks: a larger batch, smaller blocks, or several blocks that"
    " share one result (split-K); or run it beside other kernels."
)

RULE = Rule(
    Category.SMALL_GRID,
    needs=(counts("blocks", "least_sm_count"),),
    hides=(
        "occupancy", "latency", "dram_bandwidth", "compute", "tensor_core", "tail", "coalescing",
    ),
)  # fmt: skip


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find kernels that leave some multiprocessors (SMs) without any block."""
    kernels = [kernel for kernel, _ in evidence.kernel_loads]
    yield from most_of_each(
        (kernel.name, _counted(kernel, loads, kernels))
        for kernel, loads in evidence.kernel_loads
        if loads is not None
    )
    yield from _uncounted(evidence)


def _counted(
    kernel: KernelMetrics, loads: Loads, kernels: Sequence[KernelMetrics]
) -> RuleResult | None:
    blocks, sm_count, seconds = kernel.blocks, kernel.sm_count, kernel.seconds
    if blocks is None or sm_count is None or blocks >= sm_count or too_small(kernel):
        return None
    idle = 1 - blocks / sm_count
    high = 1 - max(loads.busiest, min(kernel.waves or blocks / sm_count, 1.0))
    if high <= 0:
        return None
    few = has_few_threads(kernel)
    cut = 0.0 if few or not seconds else max(1 - UNCUT_S / seconds, 0.0)
    low, seen = min(LEAST_REACHED * idle * cut, high), _seen(kernel, kernels)
    first = of_few_threads(kernel.all_threads or 0) if few else OF_SERIAL if seen < low else ""
    return result_of(
        kernel,
        f"{short(kernel)} has {blocks:,} block{'' if blocks == 1 else 's'} for"
        f" {sm_count} multiprocessors: {idle:.0%} of the GPU has nothing to do",
        (Figure("blocks", blocks, "", sm_count), Figure("multiprocessors", sm_count)),
        f"{first} {ADVICE}" if first else ADVICE,
        Shares(min(low, seen), high),
        "At most until the grid fills the GPU or a unit is full; at least half of the time"
        " that the multiprocessors without a block have, of what a launch takes beyond 20 us, and"
        " no more than other launches of it with more blocks are faster by.",
        Severity.WARNING if few else None,
    )


def _seen(kernel: KernelMetrics, kernels: Sequence[KernelMetrics]) -> float:
    """Return the share of its time that launches of the same kernel with as many threads in more
    blocks are faster by, or that it is faster by than such in fewer; 1 where there are none."""
    threads, blocks, seconds = kernel.all_threads, kernel.blocks, kernel.seconds
    if not threads or not blocks or not seconds:
        return 1.0
    alike = [
        (each.blocks, each.seconds)
        for each in kernels
        if each.name == kernel.name
        and each.seconds
        and each.blocks
        and abs((each.all_threads or 0) - threads) < max(each.threads or 1, kernel.threads or 1)
    ]
    if more := [lasts for count, lasts in alike if count > blocks]:
        return max(1 - min(more) / seconds, 0.0)
    fewer = [lasts for count, lasts in alike if count < blocks]
    return max(1 - seconds / max(fewer), 0.0) if fewer else 1.0


def _uncounted(evidence: Evidence) -> Iterator[RuleResult]:
    """Look at launches of which nothing tells how busy units are: what they would gain is not
    known."""
    found = defaultdict[str, list[KernelMetrics]](list)
    for kernel, loads in evidence.kernel_loads:
        blocks, sm_count = kernel.blocks, kernel.least_sm_count
        if loads is None and blocks and sm_count and blocks < sm_count:
            found[kernel.name].append(kernel)
    for name, alike in found.items():
        time_ns = math.fsum(each.counters.time_ns for each in alike)
        if time_ns < SERIOUS * evidence.captured_ns or all(map(too_small, alike)):
            continue
        share = time_ns / evidence.captured_ns if evidence.captured_ns else 0.0
        if share:
            yield _of_launches(name, alike, share)


def _of_launches(name: str, alike: Sequence[KernelMetrics], share: float) -> RuleResult:
    kernel, count = alike[0], sum(each.counters.count for each in alike)
    few, most = (how(each.blocks or 0 for each in alike) for how in (min, max))
    sm_count = kernel.least_sm_count or 0
    blocks = f"{few:,} to {most:,} blocks" if few < most else f"{most:,} block{'s'[: most - 1]}"
    longest = max(each.counters.time_ns / each.counters.count / 1e3 for each in alike)
    least = "" if kernel.sm_count else "at least "
    return RuleResult(
        f"{short(kernel)}: {count:,} launch{'' if count == 1 else 'es'} with {share:.0%} of the"
        f" captured kernel time {'has' if count == 1 else 'have'} {blocks} for {least}{sm_count}"
        f" multiprocessors, for {longest:.1f} us or less each",
        (
            Figure("blocks", most, "", sm_count),
            Figure("launch_us", round(longest, 1), "us"),
            percent("captured_time", share, SERIOUS),
        ),
        f"{ADVICE} Short launches that follow each other: fuse them, or let one kernel stay on the"
        " GPU for all of them.",
        severity=Severity.NOTICE,
        scope=Scope(ScopeKind.KERNEL, name),
    )
