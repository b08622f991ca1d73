"""What hardware counters say of a kernel, in our words: Nsight Compute's names differ by version.

Every figure is None where no metric tells it. Shares are of the most that a unit can do over the
kernel's whole time, 0 to 1, at the clock of the measurement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from gpuadvisor.rules.facts.gpu_specs import LEAST_SM_COUNTS, WARP_THREADS

if TYPE_CHECKING:  # it loads numpy, which the daemon does without
    from gpuadvisor.domain.profile import DeviceLimits
    from gpuadvisor.rules.facts.ncu_kernels import KernelCounters

LAUNCH_TIMES = tuple(f"gpu__time_duration.{each}" for each in ("sum", "max", "avg"))
"""The time of a launch, in seconds: of one that runs alone all are the same."""
SM_PARTS = 4
"""Parts (sub-partitions) of an SM from Volta on; a block deals out its warps to them in turn."""
SECTOR_BYTES = 32
"""What the caches move at least."""
_OF_PEAK = ".pct_of_peak_sustained_elapsed"
_ELAPSED = f".avg{_OF_PEAK}"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_STALLED = (
    "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio",
    "smsp__average_warp_latency_issue_stalled_{}.ratio",
)
_LIMITERS = {
    "registers": "launch__occupancy_limit_registers",
    "shared_memory": "launch__occupancy_limit_shared_mem",
    "block_size": "launch__occupancy_limit_warps",
    "block_count": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_{}.sum"
_SPACES = ("global", "local")
_WRITE_TOO = (
    _REQUESTS.format("global_op_atom"),
    _REQUESTS.format("global_op_red"),
    "l1tex__t_requests_pipe_tex_mem_surface_op_st.sum",
)
"""Accesses that write to the L2 cache beside stores."""
_ALL_ACCESSES = (
    *(_REQUESTS.format(f"global_op_{op}") for op in ("ld", "st", "atom", "red")),
    *(f"l1tex__t_requests_pipe_tex_mem_surface_op_{op}.sum" for op in ("ld", "st", "atom", "red")),
    "l1tex__t_requests_pipe_tex_mem_texture.sum",
)
"""Requests to the L1 cache for memory that is neither shared nor a thread's own."""
_OPS = ("ld", "st")
_MMA = ("hmma", "imma", "gmma")
_ATOMS = ("atom", "red")
_ABSURD = 1e18
"""A number above what any counter counts, which only a damaged file holds."""


def _first_of(*metrics: str) -> cached_property[float | None]:
    """Make a figure: the first of these metrics that was collected."""
    return cached_property(lambda kernel: kernel.first(*metrics))


def _positive_of(*metrics: str) -> cached_property[float | None]:
    """Make a figure: the first of these metrics that was collected, unless it is 0."""
    return cached_property(lambda kernel: kernel.first(*metrics) or None)


def _share_of(*metrics: str) -> cached_property[float | None]:
    """Make a figure: a share (0 to 1) of which the first of these metrics tells the percentage."""
    return cached_property(lambda kernel: kernel.share(*metrics))


def _mean_and_most_of(metric: str) -> cached_property[tuple[float, float] | None]:
    """Make a figure: shares (0 to 1) of a unit on average, and of the busiest one of its kind."""

    def found(kernel: KernelMetrics) -> tuple[float, float] | None:
        mean, most = (kernel.share(f"{metric}.{of}{_OF_PEAK}") for of in ("avg", "max"))
        return None if mean is None or most is None else (mean, most)

    return cached_property(found)


@dataclass(frozen=True)
class KernelMetrics:
    """The metrics of one kernel with hardware counters."""

    counters: KernelCounters
    device: DeviceLimits | None = None

    def first(self, *metrics: str) -> float | None:
        """Return the first of these metrics that was collected and can be so."""
        for metric in metrics:
            value = self.counters.metrics.get(metric)
            if value is not None and 0 <= value < _ABSURD:
                return value
        return None

    def share(self, *metrics: str) -> float | None:
        """Return a share (0 to 1) of which the first of these metrics tells the percentage."""
        found = self.first(*metrics)
        return None if found is None else min(found / 100, 1.0)

    def _total(self, *metrics: str) -> float | None:
        """Return the sum of metrics that belong together; None unless all were collected."""
        found = [self.first(metric) for metric in metrics]
        return None if None in found else sum(value for value in found if value is not None)

    @property
    def name(self) -> str:
        return self.counters.name

    seconds = _positive_of(*LAUNCH_TIMES)
    """Time of one launch."""

    # What is launched.

    @cached_property
    def blocks(self) -> int | None:
        """Blocks of the grid."""
        return _product(self.counters.grid) or _whole(self.first("launch__grid_size"))

    @cached_property
    def threads(self) -> int | None:
        """Threads of a block."""
        return _product(self.counters.block) or _whole(self.first("launch__block_size"))

    @cached_property
    def sm_count(self) -> int | None:
        told = self.device.sm_count if self.device is not None else None
        return told or _whole(self.first("launch__sm_count"))

    @cached_property
    def least_sm_count(self) -> int | None:
        """SMs of the GPU, or the fewest that a whole one of its compute capability has."""
        if self.sm_count or self.device is None or "MIG" in self.device.name:
            return self.sm_count
        capability = self.device.compute_capability
        return LEAST_SM_COUNTS.get(capability) if capability is not None else None

    @cached_property
    def all_threads(self) -> int | None:
        """Threads of all blocks."""
        return self.blocks * self.threads if self.blocks and self.threads else None

    @cached_property
    def warps(self) -> int | None:
        """Warps of all blocks."""
        if not self.blocks or not self.threads:
            return None
        return self.blocks * math.ceil(self.threads / WARP_THREADS)

    @cached_property
    def filled(self) -> float | None:
        """Share of the GPU's places for blocks that the grid fills at most; above 1 where it fills
        them several times. An SM holds at least one block."""
        if self.waves is not None or not self.blocks or not self.least_sm_count:
            return self.waves
        return self.blocks / self.least_sm_count

    @cached_property
    def registers(self) -> int | None:
        """Registers of a thread."""
        return _whole(self.first("launch__registers_per_thread"))

    @cached_property
    def shared_bytes(self) -> float | None:
        """Shared memory of a block, without what the driver takes."""
        return self._total(
            "launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"
        )

    # How much of the GPU's multiprocessors (SMs) is filled.

    @cached_property
    def limits(self) -> dict[str, int]:
        """Blocks that an SM holds by each limiter; empty unless the first four are known."""
        found = {name: _whole(self.first(metric)) for name, metric in _LIMITERS.items()}
        known = {name: value for name, value in found.items() if value}
        return known if known.keys() >= _LIMITERS.keys() - {"barriers"} else {}

    @cached_property
    def resident(self) -> int | None:
        """Blocks that an SM holds."""
        return min(self.limits.values(), default=None)

    @cached_property
    def waves(self) -> float | None:
        """How often the grid fills the GPU; more exactly than the metric, which is rounded."""
        if self.resident is None or not self.blocks or not self.sm_count:
            return None
        return self.blocks / (self.sm_count * self.resident)

    theoretical_occupancy = _share_of(
        "sm__maximum_warps_per_active_cycle_pct", "smsp__maximum_warps_per_active_cycle_pct"
    )

    achieved_occupancy = _share_of(f"sm__warps_active{_ACTIVE}", f"smsp__warps_active{_ACTIVE}")

    @cached_property
    def idle_multiprocessors(self) -> float | None:
        """Share of the SMs' time in which they had no warp at all."""
        active = self.first("sm__cycles_active.avg")
        if active is None and (self.threads or 0) > (SM_PARTS - 1) * WARP_THREADS:
            active = self.first("smsp__cycles_active.avg")  # a block has warps on each part
        return self._idle(active)

    @cached_property
    def idle_on_each(self) -> float | None:
        """Share of the time in which even the SM with most of the work had no warp at all."""
        return self._idle(self.first("sm__cycles_active.max"))

    def _idle(self, active: float | None) -> float | None:
        """Return the share of the kernel's cycles that are not among these."""
        elapsed = self.first("gpc__cycles_elapsed.max", "sm__cycles_elapsed.max")
        return None if active is None or not elapsed else max(1 - active / elapsed, 0.0)

    # How busy its units are.

    compute = _share_of(f"sm__throughput{_ELAPSED}")
    """The SMs: issue slots and pipes, the busiest of them."""

    instructions = _share_of(f"sm__instruction_throughput{_ELAPSED}")
    """The SMs' issue slots and pipes alone, which the section ComputeWorkloadAnalysis has."""

    memory = _share_of(f"gpu__compute_memory_throughput{_ELAPSED}")
    """Caches and memory, the busiest part of them."""

    @cached_property
    def dram(self) -> float | None:
        """The memory; where only its bytes of both directions have a share, the sum of these."""
        told = self.share(f"gpu__dram_throughput{_ELAPSED}", f"dram__throughput{_ELAPSED}")
        if told is not None:
            return told
        both = self._total(*(f"dram__bytes_{way}.sum{_OF_PEAK}" for way in ("read", "write")))
        return None if both is None else min(both / 100, 1.0)

    l2 = _share_of(f"lts__throughput{_ELAPSED}")

    @cached_property
    def l1(self) -> float | None:
        """The L1 caches, in the kernel's time like the other units: sections of Nsight Compute have
        their share of the cycles in which a multiprocessor had warps, which is more where some have
        none for a part of the time. How long that is may not be known: they are a part of `memory`,
        and were never busier by more than a point in 51 kernels of an A10G, an H100 and an H200."""
        told = self.share(f"l1tex__throughput{_ELAPSED}")
        while_active = self.share(f"l1tex__throughput{_ACTIVE}")
        if told is not None or while_active is None:
            return told
        if self.idle_multiprocessors is not None:
            return while_active * (1 - self.idle_multiprocessors)
        return while_active if self.memory is None else min(while_active, self.memory)

    @cached_property
    def l1_with_warps(self) -> float | None:
        """The L1 caches in the cycles in which their multiprocessor had warps: what limits these is
        not the grid's fault."""
        told = self.share(f"l1tex__throughput{_ACTIVE}")
        if told is not None or self.l1 is None:
            return told
        return min(self.l1 / max(1 - (self.idle_multiprocessors or 0.0), self.l1, 1e-9), 1.0)

    @property
    def busiest(self) -> float:
        """How busy the busiest unit is, of all that it could do (0 to 1)."""
        return max(self.compute or 0.0, self.memory or 0.0, self.l1 or 0.0, self.l2 or 0.0,
                   self.dram or 0.0)  # fmt: skip

    @cached_property
    def issue_slot_utilization(self) -> float | None:
        """Share of the cycles in which an SM had warps that one of them issued an instruction."""
        per_cycle = self.first("smsp__issue_active.avg.per_cycle_active")
        if per_cycle is not None:
            return min(per_cycle, 1.0)
        return self.share(
            f"smsp__issue_active{_ACTIVE}",
            f"sm__issue_active{_ELAPSED}",
            f"sm__inst_issued{_ELAPSED}",
            f"sm__inst_executed{_ELAPSED}",
        )

    @cached_property
    def tensor(self) -> float | None:
        """The tensor cores."""
        told = self.share(
            f"sm__pipe_tensor_cycles_active{_ELAPSED}",
            f"sm__pipe_tensor_cycles_active{_ACTIVE}",
            f"sm__pipe_tc_cycles_active{_ELAPSED}",
            f"sm__inst_executed_pipe_tensor{_ELAPSED}",
            f"sm__inst_executed_pipe_tensor{_ACTIVE}",
        )
        if told is not None:
            return told
        parts = self._total(*(f"sm__inst_executed_pipe_tensor_op_{op}{_ELAPSED}" for op in _MMA))
        return None if parts is None else min(parts / 100, 1.0)

    fp64 = _share_of(
        f"sm__pipe_fp64_cycles_active{_ELAPSED}",
        f"sm__pipe_fp64_cycles_active{_ACTIVE}",
        f"sm__inst_executed_pipe_fp64{_ELAPSED}",
        f"sm__inst_executed_pipe_fp64{_ACTIVE}",
    )

    xu_pipe = _share_of(f"sm__inst_executed_pipe_xu{_ELAPSED}")
    """The unit for what is seldom: conversions between 64 and 32 bits, roots, sines."""

    @cached_property
    def multiply_adds(self) -> float | None:
        """32-bit multiply-adds, as a share of the most that the SMs can do.

        From counts of instructions; else from pipes: on chips with two of them one also takes
        integers, and the other tells.
        """
        capability = self.device.compute_capability if self.device is not None else None
        lanes = 64 if capability in ((7, 0), (7, 5), (8, 0)) else 128
        counted = self.first(
            "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum.per_cycle_elapsed"
        )
        if counted is not None and self.sm_count and capability is not None:
            return min(counted / (lanes * self.sm_count), 1.0)
        both = self.share(f"sm__pipe_fma_cycles_active{_ELAPSED}")
        heavy = self.share(f"sm__pipe_fmaheavy_cycles_active{_ELAPSED}")
        if both is None or heavy is None:
            return None
        light = max(2 * both - heavy, 0.0)
        return min((light / 2 + min(light, both)) / 2, 1.0)

    @cached_property
    def half_multiply_adds(self) -> float | None:
        """16-bit multiply-adds outside of tensor cores: a thread's instructions a cycle and SM."""
        counted = self.first(
            "smsp__sass_thread_inst_executed_op_hfma_pred_on.sum.per_cycle_elapsed"
        )
        return counted / self.sm_count if counted is not None and self.sm_count else None

    # What it moves.

    @cached_property
    def dram_bytes(self) -> float | None:
        """Bytes read from and written to DRAM."""
        told = self.first("dram__bytes.sum")
        if told is None:
            told = self._total("dram__bytes_read.sum", "dram__bytes_write.sum")
        if told is not None:
            return told
        rate = self.first("dram__bytes.sum.per_second")
        return None if rate is None or self.seconds is None else rate * self.seconds

    @cached_property
    def dram_peak(self) -> float | None:
        """Theoretical, in bytes a second."""
        given = self.device.memory_bandwidth_bytes_per_s if self.device is not None else None
        if given is not None and given > 0:
            return given
        clock = self.first("dram__cycles_elapsed.avg.per_second")
        per_cycle = self.first("dram__bytes.sum.peak_sustained")
        return clock * per_cycle if clock and per_cycle else None

    sectors = _first_of("memory_l2_theoretical_sectors_global", "memory_l2_sectors_global")
    """Sectors of global memory that the kernel's instructions touch, as if no cache kept
    any."""

    ideal_sectors = _first_of(
        "memory_l2_theoretical_sectors_global_ideal", "memory_ideal_l2_sectors_global"
    )
    """Sectors of global memory that it would touch, were the threads of a warp side by side."""

    @cached_property
    def local_sectors(self) -> float | None:
        """Sectors of local memory that the kernel's instructions touch."""
        told = self.first("memory_l2_theoretical_sectors_local")
        if told is not None:
            return told
        return self._total(*(f"l1tex__t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in _OPS))

    @cached_property
    def local_beyond_l1(self) -> float | None:
        """Share that local memory has of the sectors that the L1 cache did not keep."""
        kept = "l1tex__t_sectors_pipe_lsu_mem_{}_op_ld_lookup_miss.sum"
        local, others = (
            self._total(kept.format(space), f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_st.sum")
            for space in ("local", "global")
        )
        if local is None or others is None or local + others <= 0:
            return None
        return local / (local + others)

    def sectors_of(self, what: str) -> float | None:
        """Return the sectors of `global_op_ld`, `local_op_st`, ... in the L1 cache."""
        return self.first(f"l1tex__t_sectors_pipe_lsu_mem_{what}.sum")

    def requests_of(self, what: str) -> float | None:
        """Return the instructions of warps of the same."""
        return self.first(_REQUESTS.format(what))

    def sectors_per_request(self, operation: str) -> float | None:
        """Return the sectors that a warp's access to global memory touches on average (`ld` or
        `st`).

        Stores pass the L1 cache, so that the L2 cache counts theirs too, with those of local
        memory; None where atomics or surfaces are among them.
        """
        sectors = self.sectors_of(f"global_op_{operation}")
        requests = self.requests_of(f"global_op_{operation}")
        if sectors is None and operation == "st":
            sectors = self.first("lts__t_sectors_srcunit_tex_op_write.sum")
            requests = self._total(*(_REQUESTS.format(f"{space}_op_st") for space in _SPACES))
            if any(self.first(name) for name in _WRITE_TOO):
                return None
        return sectors / requests if sectors is not None and requests else None

    @cached_property
    def load_sectors(self) -> float | None:
        """Sectors of global memory that a warp's load touches on average."""
        return self.sectors_per_request("ld")

    @cached_property
    def store_sectors(self) -> float | None:
        """Sectors of global memory that a warp's store touches on average."""
        return self.sectors_per_request("st")

    def sector_efficiency(self, operation: str) -> float | None:
        """Return the share of a sector that a warp uses of it (`ld` or `st`)."""
        name = f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{operation}.ratio"
        used = self.first(name)
        return None if used is None else min(used / SECTOR_BYTES, 1.0)

    @cached_property
    def accesses(self) -> float | None:
        """Instructions of warps that access memory of which another block may see something: global
        memory, textures and surfaces."""
        return self._total(*_ALL_ACCESSES)

    @cached_property
    def wavefronts(self) -> float | None:
        """Cycles that the L1 cache's data stage worked, over all SMs."""
        told = self.first("l1tex__data_pipe_lsu_wavefronts.sum")
        if told is not None:
            return told
        share = self.wavefront_share
        cycles = self.first("l1tex__cycles_elapsed.sum", "sm__cycles_elapsed.sum")
        return share * cycles if share is not None and cycles else None

    wavefront_share = _share_of(f"l1tex__data_pipe_lsu_wavefronts{_ELAPSED}")

    request_share = _share_of(f"l1tex__lsuin_requests{_ELAPSED}")
    """Instructions that the L1 cache takes in, of the most that it can."""

    load_share = _share_of(f"l1tex__lsu_writeback_active{_ELAPSED}")
    """Results that loads write back, of the most that the L1 cache can."""

    shared_wavefronts = _first_of(
        "memory_l1_wavefronts_shared", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
    )
    """Cycles that the L1 cache's data stage worked for shared memory, over all SMs."""

    @cached_property
    def shared_bank_conflicts(self) -> float | None:
        """Cycles of the L1 cache's data stage that bank conflicts of shared memory cost."""
        ideal = self.first("memory_l1_wavefronts_shared_ideal")
        told = self.first("memory_l1_wavefronts_shared")
        if ideal is not None and told is not None:
            return max(told - ideal, 0.0)
        told = self.first("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
        if told is not None:
            return told
        return self._total(
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
        )

    @cached_property
    def atomics(self) -> float | None:
        """Instructions of warps that change global memory atomically, with or without a result."""
        told = self._total(*(f"l1tex__t_requests_pipe_lsu_mem_global_op_{op}.sum" for op in _ATOMS))
        if told is not None:
            return told
        return self._total(*(f"lts__t_requests_srcunit_tex_op_{op}.sum" for op in _ATOMS))

    atomic_units = _mean_and_most_of("lts__d_atomic_input_cycles_active")
    """How busy the L2 cache's units for them are on average, and the busiest one."""

    l2_slices = _mean_and_most_of("lts__throughput")
    """How busy the L2 cache's slices are on average, and the busiest one: addresses are spread over
    them, so that only a few addresses keep one alone busy."""

    @cached_property
    def shared_atomics(self) -> tuple[float, float] | None:
        """Cycles that atomics on shared memory took, and those of them that were conflicts."""
        taken = self.first("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum")
        again = self.first("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum")
        return None if taken is None or again is None else (taken, again)

    # How its warps work.

    active_threads = _positive_of("smsp__thread_inst_executed_per_inst_executed.ratio")
    """Threads of a warp that an instruction is for, on average."""

    working_threads = _positive_of("smsp__thread_inst_executed_pred_on_per_inst_executed.ratio")
    """Threads of a warp that execute an instruction on average, without those that a condition
    keeps from it."""

    @cached_property
    def load_waits(self) -> float | None:
        """Share of their time that warps wait for a load from memory or the caches."""
        return self.stalled("long_scoreboard")

    fixed_wait_cycles = _first_of(*(name.format("wait") for name in _STALLED))
    """Cycles that an instruction waits for the one before it, whose time is fixed."""

    def stalled(self, *reasons: str) -> float | None:
        """Return the share of the warps' time that they wait for these reasons."""
        found = [self.first(*(name.format(reason) for name in _STALLED)) for reason in reasons]
        total = self.first(
            "smsp__average_warp_latency_per_inst_issued.ratio",
            "smsp__average_warps_active_per_inst_executed.ratio",
        )
        if None in found or not total:
            return None
        return min(sum(each for each in found if each is not None) / total, 1.0)


def _product(extent: tuple[int, int, int]) -> int | None:
    return math.prod(extent) if min(extent) > 0 else None


def _whole(value: float | None) -> int | None:
    return None if value is None or value < 1 else int(value)
