"""Temperatures, in Celsius; that of the memory is read in `fields.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device


def _versioned(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetTemperatureV(device.handle, nvml.NVML_TEMPERATURE_GPU),)


def _plain(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetTemperature(device.handle, nvml.NVML_TEMPERATURE_GPU),)


def _slowdown(nvml: Any, device: Device) -> Sequence[Answer]:
    threshold = nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    return (nvml.nvmlDeviceGetTemperatureThreshold(device.handle, threshold),)


CALLS = (
    Call(("temperature_c",), (_versioned, _plain)),
    Call(("temperature_slowdown_c",), (_slowdown,)),
)
