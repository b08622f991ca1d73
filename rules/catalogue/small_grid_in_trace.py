"""A kernel that takes much time has fewer blocks than the GPU has multiprocessors."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure, Scope, ScopeKind
from gpuadvisor.rules.device import sm_count
from gpuadvisor.rules.estimates import PLAYED, RowGain, row_saving, short
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_families import NORMALIZES_NCHW
from gpuadvisor.rules.requirements import DEVICE, LAUNCH_SHAPES, LAUNCHES
from gpuadvisor.rules.rule import Rule, RuleResult, percent

LEAST_SHARE = 0.1
"""Least share of the kernel time, in one kernel. [own]"""
LEAST_NS = 20_000
"""Least time of one launch: shorter ones have too little to do for more blocks. [own]"""
PERSISTENT = 0.5
"""Blocks for each multiprocessor below which a library's kernel is small: many keep just under one
on each, and loop. [own]"""
SATURATING = 2.5
"""Multiprocessors that one can stand for where the memory is the limit: about two fifths of them
are enough to reach its bandwidth. [own]"""
MOST_STREAMS = 1.2
"""Most streams active on average: with more, other kernels may fill the rest. [own]"""

RULE = Rule(Category.SMALL_GRID, needs=(LAUNCHES, DEVICE, LAUNCH_SHAPES))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find long kernels with small grids."""
    facts = evidence.known_facts
    count, device = sm_count(evidence), facts.kernel_uses.device
    found = facts.kernel_shapes
    total = sum(each.time_ns for each in found)
    together = next((each for each in facts.concurrency if each.device == device), None)
    if not count or not total or (together is not None and together.mean_streams > MOST_STREAMS):
        return
    converts = bool(facts.kernel_uses.of("layout"))
    for each in found:
        if converts and NORMALIZES_NCHW.search(each.name):
            continue  # which is the layout's fault
        least = PERSISTENT if each.is_library else 1.0
        share = each.time_ns / total
        if share < LEAST_SHARE or each.blocks >= least * count or each.mean_ns < LEAST_NS:
            continue
        high = 1 - each.blocks / count
        low = max(1 - SATURATING * each.blocks / count, 0.0)
        yield RuleResult(
            f"{short(each.name)} takes {share:.0%} of the GPU's kernel time with {each.blocks:.0f}"
            f" blocks on {count} multiprocessors",
            (
                Figure("blocks", round(each.blocks), "", count),
                percent("kernel_time", share, LEAST_SHARE),
            ),
            "Split its work into more blocks: smaller tiles, a split of the inner dimension, or a"
            " larger batch.",
            row_saving(
                facts, [RowGain(facts.kernel_uses.rows_of(each.name), each.time_ns, low, high)]
            ),
            f"At most in proportion to the multiprocessors that have no block; {PLAYED}.",
            scope=Scope(ScopeKind.KERNEL, each.name),
        )
