"""Telemetry made by hand, for the cases of rules about the machine: an H100, read once a second."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, GpuProcess, Number, Sample
from gpuadvisor.domain.telemetry_window import window_of_frames
from gpuadvisor.rules.evidence import Evidence
from tests.profiles import Made
from tests.rules.building import timeline

GIB = 2**30
START_S = 1_700_000_000.0
NAME = "NVIDIA H100 80GB HBM3"
GPU = Gpu("GPU-0", 0, NAME, 80 * GIB, "00000000:00:06.0", (9, 0))
A100 = replace(GPU, name="NVIDIA A100-SXM4-80GB", compute_capability=(8, 0))
OTHER = replace(GPU, uuid="GPU-1", index=1)
AT_WORK: Mapping[str, Number] = {
    "gpu_utilization_pct": 98,
    "throttle_reasons": 0,
    "sm_clock_mhz": 1980,
    "sm_clock_max_mhz": 1980,
    "power_w": 520.0,
    "power_limit_w": 700.0,
    "temperature_c": 61,
    "sm_active_pct": 82.0,
    "tensor_active_pct": 40.0,
    "dram_active_pct": 35.0,
    "memory_used_bytes": 40 * GIB,
    "memory_total_bytes": 80 * GIB,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_volatile": 3,
    "remap_pending": 0,
    "remap_failed": 0,
}
IDLE: Mapping[str, Number] = {
    "gpu_utilization_pct": 0,
    "throttle_reasons": 0x1,
    "sm_clock_mhz": 345,
    "power_w": 70.0,
    "sm_active_pct": 0.0,
    "pcie_generation": 1,
}

Phase = tuple[int, Mapping[str, Number | None]]
"""How many seconds, and what differs then from a healthy GPU at work; None is not read."""


def machine(
    *phases: Phase,
    gpu: Gpu = GPU,
    processes: tuple[GpuProcess, ...] | None = None,
    events: tuple[Event, ...] = (),
    **evidence: Any,
) -> Evidence:
    """Return the evidence of a machine with one GPU that went through these phases."""
    frames = list(frames_of(*phases, gpu=gpu))
    frames[-1] = replace(frames[-1], processes=processes, events=events)
    return Evidence(telemetry=window_of_frames(frames), **evidence)


def frames_of(*phases: Phase, gpu: Gpu = GPU) -> list[Frame]:
    """Return a frame a second."""
    seconds = [changes for count, changes in phases for _ in range(count)]
    return [
        Frame(
            START_S + at_s,
            {gpu.uuid: Sample({n: v for n, v in {**AT_WORK, **each}.items() if v is not None})},
            gpus=(gpu,) if at_s == 0 else None,
        )
        for at_s, each in enumerate(seconds)
    ]


def process(pid: int, **changed: Any) -> GpuProcess:
    """Return a process that works on the GPU."""
    usual = {"name": "python", "sm_utilization_pct": 90.0, "parent_pid": 1}
    return GpuProcess(GPU.uuid, pid, "compute", 8 * GIB, **{**usual, **changed})


def run_of(pid: int = 100, kernel_ms: float = 8.0, device: str = NAME) -> Evidence:
    """Return the evidence of a profile of 10 ms, with a kernel of so many and a copy of one."""
    made = Made()
    made.launched("gemm", call=(0, 5), runs=(0, 1000 * kernel_ms))
    made.copied(call=(10, 5), runs=(9000, 1000))
    limits = DeviceLimits(0, device, compute_capability=(9, 0))
    evidence = timeline(made, limits)
    assert evidence.facts is not None
    header = replace(evidence.facts.profile.header, processes={pid: "python"})
    evidence.facts.profile.finish(header)
    return evidence


def profiled(measured: Evidence, **profile: Any) -> Evidence:
    """Return the same telemetry, beside a profile of what ran meanwhile."""
    return replace(measured, facts=run_of(**profile).facts)
