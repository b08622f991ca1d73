"""Timelines in which the GPU is the limit, or its host, for the cases of rules about kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuadvisor.domain.profile import CallKind, DeviceLimits, Range
from gpuadvisor.rules.evidence import Evidence
from tests.profiles import Made
from tests.rules.building import H100, timeline

LAUNCH = 5
"""Microseconds that the host takes for each."""

A100 = DeviceLimits(
    0,
    "NVIDIA A100-SXM4-80GB",
    compute_capability=(8, 0),
    sm_count=108,
    memory_bytes=84_990_623_744,
    registers_per_multiprocessor=65_536,
    shared_bytes_per_multiprocessor=167_936,
    shared_bytes_per_block=166_912,
    threads_per_multiprocessor=2048,
)
A10G = DeviceLimits(
    0, "NVIDIA A10G", compute_capability=(8, 6), sm_count=80, memory_bytes=24_000_000_000
)
V100 = DeviceLimits(
    0, "Tesla V100-SXM2-32GB", compute_capability=(7, 0), sm_count=80,
    memory_bytes=34_089_730_048,
)  # fmt: skip
MI300 = DeviceLimits(0, "AMD Instinct MI300X VF", sm_count=304)


@dataclass(frozen=True)
class K:
    """A kernel, with the operator that launches it."""

    name: str
    us: float = 100
    operator: str = ""
    shapes: str = ""
    types: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    """Columns of the kernel."""
    inputs: str = ""


def grid(blocks: int, threads: int = 256, registers: int = 32, shared: int = 0) -> dict[str, Any]:
    """Return a launch's shape as columns."""
    return {
        "grid_x": blocks, "grid_y": 1, "grid_z": 1, "block_x": threads, "block_y": 1, "block_z": 1,
        "registers": registers, "shared_bytes": shared,
    }  # fmt: skip


def queued(
    kernels: Iterable[K],
    device: DeviceLimits | None = H100,
    *,
    ranges: Sequence[tuple[str, float, float]] = (),
    pace: float = LAUNCH,
    memory: Sequence[tuple[float, int, int]] = (),
    **evidence: Any,
) -> Evidence:
    """Return kernels that the host launches one after the other; the GPU works when it can.

    `pace`: microseconds from call to call. `ranges`: names, begins and ends, in kernels launched
    before them. `memory`: time, allocated and reserved bytes.
    """
    made = Made()
    calls, free = 0.0, 0.0
    for number, each in enumerate(kernels):
        calls = 10 + number * pace
        free = max(free, calls + LAUNCH + 2)
        if each.operator:
            words = {name: getattr(each, name) for name in ("shapes", "types", "inputs")}
            made.operator(each.operator, (calls - 1, LAUNCH), **words)
        made.launched(each.name, (calls, LAUNCH - 1), (free, each.us), **(each.more or grid(4096)))
        free += each.us
    made.call("cudaDeviceSynchronize", (calls + LAUNCH, free - calls), CallKind.SYNCHRONIZE)
    for name, begin, end in ranges:
        made.range(name, (9 + begin * pace, (end - begin) * pace), Range.USER)
    for time, allocated, reserved in memory:
        made.row(
            "memory", time_ns=round(1000 * time), device=0, bytes=1,
            allocated_bytes=allocated, reserved_bytes=reserved,
        )  # fmt: skip
    return timeline(made, device, **evidence)
