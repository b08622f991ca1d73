"""Evidence made by hand, for the cases of rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made

H100 = DeviceLimits(
    0,
    "NVIDIA H100 80GB HBM3",
    compute_capability=(9, 0),
    sm_count=132,
    memory_bytes=85_520_809_984,
    memory_bandwidth_bytes_per_s=3.352e12,
    l2_bytes=52_428_800,
    clock_hz=1.98e9,
    registers_per_multiprocessor=65_536,
    shared_bytes_per_multiprocessor=233_472,
    shared_bytes_per_block=232_448,
    threads_per_multiprocessor=2048,
)
T4 = DeviceLimits(
    0,
    "Tesla T4",
    compute_capability=(7, 5),
    sm_count=40,
    memory_bandwidth_bytes_per_s=320e9,
    clock_hz=1.59e9,
    registers_per_multiprocessor=65_536,
    shared_bytes_per_multiprocessor=65_536,
    shared_bytes_per_block=65_536,
    threads_per_multiprocessor=1024,
)


def timeline(
    made: Made,
    device: DeviceLimits | None = H100,
    recorded: Mapping[str, str] | None = None,
    source: str = "kineto",
    **evidence: Any,
) -> Evidence:
    """Return the evidence of a profile with a timeline; `recorded` says how, as Kineto does."""
    return Evidence(facts=Facts(_profile(made, source, device, recorded)), **evidence)


def counters(
    metrics: Mapping[str, float],
    name: str = "kernel",
    *,
    ms: float = 1.0,
    grid: int = 10_000,
    block: int = 256,
    device: DeviceLimits | None = H100,
    beside_ms: float | None = None,
    untimed: str = "",
) -> Evidence:
    """Return the evidence of one kernel under Nsight Compute; of two where there is one `beside`
    it, of which only the time was counted, and of one more of which nothing was."""
    made = Made()
    times = {name: ms} if beside_ms is None else {name: ms, "beside": beside_ms}
    for number, (each, took) in enumerate(times.items()):
        made.kernel(
            each, (0, 1000 * took),
            grid_x=grid, grid_y=1, grid_z=1, block_x=block, block_y=1, block_z=1,
        )  # fmt: skip
        counted = {"gpu__time_duration.sum": took / 1e3, **({} if number else metrics)}
        for metric, value in counted.items():
            found = math.nan if value is None else value
            made.row("metrics", kernel=number, metric=metric, value=found)
    if untimed:
        made.kernel(untimed, (0, 0))
    return Evidence(facts=Facts(_profile(made, "ncu", device)))


def _profile(
    made: Made,
    source: str,
    device: DeviceLimits | None,
    recorded: Mapping[str, str] | None = None,
) -> MemoryProfile:
    devices = () if device is None else (device,)
    return made.profile(source=source, devices=devices, facts=recorded or {})
