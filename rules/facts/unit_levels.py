"""How near its peak each unit of a GPU was while a kernel ran, and what else its counters tell.

For kernels in which no rule finds something to fix: that is not the same as fine. What would tell
more is named by the section of Nsight Compute that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gpuadvisor.rules.facts.kernel_loads import FIXED_S
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics

AT_PEAK = 0.8
"""Share of a unit's peak from which on Nsight Compute calls a kernel bound by it."""
LATENCY = 0.6
"""Share of every unit's peak below which Nsight Compute calls a kernel bound by latency."""
MOST_S = 2 * FIXED_S
"""Seconds of a launch, at most, of which half or more is starting and ending."""
UNITS = {
    "compute": "compute",
    "the L1 cache": "l1",
    "the L2 cache": "l2",
    "DRAM": "dram",
}
"""Units, as people call them, to their figures of `KernelMetrics`."""
PARTS = {
    "sm__pipe_tensor_cycles_active": "the tensor cores",
    "sm__pipe_fp64_cycles_active": "the double-precision unit",
    "sm__pipe_fma_cycles_active": "the multiply-add unit",
    "sm__pipe_alu_cycles_active": "the integer and logic unit",
    "sm__inst_executed_pipe_xu": "the special-function unit",
    "sm__inst_executed_pipe_lsu": "the load and store unit",
    "sm__issue_active": "the issue of instructions",
    "l1tex__data_pipe_lsu_wavefronts": "its data stage, which takes a cycle for each wavefront",
    "l1tex__lsuin_requests": "the requests that it takes in",
    "l1tex__lsu_writeback_active": "what loads write back",
}
"""Metrics of a unit's parts, without their rollup, to what people call these."""
SAME = 0.99
"""Share of a unit's level from which on a part of it has that level."""
WAITS = {
    "barrier": "at barriers",
    "branch_resolving": "for branches",
    "drain": "until their stores are done",
    "imc_miss": "for constants",
    "lg_throttle": "to begin accesses to global or local memory",
    "long_scoreboard": "for loads from memory or the caches",
    "math_pipe_throttle": "for a busy arithmetic unit",
    "membar": "at memory fences",
    "mio_throttle": "to begin accesses to shared memory and special functions",
    "no_instruction": "for instructions to be fetched",
    "not_selected": "for other warps, whose instruction is issued first",
    "short_scoreboard": "for shared memory and special functions",
    "sleeping": "as they sleep",
    # "... or decoupled math operations" (Nsight Compute), as doubles are where their units are few:
    # so it is in kernels without a texture on compute capabilities 7.5 and 8.9.
    "tex_throttle": "to begin accesses to textures, or doubles that share their queue",
    "wait": "for their own last instruction",
}
"""Reasons of Nsight Compute for which a warp issues nothing, as people say them; those that tell
little are left out."""
SPEED_OF_LIGHT, STALLS, TABLES = "SpeedOfLight", "WarpStateStats", "MemoryWorkloadAnalysis_Tables"


@dataclass(frozen=True)
class UnitLevels:
    """One kernel: its launches of the shape that has most of its time."""

    name: str
    time_ns: float
    """Time of all launches of that name that were captured."""
    metrics: KernelMetrics

    @cached_property
    def units(self) -> tuple[tuple[str, float], ...]:
        """Units to their share of their peak (0 to 1), the busiest first; empty where none was
        collected."""
        told = {unit: getattr(self.metrics, figure) for unit, figure in UNITS.items()}
        if told["compute"] is None:
            told["compute"] = self.metrics.instructions
        known = [(unit, share) for unit, share in told.items() if share is not None]
        memory = self.metrics.memory
        if memory is not None and all(share < memory for _, share in known):
            known.append(("the way to memory", memory))  # a part of it that has no share of its own
        return tuple(sorted(known, key=lambda each: -each[1]))

    @property
    def lacks_units(self) -> bool:
        """Whether no more than one unit's level was collected, which tells not what limits."""
        return len(self.units) < 2

    @cached_property
    def part(self) -> str:
        """The part of the busiest unit that makes it so; empty where that was not collected."""
        if not self.units:
            return ""
        unit, level = self.units[0]
        prefix = {"compute": "sm__", "the L1 cache": "l1tex__"}.get(unit)
        for metric, words in PARTS.items():
            if prefix is not None and metric.startswith(prefix):
                share = self.metrics.share(f"{metric}.avg.pct_of_peak_sustained_elapsed")
                if share is not None and share >= SAME * level:
                    return words
        return ""

    @property
    def is_short(self) -> bool:
        """Whether a launch is too short for its counters to tell much."""
        return self.metrics.seconds is not None and self.metrics.seconds < MOST_S

    @cached_property
    def waits(self) -> tuple[str, float] | None:
        """What its warps wait for most, as people say it, and the share of their time (0 to 1);
        None where that was not collected."""
        told = ((words, self.metrics.stalled(reason)) for reason, words in WAITS.items())
        found = [(words, share) for words, share in told if share is not None]
        return max(found, key=lambda each: each[1], default=None)

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Sections of Nsight Compute that would tell more of what limits it."""
        if self.lacks_units:
            return (SPEED_OF_LIGHT, *(() if self.waits is not None else (STALLS,)))
        busiest, share = self.units[0]
        at_peak = share >= AT_PEAK
        cached = busiest in ("the L1 cache", "the L2 cache", "the way to memory")
        found = []
        if at_peak and cached and self.metrics.shared_bank_conflicts is None:
            found.append(TABLES)
        if not at_peak and self.waits is None:
            found.append(STALLS)
        return tuple(found)


def unit_levels(kernels: Iterable[KernelMetrics]) -> tuple[UnitLevels, ...]:
    """Return the kernels of these names, those with most time first; `kernels` are the launches of
    one name and shape each, those with most time first."""
    times: dict[str, float] = {}
    longest: dict[str, KernelMetrics] = {}
    for each in kernels:
        times[each.name] = times.get(each.name, 0.0) + each.counters.time_ns
        longest.setdefault(each.name, each)
    found = [UnitLevels(name, time_ns, longest[name]) for name, time_ns in times.items()]
    return tuple(sorted(found, key=lambda each: -each.time_ns))
