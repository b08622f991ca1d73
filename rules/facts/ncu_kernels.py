"""Kernels that Nsight Compute measured: their hardware counters and their place on the roofline.

Nsight Compute gives the shares of the device's ceilings itself, at the clock of its measurement;
the operations outside of tensor cores follow from its counts of instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.device_work import SHAPE
from gpuadvisor.rules.facts.intervals import by_key
from gpuadvisor.rules.facts.kernel_metrics import LAUNCH_TIMES
from gpuadvisor.rules.facts.roofline import Bound, bound

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
MOVED = "dram__bytes.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
CYCLES_PER_S = "smsp__cycles_elapsed.avg.per_second"
PER_CYCLE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
OPERATIONS = {f"{kind}{does}": 2 if does == "fma" else 1
              for kind in "fdh" for does in ("add", "mul", "fma")}  # fmt: skip
"""Instructions of 32, 64 and 16 bits to what each thread computes with one; those of 16 bits that
compute two numbers at once count as one."""


@dataclass(frozen=True)
class KernelCounters:
    """Launches of one kernel with the same grid and block."""

    name: str
    grid: tuple[int, int, int]
    """Blocks; -1 where it is not known."""
    block: tuple[int, int, int]
    """Threads."""
    count: int
    time_ns: float
    """Sum of the launches' times; 0 where it was not counted."""
    metrics: Mapping[str, float]
    """Metrics of the launch whose time is in the middle, in base units; percentages are 0 to 100.
    Values that are not finite are left out."""
    row: int
    """Row of that launch in the table of kernels."""

    def get(self, metric: str) -> float | None:
        """Return a counter, None where it was not collected."""
        return self.metrics.get(metric)


def kernel_counters(profile: Profile) -> tuple[KernelCounters, ...]:
    """Return the kernels that have counters, those with most time first."""
    if not profile.rows("metrics"):
        return ()
    metrics = profile.columns("metrics", ("kernel", "metric", "value"))
    kernels = profile.columns("kernels", ("name", *SHAPE))
    known = (metrics["kernel"] >= 0) & (metrics["kernel"] < len(kernels["name"]))
    rows = np.flatnonzero(known & np.isfinite(metrics["value"]))
    texts = profile.header.texts
    launches: dict[tuple[int, ...], list[tuple[float, int, Mapping[str, float]]]] = {}
    for kernel, at in by_key(metrics["kernel"][rows]):
        mine = rows[at]
        names, values = metrics["metric"][mine].tolist(), metrics["value"][mine].tolist()
        told = {texts[name]: value for name, value in zip(names, values, strict=True)}
        key = tuple(int(kernels[column][kernel]) for column in ("name", *SHAPE))
        launches.setdefault(key, []).append((_launch_s(told) or 0.0, kernel, told))
    found = [_together(texts[key[0]], key[1:], alike) for key, alike in launches.items()]
    return tuple(sorted(found, key=lambda each: (-each.time_ns, each.row)))


def _launch_s(told: Mapping[str, float]) -> float | None:
    """Return the time of one launch in seconds, None where it was not counted."""
    return next((told[each] for each in LAUNCH_TIMES if each in told), None)


def _together(
    name: str, shape: tuple[int, ...], alike: list[tuple[float, int, Mapping[str, float]]]
) -> KernelCounters:
    alike.sort(key=lambda each: each[:2])
    _, row, metrics = alike[len(alike) // 2]
    seconds = sum(each[0] for each in alike)
    grid, block = shape[:3], shape[3:]
    return KernelCounters(
        name,
        (grid[0], grid[1], grid[2]),
        (block[0], block[1], block[2]),
        len(alike),
        1e9 * seconds,
        metrics,
        row,
    )


@dataclass(frozen=True)
class NcuKernel:
    """One kernel; None where its metric was not collected."""

    row: int
    """Row of the table of kernels."""
    name: str
    seconds: float | None
    dram_bytes: float | None
    bandwidth_bytes_per_s: float | None
    flops_per_s: float | None
    """Operations a second without those on tensor cores."""
    intensity_flops_per_byte: float | None
    compute_share: float | None
    """Share of the busiest compute unit's ceiling."""
    memory_share: float | None
    bound: Bound


def ncu_kernels(profile: Profile) -> tuple[NcuKernel, ...]:
    """Return the kernels that have metrics, in their order."""
    metrics = profile.columns("metrics", ("kernel", "metric", "value"))
    names = profile.columns("kernels", ("name",))["name"]
    texts = profile.header.texts
    wanted = np.isin(metrics["metric"], [n for n, text in enumerate(texts) if text in _USED])
    rows = np.flatnonzero(wanted & (metrics["kernel"] >= 0) & (metrics["kernel"] < len(names)))
    return tuple(
        _counted(
            kernel,
            texts[int(names[kernel])],
            {texts[int(metrics["metric"][row])]: float(metrics["value"][row]) for row in rows[at]},
        )
        for kernel, at in by_key(metrics["kernel"][rows])
    )


_USED = {*LAUNCH_TIMES, READ, WRITTEN, MOVED, COMPUTE, MEMORY, CYCLES_PER_S} | {
    PER_CYCLE.format(each) for each in OPERATIONS
}


def _counted(row: int, name: str, values: Mapping[str, float]) -> NcuKernel:
    values = {metric: value for metric, value in values.items() if np.isfinite(value)}
    seconds = _launch_s(values)
    moved = values.get(MOVED)
    if moved is None and READ in values and WRITTEN in values:
        moved = values[READ] + values[WRITTEN]
    bandwidth = moved / seconds if moved is not None and seconds else None
    flops = _flops_per_s(values)
    shares = [values[each] / 100 if each in values else None for each in (COMPUTE, MEMORY)]
    return NcuKernel(
        row,
        name,
        seconds,
        moved,
        bandwidth,
        flops,
        flops / bandwidth if flops is not None and bandwidth else None,
        shares[0],
        shares[1],
        bound(shares[0], shares[1]),
    )


def _flops_per_s(values: Mapping[str, float]) -> float | None:
    counts = {each: values.get(PER_CYCLE.format(each)) for each in OPERATIONS}
    if CYCLES_PER_S not in values or all(count is None for count in counts.values()):
        return None
    a_cycle = sum((count or 0.0) * OPERATIONS[each] for each, count in counts.items())
    return a_cycle * values[CYCLES_PER_S]
