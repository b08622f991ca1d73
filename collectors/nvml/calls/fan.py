"""The fan's speed in percent; it may be above 100, and boards without a fan do not have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device


def _speed(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetFanSpeed(device.handle),)


CALLS = (Call(("fan_pct",), (_speed,)),)
