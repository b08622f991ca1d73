"""Device memory, in bytes.

The second version of the structure says what the driver keeps for itself; in the first one that
is a part of what is in use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device


def _with_reserved(nvml: Any, device: Device) -> Sequence[Answer]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device.handle, version=nvml.nvmlMemory_v2)
    return memory.used, memory.free, memory.reserved


def _without_reserved(nvml: Any, device: Device) -> Sequence[Answer]:
    memory = nvml.nvmlDeviceGetMemoryInfo(device.handle)
    return memory.used, memory.free, None


def _total(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetMemoryInfo(device.handle).total,)


CALLS = (
    Call(
        ("memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"),
        (_with_reserved, _without_reserved),
        for_instances=True,
    ),
    Call(("memory_total_bytes",), (_total,), for_instances=True),
)
