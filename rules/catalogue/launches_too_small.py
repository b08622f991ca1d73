"""Launches are too small for the GPU, and too short to judge them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpuadvisor.domain.finding import RUN, Category, Figure, Scope, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_loads import FIXED_S
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import knows, short
from gpuadvisor.rules.rule import Rule, RuleResult, percent

MOST_FILLED = 0.3
"""Share of the GPU's places for blocks (waves), at most: seven tenths and more of them stay
empty. [own]"""
MOST_S = 2 * FIXED_S
"""Seconds of a launch, at most: half of its time or more is what no kernel is spared. [own]"""
LEAST_SHARE = 0.1
"""Share of all captured time from which on it is said. [own]"""

RULE = Rule(Category.SMALL_GRID, needs=(knows("blocks", "sm_count"),))


@dataclass(frozen=True)
class _Launches:
    """Launches of a kernel that are too small."""

    kernel: KernelMetrics
    filled: float
    """Share of the GPU's places for blocks that they fill at most."""
    seconds: float
    """Mean time of a launch."""


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find launches that leave most of the GPU without work and are over in microseconds."""
    found = [each for kernel, _ in evidence.kernel_loads if (each := _small(kernel)) is not None]
    time = math.fsum(each.kernel.counters.time_ns for each in found)
    if not found or time < LEAST_SHARE * evidence.captured_ns:
        return
    names = dict.fromkeys(each.kernel.name for each in found)
    count = sum(each.kernel.counters.count for each in found)
    filled, seconds = max(e.filled for e in found), max(e.seconds for e in found)
    share = time / evidence.captured_ns
    longest = found[0].kernel
    whose = short(longest) if len(names) == 1 else f"{len(names)} kernels"
    yield RuleResult(
        f"{whose}: {count:,} launch{'' if count == 1 else 'es'} with {share:.0%} of the captured"
        f" kernel time leave{'s' if count == 1 else ''} most of the GPU without work: no more than"
        f" {filled:.1%} of its places for blocks are filled, for {1e6 * seconds:.1f} us or less",
        (
            percent("places_filled", filled, MOST_FILLED),
            Figure("launch_us", round(1e6 * seconds, 1), "us", 1e6 * MOST_S),
            percent("captured_time", share, LEAST_SHARE),
        ),
        "Profile a real problem size: at this one starting and ending is most of a launch, and"
        " counters tell little of the kernel. If this is the real size, do more in a launch: batch"
        " several problems, or fuse kernels that follow each other.",
        severity=Severity.NOTICE,
        scope=Scope(ScopeKind.KERNEL, longest.name) if len(names) == 1 else RUN,
    )


def _small(kernel: KernelMetrics) -> _Launches | None:
    counters = kernel.counters
    if not kernel.blocks or not kernel.sm_count or counters.time_ns <= 0:
        return None
    # An SM holds at least one block, so the waves are at most the blocks of an SM.
    filled = kernel.blocks / kernel.sm_count if kernel.waves is None else kernel.waves
    seconds = counters.time_ns / counters.count / 1e9
    small = filled < MOST_FILLED and seconds < MOST_S
    return _Launches(kernel, filled, seconds) if small else None
