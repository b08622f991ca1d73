"""The hardware counters of kernels, by Nsight Compute's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gpuadvisor.domain.profile import Profile
from gpuadvisor.rules.facts.intervals import by_key

TIME = "gpu__time_duration.sum"
_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


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
    """Of all of them; 0 where it was not counted."""
    metrics: Mapping[str, float]
    """Of the launch whose time is in the middle, in base units; percentages are 0 to 100. Values
    that are not finite are left out."""
    row: int
    """Of the table of kernels: that launch."""

    def get(self, metric: str) -> float | None:
        """Return a counter, None where it was not collected."""
        return self.metrics.get(metric)


def kernel_counters(profile: Profile) -> tuple[KernelCounters, ...]:
    """Return the kernels that have counters, those with most time first."""
    if not profile.rows("metrics"):
        return ()
    metrics = profile.columns("metrics", ("kernel", "metric", "value"))
    kernels = profile.columns("kernels", ("name", *_SHAPE))
    known = (metrics["kernel"] >= 0) & (metrics["kernel"] < len(kernels["name"]))
    rows = np.flatnonzero(known & np.isfinite(metrics["value"]))
    texts = profile.header.texts
    launches: dict[tuple[int, ...], list[tuple[float, int, Mapping[str, float]]]] = {}
    for kernel, at in by_key(metrics["kernel"][rows]):
        mine = rows[at]
        names, values = metrics["metric"][mine].tolist(), metrics["value"][mine].tolist()
        told = {texts[name]: value for name, value in zip(names, values, strict=True)}
        key = tuple(int(kernels[column][kernel]) for column in ("name", *_SHAPE))
        launches.setdefault(key, []).append((told.get(TIME, 0.0), kernel, told))
    found = [_together(texts[key[0]], key[1:], alike) for key, alike in launches.items()]
    return tuple(sorted(found, key=lambda each: (-each.time_ns, each.row)))


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
