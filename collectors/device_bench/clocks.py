"""What NVML says of a GPU's highest clocks and of its memory's bus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuadvisor.collectors.nvml import library as nvml


@dataclass(frozen=True)
class Clocks:
    """None where NVML does not say."""

    sm_hz: float | None = None
    memory_hz: float | None = None
    bus_width_bits: int | None = None


def clocks(uuid: str | None) -> Clocks:
    """Return a GPU's highest clocks; it never raises."""
    if uuid is None:
        return Clocks()
    try:
        return nvml.query(lambda library: _ask(library, uuid))
    except nvml.Unavailable:
        return Clocks()


def _ask(library: Any, uuid: str) -> Clocks:
    gpu = library.nvmlDeviceGetHandleByUUID(uuid)

    def highest(kind: int) -> float | None:
        mhz = nvml.read(library, "nvmlDeviceGetMaxClockInfo", gpu, kind)
        return None if not mhz else mhz * 1e6

    return Clocks(
        highest(library.NVML_CLOCK_SM),
        highest(library.NVML_CLOCK_MEM),
        nvml.read(library, "nvmlDeviceGetMemoryBusWidth", gpu),
    )
