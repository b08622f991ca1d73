"""How long a kernel must take at least, and by how much it would get shorter.

A roofline of four units: memory (DRAM), the L2 and the L1 cache, and the SMs. Each unit's
load is the time that it needs alone at the rate that it can keep up, as a share of the kernel's
time. A cure takes load off some units; then the kernel takes as long as the busiest of what is
left, if nothing else holds it up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics

DRAM_ATTAINABLE = 0.85
"""Share of the theoretical bandwidth that programs reach, by bytes. A copy of 512 MiB on an H100
reached 85 %; of 10 variants of one matrix addition on a T4 this value predicted the fastest best
(mean error 1.4 points)."""
DRAM_BUSY_ATTAINABLE = DRAM_ATTAINABLE * 0.90 / 0.83
"""Share of the memory throughput of Nsight Compute that programs reach. On chips with ECC in the
memory itself it counts more than the program's bytes: a T4 showed 90 % at 83 % of the bytes."""
ATTAINABLE = 0.95
"""Share of what caches and SMs can do that programs reach: naive products reach 97 to 99 % of the
L1 cache. [own]"""
SPREAD = 1 - DRAM_ATTAINABLE
"""Share by which a unit may need less time than its load: good copies reach up to all of a
theoretical bandwidth."""
SLOWER = 0.25
"""Share by which a unit may need more time than its load: copies of 4 bytes a thread reached 70 %
of the bandwidth on an H100. [own]"""
NARROW_BYTES_PER_S = 18.5e9
"""Bytes a second and SM with 4 bytes a thread: copies and the like reached 2.35e12 on an H100 and
2.6e12 on an H200, whose memory is faster by 43 %, with 132 SMs each."""
FIXED_S = 5e-6
"""Seconds of a kernel that no cure shortens: first blocks start, last ones drain, and memory
answers. An empty kernel takes about 2 microseconds under Nsight Compute. [own]"""
UNCUT_S = 4 * FIXED_S
"""Seconds of a launch that need not get shorter with more blocks: beside starting and ending a
chain of a few loads, a reduction within a block, and a second step that joins the parts of a
result. [own]"""


@dataclass(frozen=True)
class Loads:
    """Shares of the kernel's time that its units need at least, 0 to 1.

    Memory of which nothing is known is taken to be as busy as the busiest part of the way to it.
    """

    dram: float
    l2: float
    l1: float
    compute: float
    fixed: float = 0.0
    """The time that is not the program's."""

    @property
    def busiest(self) -> float:
        """The most loaded unit; 0 to 1."""
        return min(max(self.dram, self.l2, self.l1, self.compute, self.fixed), 1.0)

    @property
    def memory(self) -> float:
        """The most loaded one of memory and caches."""
        return min(max(self.dram, self.l2, self.l1), 1.0)


@dataclass(frozen=True)
class Shares:
    """A range of a kernel's time that would be saved, 0 to 1."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    def times(self, low: float, high: float = 1.0) -> Shares:
        """Return the range with its ends scaled."""
        return Shares(low * self.low, high * self.high)


def loads(kernel: KernelMetrics, attainable_bytes_per_s: float | None = None) -> Loads | None:
    """Return what a kernel's units need; None unless its time and all their shares are known.

    The bandwidth that its GPU was measured to reach is better than the usual one.
    """
    compute, memory, seconds = kernel.compute, kernel.memory, kernel.seconds
    l1, l2 = kernel.l1, kernel.l2
    if compute is None or memory is None or l1 is None or l2 is None or seconds is None:
        return None
    dram = dram_load(kernel, attainable_bytes_per_s)
    return Loads(
        memory if dram is None else dram,
        min(l2 / ATTAINABLE, 1.0),
        min(l1 / ATTAINABLE, 1.0),
        min(compute / ATTAINABLE, 1.0),
        min(FIXED_S / seconds, 1.0),
    )


def dram_load(kernel: KernelMetrics, attainable_bytes_per_s: float | None) -> float | None:
    """Return the share of its time in which a kernel's bytes could be moved."""
    if kernel.dram_bytes is not None:
        moving = bytes_load(kernel, kernel.dram_bytes, attainable_bytes_per_s)
        if moving is not None:
            return min(moving, 1.0)
    return None if kernel.dram is None else min(kernel.dram / DRAM_BUSY_ATTAINABLE, 1.0)


def bytes_load(
    kernel: KernelMetrics, moved_bytes: float, attainable_bytes_per_s: float | None
) -> float | None:
    """Return the share of a kernel's time in which so many bytes could be moved."""
    bandwidth = attainable_bytes_per_s
    if bandwidth is None and kernel.dram_peak is not None:
        bandwidth = DRAM_ATTAINABLE * kernel.dram_peak
    if not bandwidth or not kernel.seconds:
        return None
    return moved_bytes / bandwidth / kernel.seconds


def narrow_slowdown(kernel: KernelMetrics) -> float:
    """Return by how much more than usual moving a kernel's bytes may take if a thread moves 4."""
    if kernel.dram_peak is None or not kernel.sm_count:
        return SLOWER
    narrow = NARROW_BYTES_PER_S * kernel.sm_count
    return max(DRAM_ATTAINABLE * kernel.dram_peak / narrow - 1, SLOWER)


def saved(now: Loads, after: Loads, slowdown: float = SLOWER) -> Shares:
    """Return what a cure saves that leaves these loads, of which the busiest may need more by this
    share.

    At least as much as the busiest unit's need shrinks, and at most all but what is left of it. The
    cure may also end what else held the kernel up: in proportion, where that unit takes most of the
    kernel's time, else not.
    """
    left = after.busiest
    relief = now.busiest - left
    high = 1 - max((1 - SPREAD) * left, now.fixed)
    if now.busiest > 0.5:
        relief *= (1 + SPREAD) / now.busiest
    high = max(min(high, relief), 0.0)
    low = now.busiest - max(min((1 + slowdown) * left, 1.0), now.fixed)
    return Shares(max(min(low, high), 0.0), high)


def room(kernel: KernelMetrics, now: Loads) -> float | None:
    """Return the share of its time in which a kernel's warps leave the busiest unit waiting.

    Time without any warp is no such time: it is the grid's fault. None where it was not counted.
    """
    idle = kernel.idle_multiprocessors
    return None if idle is None else max(1 - max(idle, now.fixed) - now.busiest, 0.0)


def scaled(now: Loads, **factors: float) -> Loads:
    """Return the loads with those of some units multiplied."""
    return replace(now, **{unit: getattr(now, unit) * by for unit, by in factors.items()})
