"""How busy the GPU is: the share of time, not of its SMs; averaged over 1/6 to 1 s by product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device


def _rates(nvml: Any, device: Device) -> Sequence[Answer]:
    rates = nvml.nvmlDeviceGetUtilizationRates(device.handle)
    return rates.gpu, rates.memory


CALLS = (Call(("gpu_utilization_pct", "memory_utilization_pct"), (_rates,)),)
