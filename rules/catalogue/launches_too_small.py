"""Launches are too small for the GPU, and too short to judge them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gpuadvisor.domain.finding import RUN, Category, Figure, Scope, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.gpu_specs import WARP_THREADS
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import MOST_FILLED, MOST_S, SERIAL_S, counts, short, too_small
from gpuadvisor.rules.rule import SERIOUS, Rule, RuleResult, percent

RULE = Rule(Category.SMALL_GRID, needs=(counts("blocks", "least_sm_count"),))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find launches that leave most of the GPU without work and are over in microseconds, and such
    with hardly a thread."""
    found = [kernel for kernel, _ in evidence.kernel_loads if too_small(kernel)]
    time = math.fsum(each.counters.time_ns for each in found)
    if found and time >= SERIOUS * evidence.captured_ns:
        yield _said(found, time / evidence.captured_ns)


def _said(found: Sequence[KernelMetrics], share: float) -> RuleResult:
    names = dict.fromkeys(each.name for each in found)
    count = sum(each.counters.count for each in found)
    filled = max(each.filled or 0.0 for each in found)
    seconds = max(each.counters.time_ns / each.counters.count / 1e9 for each in found)
    longest = found[0]
    whose = short(longest) if len(names) == 1 else f"{len(names)} kernels"
    return RuleResult(
        f"{whose}: {count:,} launch{'' if count == 1 else 'es'} with {share:.0%} of the captured"
        f" kernel time leave{'s' if count == 1 else ''} most of the GPU without work:"
        f" {_threads(found)}no more than {filled:.1%} of its places for blocks are filled, for"
        f" {1e6 * seconds:.1f} us or less",
        (
            percent("places_filled", filled, MOST_FILLED),
            Figure("launch_us", round(1e6 * seconds, 1), "us", 1e6 * _longest(seconds)),
            percent("captured_time", share, SERIOUS),
        ),
        "Profile a real problem size: at this one there is too little work to judge the kernel by"
        " its counters. If this is the real size, do more in a launch: batch several problems, or"
        " fuse kernels that follow each other.",
        severity=Severity.NOTICE,
        scope=Scope(ScopeKind.KERNEL, longest.name) if len(names) == 1 else RUN,
    )


def _threads(found: Sequence[KernelMetrics]) -> str:
    """Return how many threads there are, where that is less than a warp."""
    most = max(each.all_threads or math.inf for each in found)
    if most >= WARP_THREADS:
        return ""
    return f"{most} thread{'' if most == 1 else 's'} in all{' at most' if len(found) > 1 else ''}, "


def _longest(seconds: float) -> float:
    """Return the most seconds of such a launch; those with hardly a thread may take longer."""
    return MOST_S if seconds < MOST_S else SERIAL_S
