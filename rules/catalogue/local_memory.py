"""Threads keep data in local memory, which lies in the GPU's memory."""

from __future__ import annotations

from dataclasses import replace

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.coalescing import L2_OVER_DRAM, LEAST_EXCESS
from gpuadvisor.rules.facts.kernel_loads import Loads, bytes_load, saved, scaled
from gpuadvisor.rules.facts.kernel_metrics import SECTOR_BYTES, KernelMetrics
from gpuadvisor.rules.kernels import knows, of_each, result_of, short, unless_library
from gpuadvisor.rules.rule import Rule, RuleResult, percent

RULE = Rule(
    Category.LOCAL_MEMORY,
    needs=(knows("local_sectors", "sectors"),),
    hides=("dram_bandwidth", "latency", "coalescing", "compute", "occupancy_registers",
           "achieved_occupancy", "tensor_core"),
)  # fmt: skip


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels that move much of their own local memory."""
    local, others = kernel.local_sectors, kernel.sectors
    if local is None or others is None or local + others <= 0:
        return None
    of_first = local / (local + others)
    if of_first < LEAST_EXCESS:
        return None
    beyond = kernel.local_beyond_l1
    shares = saved(loads, _after(kernel, loads, of_first, beyond))
    return result_of(
        kernel,
        f"{of_first:.0%} of what {short(kernel)} loads and stores is local memory of its threads",
        (
            Figure("local_sectors", local),
            percent("local_of_all_sectors", of_first, LEAST_EXCESS),
            *(() if beyond is None else (percent("local_of_sectors_beyond_l1", beyond),)),
        ),
        "Keep it in registers: allow more of them (`-maxrregcount`, `__launch_bounds__`), index"
        " small arrays only with constants (unroll the loop), or use shared memory.",
        shares,
        "At most the time of the busiest unit without that traffic; at least what that unit is"
        " relieved of.",
        unless_library(kernel, shares),
    )


def _after(kernel: KernelMetrics, loads: Loads, of_first: float, beyond: float | None) -> Loads:
    """Return the loads without local memory. Where it was not counted how much of it goes beyond
    the L1 cache, the rest is what the other sectors need."""

    fewer = scaled(loads, l1=1 - of_first)
    if beyond is not None:
        return scaled(fewer, l2=1 - beyond, dram=1 - beyond)
    others = bytes_load(kernel, SECTOR_BYTES * (kernel.sectors or 0.0), None)
    if others is None:
        return fewer
    return replace(fewer, l2=min(others / L2_OVER_DRAM, loads.l2), dram=min(others, loads.dram))
