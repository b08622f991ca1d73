"""What happens inside the SMs, by GPM: Hopper and later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device

_METRICS = (
    "graphics_active_pct",
    "sm_active_pct",
    "sm_occupancy_pct",
    "tensor_active_pct",
    "fp64_active_pct",
    "fp32_active_pct",
    "fp16_active_pct",
    "dram_active_pct",
)


def _by_gpm(nvml: Any, device: Device) -> Sequence[Answer]:
    return device.gpm.read(nvml, device.handle, _METRICS)


CALLS = (Call(_METRICS, (_by_gpm,)),)
