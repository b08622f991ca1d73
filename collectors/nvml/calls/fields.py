"""What is only a field value. One call takes 0.5 ms on an H100 however many it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device
from gpuadvisor.collectors.nvml.field_values import read


def _fields(nvml: Any, device: Device) -> Sequence[Answer]:
    fields = nvml.NVML_FI_DEV_POWER_INSTANT, nvml.NVML_FI_DEV_MEMORY_TEMP
    return [answer for answer, _ in read(nvml, device, fields)]


CALLS = (Call(("power_instant_w", "memory_temperature_c"), (_fields,), (1000, 1)),)
