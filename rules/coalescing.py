"""What the rules about coalescing share: loads and stores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuadvisor.domain.finding import Figure, Scope, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_loads import Loads, bytes_load, narrow_slowdown, saved
from gpuadvisor.rules.facts.kernel_metrics import SECTOR_BYTES, KernelMetrics
from gpuadvisor.rules.kernels import notice_at_most, of_each, result_of, reuses_tiles, short
from gpuadvisor.rules.rule import MOST, NOTICEABLE, SERIOUS, Check, RuleResult, percent

LEAST_EXCESS = 0.10
"""Least share of all sectors that are moved for nothing, or for local memory: an access that is
only shifted by a few bytes touches a fifth more, and finds most of it in the cache. [own]"""
LEAST_WAITING = 0.25
"""Least share of the warps' time that they wait for loads or for stores, where only that tells them
apart: 33 % and 44 % in a naive transposition on an H100. [own]"""
SMALL_BLOCK = 16
"""Threads of a block that leave half of each warp's lanes without work at least, of 32."""
USUAL_SECTORS = 4
"""A warp's request for 4 bytes a thread, side by side."""

WIDEST_SECTORS = 16
"""Sectors of a warp's request for 16 bytes a thread, side by side: no access can need more."""

L2_OVER_DRAM = 2.0
"""Bandwidth of the L2 cache over that of the memory, at least: 2 to 4 from V100 to H100."""

HIDES = ("dram_bandwidth", "latency", "compute", "occupancy", "tensor_core")


OF_PRODUCT = (
    "Read a tile into shared memory row by row and use each value of it for many results: a"
    " product loads everything again and again without, and a tile is read side by side."
)
"""What to do first about the loads of a product of matrices."""


def uncoalesced(operation: str, what: str, advice: str) -> Check:
    """Return a check that finds loads or stores (`ld`, `st`) that move more than threads use.

    Where both do it is one fault, mostly of one index, and that of the larger part.
    """

    def look(kernel: KernelMetrics, loads: Loads) -> RuleResult | None:
        if kernel.threads and kernel.threads <= SMALL_BLOCK:
            return None  # larger blocks come first, and change what a request touches
        sectors, ideal = kernel.sectors, kernel.ideal_sectors
        part = _part(kernel, operation)
        if not sectors or ideal is None:
            return None
        excess = 1 - ideal / sectors
        if excess < LEAST_EXCESS:
            return None
        if part is None:
            if not _waits_most(kernel, operation):
                return None
        elif part < 0.5 or (operation == "st" and part == 0.5):
            return None
        judged = "most of it by its" if part is not None else "and its warps wait most for its"
        after = _after(kernel, loads, excess)
        if after is None:
            return None
        shares = saved(loads, after, narrow_slowdown(kernel))
        return result_of(
            kernel,
            f"{excess:.0%} of what {short(kernel)} moves is not used, {judged} {what}:"
            f" threads touch {sectors / max(ideal, 1):.1f} times as many 32-byte sectors as needed",
            (
                Figure("global_sectors", sectors, "", (1 + LEAST_EXCESS) * ideal),
                Figure("global_sectors_ideal", ideal),
                *(() if part is None else (percent(f"part_of_{what}", part),)),
            ),
            OF_PRODUCT if operation == "ld" and reuses_tiles(kernel) else advice,
            shares,
            "The time of the bytes that are needed at the bandwidth that copies reach, or of the"
            " busiest unit with that much less to move.",
            None if shares.low >= NOTICEABLE else notice_at_most(shares),
        )

    return of_each(look)


def by_requests(operation: str, what: str, advice: str) -> Check:
    """Return a check that finds loads or stores whose requests touch more sectors than threads side
    by side would, whatever their width, where nothing tells how many sectors are needed.

    What that costs is not known.
    """

    def check(evidence: Evidence) -> Iterator[RuleResult]:
        for kernel, loads in evidence.kernel_loads:
            share = kernel.counters.time_ns / evidence.captured_ns if evidence.captured_ns else 0.0
            told = kernel.ideal_sectors is not None or kernel.sector_efficiency(operation)
            waits = loads is not None and loads.memory < MOST
            sectors = kernel.sectors_per_request(operation)
            if sectors is None or told or waits or share < SERIOUS or not scattered(sectors):
                continue
            yield RuleResult(
                f"The {what} of {short(kernel)} touch {sectors:.1f} sectors of 32 bytes for each"
                f" request of a warp, where {USUAL_SECTORS} hold a value of 4 bytes for each"
                " thread: their threads are not side by side",
                (Figure("sectors_per_request", round(sectors, 1), "", USUAL_SECTORS),),
                advice,
                scope=Scope(ScopeKind.KERNEL, kernel.name),
                severity=Severity.NOTICE,
            )

    return check


def scattered(sectors: float) -> bool:
    """Say whether threads side by side, of which each takes 4, 8 or 16 bytes, would touch another
    number of sectors for each request than these: shifted, they touch one more, and fewer where not
    all of a warp take part."""
    return sectors > USUAL_SECTORS and not any(
        (1 - LEAST_EXCESS) * each <= sectors <= each + 1
        for each in (USUAL_SECTORS, 2 * USUAL_SECTORS, WIDEST_SECTORS)
    )


def _after(kernel: KernelMetrics, loads: Loads, excess: float) -> Loads | None:
    """Return the loads without the share of sectors that is not used.

    What local memory and shared memory move stays as it is.
    """

    local, sectors, ideal = kernel.local_sectors, kernel.sectors, kernel.ideal_sectors
    if local is None or not sectors or ideal is None:
        return None
    of_global = sectors / (sectors + local)
    fewer = 1 - excess * of_global
    dram, l2 = loads.dram, loads.l2 * fewer
    if kernel.dram_bytes:
        moved = of_global * kernel.dram_bytes
        left = kernel.dram_bytes - (moved - min(SECTOR_BYTES * ideal, moved))
        # Rather at the usual rate than at this kernel's, which may be better.
        usual = bytes_load(kernel, left, None)
        dram = dram * left / kernel.dram_bytes if usual is None else min(usual, dram)
    needed = bytes_load(kernel, SECTOR_BYTES * ideal, None)
    if needed is not None:
        l2 = min(l2, needed / L2_OVER_DRAM + loads.l2 * (1 - of_global))
    of_shared = (kernel.shared_wavefronts or 0.0) / kernel.wavefronts if kernel.wavefronts else 0.0
    l1 = loads.l1 * (1 - (1 - min(of_shared, 1.0)) * (1 - fewer))
    return replace(loads, dram=dram, l2=l2, l1=l1)


def _part(kernel: KernelMetrics, operation: str) -> float | None:
    """Return which part of the excess these accesses have; None where it is not known."""
    wasted = {each: _wasted(kernel, each) for each in ("ld", "st")}
    if None in wasted.values():
        return None
    total = sum(each for each in wasted.values() if each is not None)
    return (wasted[operation] or 0.0) / total if total > 0 else None


def _waits_most(kernel: KernelMetrics, operation: str) -> bool:
    """Say whether warps wait for these accesses, and more than for the others: where few counters
    were collected nothing else tells whose the excess is."""
    if any(_wasted(kernel, each) is not None for each in ("ld", "st")):
        return False
    loads, stores = kernel.load_waits, kernel.stalled("drain")
    if loads is None or stores is None or max(loads, stores) < LEAST_WAITING:
        return False
    return (stores > loads) == (operation == "st")


def _wasted(kernel: KernelMetrics, operation: str) -> float | None:
    """Return the sectors that these accesses touch without need."""
    sectors = kernel.sectors_of(f"global_op_{operation}")
    if sectors is None:
        return None
    used = kernel.sector_efficiency(operation)
    if used is not None:
        return sectors * (1 - used)
    requests = kernel.requests_of(f"global_op_{operation}")
    return None if requests is None else max(sectors - USUAL_SECTORS * requests, 0.0)
