"""Many threads change the same address atomically, one after the other."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.facts.kernel_loads import SPREAD, Loads, Shares, saved, scaled
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.kernels import (
    LEAST_CONFLICTS,
    MOST_BUSY,
    knows,
    of_each,
    result_of,
    short,
    unless_library,
    up_to,
)
from gpuadvisor.rules.requirements import either
from gpuadvisor.rules.rule import MOST, NOTICEABLE, Rule, RuleResult, percent

LEAST_BUSY = 0.15
"""Share of its time in which the busiest unit for atomics takes some in: one that did nothing but
add to one address had 33 % on a GTX 1660. [own]"""
LEAST_UNEVEN = 4.0
"""Factor on the mean that the busiest unit does at least: with many addresses all do the same, and
with one on that GPU one of twelve did all. [own]"""
LEAST_OF_REQUESTS = 0.2
"""Atomics of all accesses to global memory, where nothing tells of their units: one at the end of a
block is far less. [own]"""

METHOD = "At most all but what the SMs and the memory need otherwise; at least half of it."
ON_GLOBAL = "The atomics of {} on global memory wait for each other"
GLOBAL = (knows("atomics"),)
UNITS = (knows("atomic_units"),)
SLICES = (knows("l2_slices"),)
SHARED = (knows("shared_atomics", "wavefronts"),)
RULE = Rule(
    Category.ATOMICS,
    needs=(either(GLOBAL, UNITS, SLICES, SHARED),),
    hides=("latency", "dram_bandwidth", "compute", "occupancy", "divergence", "coalescing",
           "bank_conflict", "tail"),
)  # fmt: skip


@of_each
def check(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
    """Find kernels that wait for atomics on few addresses."""
    found, method = _units(kernel, loads) or _waiting(kernel, loads), METHOD
    shares = up_to(1 - max((1 - SPREAD) * max(loads.dram, loads.compute), loads.fixed))
    if found is None and (on_shared := _shared(kernel, loads)) is not None:
        found, shares = on_shared
        method = "At most the time of the busiest unit with that much less in the L1 cache."
    found = found or _slices(kernel, loads)
    if found is None:
        return None
    said, figures = found
    return result_of(
        kernel,
        said.format(short(kernel)),
        figures,
        "Combine values before they are added: in registers of a warp (`__reduce_add_sync`), then"
        " in shared memory of a block, and add once a block; or keep several copies.",
        shares,
        method,
        unless_library(kernel, shares),
    )


def _units(kernel: KernelMetrics, loads: Loads) -> tuple[str, tuple[Figure, ...]] | None:
    """Look at the units of the L2 cache: the addresses are spread over them."""
    if kernel.atomics == 0 or kernel.atomic_units is None:
        return None
    mean, most = kernel.atomic_units
    alone = most >= max(LEAST_BUSY, LEAST_UNEVEN * mean) and loads.busiest < MOST_BUSY
    if not alone and mean < MOST_BUSY:
        return None
    return ON_GLOBAL, (
        *(() if kernel.atomics is None else (Figure("atomics", kernel.atomics),)),
        percent("busiest_atomic_unit", most, LEAST_BUSY),
        percent("mean_atomic_unit", mean),
    )


def _waiting(kernel: KernelMetrics, loads: Loads) -> tuple[str, tuple[Figure, ...]] | None:
    """Look at what warps wait for: nothing else is busy."""
    waiting = kernel.stalled("long_scoreboard", "lg_throttle", "drain", "membar")
    others = [kernel.requests_of(f"global_op_{each}") for each in ("ld", "st")]
    if not kernel.atomics or waiting is None or None in others or loads.busiest >= MOST_BUSY:
        return None
    share = kernel.atomics / (kernel.atomics + sum(each or 0.0 for each in others))
    if share < LEAST_OF_REQUESTS or waiting < MOST:
        return None
    return ON_GLOBAL, (
        Figure("atomics", kernel.atomics),
        percent("atomics_of_global_requests", share, LEAST_OF_REQUESTS),
        percent("warps_waiting_for_memory", waiting, MOST),
    )


def _slices(kernel: KernelMetrics, loads: Loads) -> tuple[str, tuple[Figure, ...]] | None:
    """Look at the slices of the L2 cache: a lock keeps one busy with few atomics."""
    if kernel.atomics == 0 or kernel.l2_slices is None or loads.busiest >= MOST_BUSY:
        return None
    mean, most = kernel.l2_slices
    if most < max(LEAST_BUSY, LEAST_UNEVEN * mean):
        return None
    return (
        "The threads of {} wait for each other at few addresses, as atomics and locks do: one"
        " slice of the L2 cache has most of its work"
    ), (percent("busiest_l2_slice", most, LEAST_BUSY), percent("mean_l2_slice", mean))


def _shared(
    kernel: KernelMetrics, loads: Loads
) -> tuple[tuple[str, tuple[Figure, ...]], Shares] | None:
    """Look at the cycles of the L1 cache in which atomics on shared memory are served again."""
    if kernel.shared_atomics is None or not kernel.wavefronts:
        return None
    taken, again = kernel.shared_atomics
    share = min(again / kernel.wavefronts, 1.0)
    shares = saved(loads, scaled(loads, l1=1 - share))
    if share <= LEAST_CONFLICTS or shares.middle < NOTICEABLE:
        return None
    said = "The atomics of {} on shared memory wait for each other"
    figures = (
        Figure("shared_atomic_cycles", taken),
        percent("conflicting_atomics_of_l1_cycles", share, LEAST_CONFLICTS),
    )
    return (said, figures), shares
