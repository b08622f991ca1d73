"""Names and units of Nsight Compute's metrics.

`ncu --csv` without `--page raw` writes labels; everything else asks for metrics by name. The pairs
are those of the headers in the `sections` folder of Nsight Compute (2025).

It scales each column of each report to what reads best (`Kbyte` here, `Mbyte` there), decimally:
a Kbyte is 1,000 bytes. Reports, and `--print-units base`, have base units with other names.
"""

from __future__ import annotations

from functools import lru_cache

_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SMALL = {"": 1.0, "m": 1e-3, "u": 1e-6, "\u00b5": 1e-6, "n": 1e-9, "p": 1e-12}
_SECONDS = ("s", "sec", "second")
_UNITS: dict[str, tuple[float, str]] = {
    **{f"{prefix}byte": (factor, "byte") for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}bytes": (factor, "byte") for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}hz": (factor, "hertz") for prefix, factor in _PREFIXES.items()},
    **{f"{prefix}hertz": (factor, "hertz") for prefix, factor in _PREFIXES.items()},
    **{
        f"{prefix}{second}": (factor, "second")
        for prefix, factor in _SMALL.items()
        for second in _SECONDS
    },
    "minute": (60.0, "second"),
    "hour": (3600.0, "second"),
}
_SAME = {"cycle/second": "hertz"}
"""What older versions call a clock's rate."""
_THROUGHPUT = "pct_of_peak_sustained_elapsed"
_METRICS = {
    "Compute (SM) Throughput": f"sm__throughput.avg.{_THROUGHPUT}",
    "Compute (SM) [%]": f"sm__throughput.avg.{_THROUGHPUT}",  # until 2021
    "SM [%]": f"sm__throughput.avg.{_THROUGHPUT}",  # until 2020
    "Memory [%]": f"gpu__compute_memory_throughput.avg.{_THROUGHPUT}",
    "DRAM Throughput": f"gpu__dram_throughput.avg.{_THROUGHPUT}",
    "L1/TEX Cache Throughput": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "L2 Cache Throughput": f"lts__throughput.avg.{_THROUGHPUT}",
    "Duration": "gpu__time_duration.sum",
    "Elapsed Cycles": "gpc__cycles_elapsed.max",
    "SM Active Cycles": "sm__cycles_active.avg",
    "SM Frequency": "gpc__cycles_elapsed.avg.per_second",
    "DRAM Frequency": "dram__cycles_elapsed.avg.per_second",
    "Grid Size": "launch__grid_size",
    "Block Size": "launch__block_size",
    "Cluster Size": "launch__cluster_size",
    "Threads": "launch__thread_count",
    "Waves Per SM": "launch__waves_per_multiprocessor",
    "Registers Per Thread": "launch__registers_per_thread",
    "Static Shared Memory Per Block": "launch__shared_mem_per_block_static",
    "Dynamic Shared Memory Per Block": "launch__shared_mem_per_block_dynamic",
    "Driver Shared Memory Per Block": "launch__shared_mem_per_block_driver",
    "Shared Memory Configuration Size": "launch__shared_mem_config_size",
    "Function Cache Configuration": "launch__func_cache_config",
    "Stack Size": "launch__stack_size",
    "# SMs": "launch__sm_count",
    "# TPCs": "launch__tpc_count",
    "Theoretical Occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "Theoretical Active Warps per SM": "sm__maximum_warps_avg_per_active_cycle",
    "Achieved Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "Achieved Active Warps Per SM": "sm__warps_active.avg.per_cycle_active",
    "Block Limit SM": "launch__occupancy_limit_blocks",
    "Block Limit Registers": "launch__occupancy_limit_registers",
    "Block Limit Shared Mem": "launch__occupancy_limit_shared_mem",
    "Block Limit Warps": "launch__occupancy_limit_warps",
    "Block Limit Barriers": "launch__occupancy_limit_barriers",
    "Mem Busy": f"gpu__compute_memory_access_throughput.avg.{_THROUGHPUT}",
    "Max Bandwidth": f"gpu__compute_memory_request_throughput.avg.{_THROUGHPUT}",
    "Mem Pipes Busy": f"sm__memory_throughput.avg.{_THROUGHPUT}",
    "L1/TEX Hit Rate": "l1tex__t_sector_hit_rate.pct",
    "L2 Hit Rate": "lts__t_sector_hit_rate.pct",
    "Executed Ipc Active": "sm__inst_executed.avg.per_cycle_active",
    "Executed Ipc Elapsed": "sm__inst_executed.avg.per_cycle_elapsed",
    "Issued Ipc Active": "sm__inst_issued.avg.per_cycle_active",
    "Active Warps Per Scheduler": "smsp__warps_active.avg.per_cycle_active",
    "Eligible Warps Per Scheduler": "smsp__warps_eligible.avg.per_cycle_active",
    "Issued Warp Per Scheduler": "smsp__issue_active.avg.per_cycle_active",
    "No Eligible": "smsp__issue_inst0.avg.pct_of_peak_sustained_active",
    "One or More Eligible": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "Avg. Active Threads Per Warp": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "Avg. Not Predicated Off Threads Per Warp": (
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio"
    ),
    "Warp Cycles Per Issued Instruction": "smsp__average_warp_latency_per_inst_issued.ratio",
    "Warp Cycles Per Executed Instruction": "smsp__average_warps_active_per_inst_executed.ratio",
    "Executed Instructions": "smsp__inst_executed.sum",
    "Issued Instructions": "smsp__inst_issued.sum",
}
_AMBIGUOUS = "Memory Throughput"
"""Labels of a share in one section and of bytes a second in another."""


@lru_cache(maxsize=4096)
def base_unit(unit: str) -> tuple[float, str]:
    """Return what a value is multiplied by, and its base unit: 1e6, `byte/second` for `Mbyte/s`.

    Parts that have no base unit (`%`, `inst`, `sector`) stay as they are.
    """
    above, *below = unit.strip().split("/")
    factor, name = _UNITS.get(above, (1.0, above))
    for part in below:
        divisor, part_name = _UNITS.get(part, (1.0, part))
        factor /= divisor
        name += f"/{part_name}"
    return factor, _SAME.get(name, name)


def metric_name(label: str, unit: str) -> str:
    """Return the metric that a label stands for; what is no known label stays."""
    if label == _AMBIGUOUS:
        share = f"gpu__compute_memory_throughput.avg.{_THROUGHPUT}"
        return share if unit == "%" else "dram__bytes.sum.per_second"
    return _METRICS.get(label, label)
