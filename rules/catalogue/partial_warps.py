"""A kernel that takes much time runs in blocks that do not fill their warps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpuadvisor.domain.finding import Category, Figure, Scope, ScopeKind
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import UsageError
from gpuadvisor.rules.device import device, sm_count
from gpuadvisor.rules.estimates import (
    LEAST_NS,
    LEAST_OF_ONE,
    PLAYED,
    SATURATING,
    RowGain,
    row_saving,
    short,
)
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.gpu_specs import WARP_THREADS as WARP
from gpuadvisor.rules.facts.kernels import KernelTime
from gpuadvisor.rules.facts.occupancy import Occupancy, occupancy
from gpuadvisor.rules.occupancy import LEAST_UNUSED
from gpuadvisor.rules.requirements import DEVICE, LAUNCH_SHAPES, LAUNCHES
from gpuadvisor.rules.rule import LEAST_REACHED, Rule, RuleResult, percent

USUAL_THREADS = 256
"""Threads of a block to compare with: NVIDIA's guide starts with 128 to 256 (CUDA C++ Best
Practices, "Thread and Block Heuristics")."""

RULE = Rule(Category.OCCUPANCY, needs=(LAUNCHES, DEVICE, LAUNCH_SHAPES), hides=("trace_occupancy",))


@dataclass(frozen=True)
class _Lanes:
    """How launches fill the lanes of a multiprocessor."""

    unused: float
    """Share of the lanes of its warps that have no thread."""
    resident: float
    """Threads that a multiprocessor holds, as a share of those that it holds in usual blocks."""


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find long kernels with blocks of less than a warp, or of no multiple of it."""
    facts, limits, count = evidence.known_facts, device(evidence), sm_count(evidence)
    found = facts.kernel_shapes
    total = sum(each.time_ns for each in found)
    for whole in found:
        lanes: dict[KernelTime, _Lanes] = {}
        for launch in () if whole.is_library else whole.launches:
            known = None if limits is None else _lanes(launch, limits, count)
            if known is not None:
                lanes[launch] = known
        each = whole.of(lanes.__contains__)
        share = each.time_ns / total if each is not None and total else 0.0
        if each is None or share < LEAST_OF_ONE:
            continue
        longest = each.launches[0]
        unused = lanes[longest].unused
        idle = round(unused * WARP) if longest.threads < WARP else 0
        held = [lanes[launch].resident for launch in each.launches]
        low = each.mean([max(1 - SATURATING * part, 0.0) for part in held])
        high = each.mean([1 - part for part in held])
        what = (
            f"{idle} of the {WARP} lanes of each warp have nothing to do"
            if idle
            else f"{unused:.0%} of the lanes of its warps have nothing to do"
        )
        rows = each.rows(facts.profile, facts.kernel_uses.rows_of(each.name))
        yield RuleResult(
            f"{short(each.name)} takes {share:.0%} of the GPU's kernel time{each.words(whole)} in"
            f" blocks of {longest.threads} thread{'' if longest.threads == 1 else 's'}: {what}",
            (
                Figure("threads_of_a_block", longest.threads, "", WARP),
                percent("lanes_unused", unused, LEAST_UNUSED),
                percent("kernel_time", share, LEAST_OF_ONE),
            ),
            f"Choose blocks of a multiple of {WARP} threads, 128 or {USUAL_THREADS} to begin with,"
            " and fewer of them.",
            row_saving(facts, [RowGain(rows, each.time_ns, LEAST_REACHED * low, high)]),
            "At most in proportion to the threads that a multiprocessor holds now and in blocks of"
            f" {USUAL_THREADS}; at least half of that as far as two fifths of these would not reach"
            f" the memory's bandwidth; {PLAYED}.",
            scope=Scope(ScopeKind.KERNEL, each.name),
        )


def _lanes(launch: KernelTime, limits: DeviceLimits, count: int) -> _Lanes | None:
    """Return how a launch fills lanes; None where it does well enough, is too short, or where its
    blocks would not fill the GPU if they were larger: then empty lanes cost nothing."""
    unused = 1 - launch.threads / (WARP * math.ceil(launch.threads / WARP))
    if unused < LEAST_UNUSED or launch.mean_ns < LEAST_NS or not count:
        return None
    now = _held(launch, limits, launch.threads)
    usual = _held(launch, limits, USUAL_THREADS)
    if now is None or usual is None or not now.blocks or not usual.blocks:
        return None
    if launch.blocks * launch.threads < usual.blocks * USUAL_THREADS * count:
        return None
    held = now.blocks * launch.threads / (usual.blocks * USUAL_THREADS)
    return _Lanes(unused, min(held, 1.0))


def _held(launch: KernelTime, limits: DeviceLimits, threads: int) -> Occupancy | None:
    """Return what a multiprocessor holds of the kernel in blocks of so many threads, with as much
    shared memory a thread; None where that is not known."""
    if limits.compute_capability is None or min(launch.registers, launch.shared_bytes) < 0:
        return None
    shared = round(launch.shared_bytes * threads / launch.threads)
    try:
        return occupancy(
            limits.compute_capability, threads, launch.registers, shared, limits=limits
        )
    except UsageError:
        return None
