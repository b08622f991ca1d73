"""A kernel that takes much time has fewer blocks than the GPU has multiprocessors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from gpuadvisor.domain.finding import Category, Figure, Scope, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.errors import UsageError
from gpuadvisor.rules.device import device, sm_count
from gpuadvisor.rules.estimates import (
    AT_ONCE,
    LEAST_NS,
    LEAST_OF_ONE,
    PERSISTENT,
    PLAYED,
    SATURATING,
    RowGain,
    row_saving,
    short,
)
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.gpu_specs import architecture
from gpuadvisor.rules.facts.kernel_families import NORMALIZES_NCHW
from gpuadvisor.rules.facts.kernels import KernelTime
from gpuadvisor.rules.facts.migrations import waiting_in_kernels_ns
from gpuadvisor.rules.kernels import of_few_threads
from gpuadvisor.rules.requirements import DEVICE, LAUNCH_SHAPES, LAUNCHES
from gpuadvisor.rules.rule import MOST, NOTICEABLE, Rule, RuleResult, percent

RESIDENT = 2048
"""Threads that a multiprocessor holds at most, of any GPU (CUDA's programming guide, technical
specifications by compute capability): more than its lanes carry out at once, as while some wait
others go on. One product in 64 blocks of 128 threads on 142 multiprocessors took 24.3 s and in
8,192 blocks 1.22 s (`benchmarks/public_traces`, `n15_hpc1`), 95 % less."""
WARP = 32
ADVICE = (
    "Split its work into more blocks: smaller tiles, a split of the inner dimension, or a larger"
    " batch."
)

RULE = Rule(Category.SMALL_GRID, needs=(LAUNCHES, DEVICE, LAUNCH_SHAPES))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find long kernels with small grids."""
    facts = evidence.known_facts
    count, uses = sm_count(evidence), facts.kernel_uses
    found = facts.kernel_shapes
    total = sum(each.time_ns for each in found)
    if not count or not total:
        return
    at_once = facts.kernels_at_once
    alone = at_once < 1 + NOTICEABLE
    at_once = at_once if at_once > AT_ONCE else 1.0
    if at_once > 1 and at_once * max(each.blocks for whole in found for each in whole.launches) >= (
        count
    ):
        return
    converts = bool(uses.of("layout"))
    for whole in found:
        if converts and NORMALIZES_NCHW.search(whole.name):
            continue  # which is the layout's fault
        few = (PERSISTENT if whole.is_library else 1.0) * count / at_once
        each = whole.of(partial(_is_small, most_blocks=few))
        share = each.time_ns / total if each is not None else 0.0
        if each is None or share < LEAST_OF_ONE:
            continue
        blocks = each.launches[0].blocks
        alike = all(launch.blocks == blocks for launch in each.launches)
        threads = each.launches[0].threads
        number = f"{blocks:,} block{'' if blocks == 1 else 's'}" + ("" if alike else " or so")
        size = f"{threads:,} thread{'' if threads == 1 else 's'}"
        filled = [at_once * launch.blocks / count for launch in each.launches]
        low = each.mean([max(1 - SATURATING * part, 0.0) for part in filled])
        places = [part * launch.threads / _resident(evidence, launch)
                  for part, launch in zip(filled, each.launches, strict=True)]  # fmt: skip
        high = each.mean([max(1 - part, 0.0) for part in places])
        rows = each.rows(facts.profile, uses.rows_of(each.name))
        waited = int(waiting_in_kernels_ns(facts.work, rows).sum()) / each.time_ns
        if waited > MOST:
            continue
        own = 1 - waited
        few = max(launch.blocks * launch.threads for launch in each.launches) < count
        yield RuleResult(
            f"{short(each.name)} takes {share:.0%} of the GPU's kernel time{each.words(whole)} with"
            f" {number} of {size} on {count} multiprocessors",
            (
                Figure("blocks", blocks, "", count),
                percent("kernel_time", share, LEAST_OF_ONE),
            ),
            (of_few_threads(blocks * threads) if few else _half_a_warp(threads) + ADVICE)
            + (_kept_apart(len(np.unique(facts.work.stream[rows]))) if alone else ""),
            row_saving(facts, [RowGain(rows, each.time_ns, 0.0 if few else own * low, own * high)]),
            "At most in proportion to the places for threads, by warps and registers, that stay"
            f" empty on the multiprocessors; {PLAYED}.",
            scope=Scope(ScopeKind.KERNEL, each.name),
            severity=Severity.WARNING if few else None,
        )


def _resident(evidence: Evidence, launch: KernelTime) -> int:
    """Return how many threads of such a launch a multiprocessor holds, whatever its blocks: as many
    as it has registers and warps for; at most `RESIDENT` where the GPU is not known."""
    limits = device(evidence)
    if limits is None or limits.compute_capability is None:
        return RESIDENT
    try:
        sm = architecture(limits.compute_capability, limits)
    except UsageError:
        return RESIDENT
    warps = sm.max_warps
    if launch.registers > 0:
        warps = min(warps, sm.registers // (launch.registers * WARP))
    return max(warps * WARP, launch.threads)


def _kept_apart(streams: int) -> str:
    """Return why launches that are on several streams ran one after the other, as the end of an
    advice; empty where they are on one."""
    if streams < 2:
        return ""
    return (
        f" Its launches are on {streams} streams, and none ran beside another: they wait for each"
        " other, or for work in the legacy default stream between them, which streams made with"
        " cudaStreamNonBlocking, or --default-stream per-thread, do not."
    )


def _half_a_warp(threads: int) -> str:
    if threads >= WARP:
        return ""
    works = "works" if threads == 1 else "work"
    return f"Give each block more threads first: {threads} of a warp's {WARP} lanes {works}. "


def _is_small(launch: KernelTime, most_blocks: float) -> bool:
    """Say whether launches are long enough for more blocks than they have."""
    return launch.blocks < most_blocks and launch.mean_ns >= LEAST_NS
