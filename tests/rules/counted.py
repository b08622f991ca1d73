"""Kernels with counters, made by hand: a busy one on an H100, and what is different of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gpuadvisor.rules.evidence import Evidence
from tests.rules.building import H100, T4, counters

Cases = dict[str, Callable[[], Evidence]]
"""Evidence by what it is."""

ELAPSED = ".avg.pct_of_peak_sustained_elapsed"
ACTIVE = ".avg.pct_of_peak_sustained_active"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_{}.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_{}.sum"
USED = "smsp__sass_average_data_bytes_per_sector_mem_global_op_{}.ratio"

HEALTHY: Mapping[str, float] = {
    f"sm__throughput{ELAPSED}": 20.0,
    f"gpu__compute_memory_throughput{ELAPSED}": 85.0,
    f"gpu__dram_throughput{ELAPSED}": 85.0,
    f"lts__throughput{ELAPSED}": 60.0,
    f"l1tex__throughput{ELAPSED}": 20.0,
    f"sm__pipe_tensor_cycles_active{ELAPSED}": 0.0,
    f"sm__warps_active{ACTIVE}": 95.0,
    "sm__maximum_warps_per_active_cycle_pct": 100.0,
    "sm__cycles_active.avg": 1_960_000.0,
    "gpc__cycles_elapsed.max": 1_980_000.0,
    "launch__occupancy_limit_registers": 16.0,
    "launch__occupancy_limit_shared_mem": 32.0,
    "launch__occupancy_limit_warps": 8.0,
    "launch__occupancy_limit_blocks": 32.0,
    "launch__registers_per_thread": 16.0,
    "launch__shared_mem_per_block_static": 0.0,
    "launch__shared_mem_per_block_dynamic": 0.0,
    "memory_l2_theoretical_sectors_global": 89e6,
    "memory_l2_theoretical_sectors_global_ideal": 89e6,
    "memory_l2_theoretical_sectors_local": 0.0,
    "dram__bytes_read.sum": 1.425e9,
    "dram__bytes_write.sum": 1.425e9,
    SECTORS.format("global_op_ld"): 44.5e6,
    SECTORS.format("global_op_st"): 44.5e6,
    REQUESTS.format("global_op_ld"): 11.1e6,
    REQUESTS.format("global_op_st"): 11.1e6,
    REQUESTS.format("global_op_atom"): 0.0,
    REQUESTS.format("global_op_red"): 0.0,
    USED.format("ld"): 32.0,
    USED.format("st"): 32.0,
    "smsp__thread_inst_executed_per_inst_executed.ratio": 32.0,
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": 30.0,
    "smsp__average_warp_latency_per_inst_issued.ratio": 100.0,
    STALLED.format("long_scoreboard"): 80.0,
}
"""A copy that reaches 85 % of the memory's bandwidth, in a millisecond."""

QUIET: Mapping[str, float] = {
    f"sm__throughput{ELAPSED}": 15.0,
    f"gpu__compute_memory_throughput{ELAPSED}": 20.0,
    f"gpu__dram_throughput{ELAPSED}": 20.0,
    f"lts__throughput{ELAPSED}": 15.0,
    f"l1tex__throughput{ELAPSED}": 10.0,
    "dram__bytes_read.sum": 0.33e9,
    "dram__bytes_write.sum": 0.33e9,
    STALLED.format("long_scoreboard"): 20.0,
}
"""What is different of a kernel that uses nothing much."""

UNITS_UNKNOWN: Mapping[str, None] = dict.fromkeys(
    f"{unit}{ELAPSED}"
    for unit in ("sm__throughput", "gpu__compute_memory_throughput", "gpu__dram_throughput",
                 "lts__throughput", "l1tex__throughput")
)  # fmt: skip
"""What is different of a report without the section SpeedOfLight."""


def kernel(
    *changes: Mapping[str, float | None], without: str | None = None, **shape: Any
) -> Evidence:
    """Return the evidence of a healthy kernel with changed metrics; None takes one away."""
    metrics: dict[str, Any] = dict(HEALTHY)
    for each in changes:
        metrics.update(each)
    kept = {
        name: value
        for name, value in metrics.items()
        if value is not None and (without is None or without not in name)
    }
    return counters(kept, **{"device": H100, **shape})


def few_warps(
    limiter: str, blocks: int, occupancy: float, achieved: float = 0.95, **shape: Any
) -> Evidence:
    """Return a kernel that waits and of which a limiter lets so many blocks in; a part of their
    warps is there."""
    return kernel(
        QUIET,
        {
            f"launch__occupancy_limit_{limiter}": blocks,
            "sm__maximum_warps_per_active_cycle_pct": occupancy,
            f"sm__warps_active{ACTIVE}": achieved * occupancy,
        },
        **shape,
    )


def limited_warps(limiter: str, other: str, named: str) -> tuple[Cases, Cases]:
    """Return kernels that wait as this limiter lets two blocks in, of the eight that warps would
    allow, and such as do not, or not for that; `other` limits one of them and is called `named`."""
    limited = partial(few_warps, limiter, 2)

    def busy(share: float) -> Evidence:
        return kernel(
            QUIET,
            {
                f"launch__occupancy_limit_{limiter}": 2,
                "sm__maximum_warps_per_active_cycle_pct": 25.0,
                f"sm__warps_active{ACTIVE}": 24.0,
                f"sm__throughput{ELAPSED}": share,
            },
        )

    fires: Cases = {
        "a quarter of the warps": lambda: limited(25.0),
        "just few enough": lambda: limited(69.0),
        "on a small chip": lambda: limited(25.0, device=T4, ms=10.5),
        "half busy": lambda: busy(55.0),
        "a program's own, named as a library's method": lambda: limited(25.0, name="flash_decoder"),
        "few of the blocks for which there would be room": lambda: limited(25.0, grid=132 * 3),
        "enough blocks for any GPU": lambda: limited(25.0, device=None),
    }
    silent: Cases = {
        "just enough warps": lambda: limited(71.0),
        "busy enough": lambda: busy(61.0),
        "a library's kernel": lambda: limited(25.0, name="cutlass_80_simt_sgemm_128x64"),
        f"{named} are the limit": lambda: few_warps(other, 2, 25.0),
        "as many blocks as fit, and no more": lambda: limited(25.0, grid=132 * 2),
        "how many blocks fit is not known": lambda: limited(25.0, grid=132 * 3, device=None),
        "not counted what limits": lambda: limited(25.0, without="occupancy_limit"),
    }
    return fires, silent
