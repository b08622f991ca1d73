"""Kernels were compiled without optimization, as for a debugger."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gpuadvisor.domain.finding import RUN, Category, Figure, Scope, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.kernels import counts, short
from gpuadvisor.rules.rule import MOST, NOTICEABLE, Rule, RuleResult, percent

LEAST_CYCLES = 9.0
"""Cycles that an instruction waits for the one before it, whose time is fixed, on average: of 210
kernels in 47 public reports 13 have 13.4 to 14.1 and all others 0.2 to 4.6. A compiler that does
not optimize writes the longest wait that an instruction can tell, 15 cycles, wherever one may be
needed; arithmetic takes 4 to 6."""

RULE = Rule(Category.COMPUTE, needs=(counts("fixed_wait_cycles"),))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find kernels whose instructions wait for each other as only unoptimized code does."""
    found = [
        (kernel, kernel.fixed_wait_cycles)
        for kernel, _ in evidence.kernel_loads
        if kernel.fixed_wait_cycles is not None and kernel.fixed_wait_cycles >= LEAST_CYCLES
    ]
    captured = evidence.captured_ns
    share = math.fsum(each.counters.time_ns for each, _ in found) / captured if captured else 0.0
    if share < NOTICEABLE:
        return
    names = dict.fromkeys(kernel.name for kernel, _ in found)
    is_one = len(names) == 1
    longest, cycles = found[0][0], min(each for _, each in found)
    whose = f"{short(longest)} with" if is_one else f"{len(names)} kernels with"
    were, more = ("was", "") if is_one else ("were", " and more")
    yield RuleResult(
        f"{whose} {share:.0%} of the captured kernel time {were} compiled without optimization, as"
        f" for a debugger: an instruction waits {cycles:.1f} cycles{more} for the one before it",
        (
            Figure("cycles_for_the_instruction_before", round(cycles, 1), "", LEAST_CYCLES),
            percent("captured_time", share, NOTICEABLE),
        ),
        "Compile without -G (and without -Xptxas -O0), and profile again: what else is said of"
        " this code is no matter of the program. -lineinfo gives lines to optimized code.",
        severity=Severity.WARNING if share >= MOST else Severity.NOTICE,
        scope=Scope(ScopeKind.KERNEL, longest.name) if is_one else RUN,
    )
