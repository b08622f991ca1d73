"""Threads load or store one or two bytes at a time, and memory has little to do."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.coalescing import LEAST_EXCESS
from gpuadvisor.rules.facts.kernel_loads import SPREAD, Loads
from gpuadvisor.rules.facts.kernel_metrics import SECTOR_BYTES, KernelMetrics
from gpuadvisor.rules.kernels import (
    MOST_BUSY,
    knows,
    of_each,
    result_of,
    short,
    unless_library,
    up_to,
)
from gpuadvisor.rules.rule import MOST, Rule, RuleResult, percent

MOST_BYTES = 2 * (1 + LEAST_EXCESS)
"""Most bytes a thread, on average: two are half of the usual size, whose 4 bytes reach 54 to 70 %
of the bandwidth by themselves; accesses that are shifted touch no more besides."""

RULE = Rule(
    Category.DRAM_BANDWIDTH,
    needs=(knows("load_waits", "dram_bytes", "active_threads"),),
    hides=("occupancy", "latency", "compute_below_roof", "memory_below_roof"),
)


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels whose warps move fewer bytes at a time than they could."""
    sectors, waiting, threads = _sectors(kernel), kernel.load_waits, kernel.active_threads
    if sectors is None or not threads or kernel.dram_bytes is None:
        return None
    taken = SECTOR_BYTES * sectors / threads
    if taken > MOST_BYTES:
        return None
    if waiting is None or waiting < MOST or loads.memory >= MOST_BUSY:
        return None
    high = 1 - max((1 - SPREAD) * loads.dram, loads.fixed)
    shares = up_to(high)
    told = f"{taken:.1f}".removesuffix(".0")
    size = f"{told} byte{'' if told == '1' else 's'}"
    return result_of(
        kernel,
        f"The threads of {short(kernel)} load and store {size} at a time, and use"
        f" {loads.dram:.0%} of the memory's bandwidth",
        (
            Figure("bytes_of_an_access", round(taken, 2), "bytes a thread", MOST_BYTES),
            percent("memory_busy", loads.memory, MOST_BUSY),
            percent("warps_waiting_for_loads", waiting, MOST),
        ),
        "Load and store 4 to 16 bytes a thread at once (`uchar4`, `uint4`; in Triton more elements"
        " a program), and several of them before using any.",
        shares,
        "At most the time of the same bytes at the bandwidth that copies reach; at least half of"
        " it.",
        unless_library(kernel, shares),
    )


def _sectors(kernel: KernelMetrics) -> float | None:
    """Return the sectors that an access of a warp touches; None unless it uses all of them."""
    touched = requested = 0.0
    for operation in ("ld", "st"):
        sectors = kernel.sectors_of(f"global_op_{operation}")
        requests = kernel.requests_of(f"global_op_{operation}")
        if sectors is None or requests is None:
            return None
        used = kernel.sector_efficiency(operation)
        if sectors and (used is None or used < 1 - LEAST_EXCESS):
            return None
        touched, requested = touched + sectors, requested + requests
    return touched / requested if requested else None
