"""Frames made by hand, as a source would give them: of H100s, at times that never change."""

from collections.abc import Mapping

from gpuadvisor.domain.telemetry import HOST, Event, Frame, Gpu, Number, Sample, State, Unavailable

GIB = 2**30
START_S = 1_700_000_000.0
"""Tuesday, 14 November 2023, 22:13:20 UTC."""

BUSY: Mapping[str, Number] = {
    "gpu_utilization_pct": 97,
    "memory_utilization_pct": 41,
    "memory_used_bytes": 71 * GIB,
    "memory_total_bytes": 80 * GIB,
    "power_w": 652.3,
    "power_limit_w": 700.0,
    "temperature_c": 67,
    "temperature_slowdown_c": 87,
    "sm_clock_mhz": 1755,
    "sm_clock_max_mhz": 1980,
    "throttle_reasons": 0,
    "sm_active_pct": 81.4,
    "sm_occupancy_pct": 33.2,
    "tensor_active_pct": 44.5,
    "dram_active_pct": 38.7,
    "pcie_rx_bytes_per_s": 1.25e9,
    "pcie_tx_bytes_per_s": 3.4e6,
    "nvlink_rx_bytes_per_s": 41.2e9,
    "nvlink_tx_bytes_per_s": 40.9e9,
}
MACHINE: Mapping[str, Number] = {
    "cpu_pct": 12.5,
    "host_memory_used_bytes": 100 * GIB,
    "host_memory_total_bytes": 512 * GIB,
}


def h100(index: int) -> Gpu:
    return Gpu(f"GPU-{index}", index, "NVIDIA H100 80GB HBM3", memory_total_bytes=80 * GIB)


def sample(
    unavailable: Mapping[str, Unavailable] | None = None, **changes: Number | None
) -> Sample:
    """A busy GPU with some values changed, or left out (None); without kernels no SM is active."""
    if changes.get("gpu_utilization_pct") == 0:
        changes.setdefault("sm_active_pct", 0)
    values = {n: v for n, v in {**BUSY, **changes}.items() if v is not None}
    return Sample(
        {n: v for n, v in values.items() if n not in (unavailable or {})}, unavailable or {}
    )


def all_in(state: State, since_s: float, reason: str = "") -> Sample:
    """A GPU of which nothing can be read."""
    return Sample({}, {name: Unavailable(state, since_s, reason) for name in BUSY})


def frame(
    at_s: float,
    *samples: Sample,
    events: tuple[Event, ...] = (),
    problem: str | None = None,
    gpus: tuple[Gpu, ...] | None = None,
) -> Frame:
    """A full frame `at_s` seconds after the start, with a sample for each GPU from number 0."""
    by_uuid = {h100(index).uuid: each for index, each in enumerate(samples)}
    listed = tuple(h100(index) for index in range(len(samples))) if gpus is None else gpus
    return Frame(
        START_S + at_s,
        {**by_uuid, HOST: Sample(MACHINE)},
        gpus=listed if samples or gpus is not None else None,
        events=events,
        problem=problem,
    )
