"""Clocks in MHz, the highest ones, why they are held down, and the performance state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device


def _sm(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetClockInfo(device.handle, nvml.NVML_CLOCK_SM),)


def _memory(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetClockInfo(device.handle, nvml.NVML_CLOCK_MEM),)


def _sm_max(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetMaxClockInfo(device.handle, nvml.NVML_CLOCK_SM),)


def _memory_max(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetMaxClockInfo(device.handle, nvml.NVML_CLOCK_MEM),)


def _event_reasons(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetCurrentClocksEventReasons(device.handle),)


def _throttle_reasons(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device.handle),)


def _state(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetPerformanceState(device.handle),)


CALLS = (
    Call(("sm_clock_mhz",), (_sm,)),
    Call(("memory_clock_mhz",), (_memory,)),
    Call(("sm_clock_max_mhz",), (_sm_max,)),
    Call(("memory_clock_max_mhz",), (_memory_max,)),
    Call(("throttle_reasons",), (_event_reasons, _throttle_reasons)),  # renamed with driver 535
    Call(("performance_state",), (_state,)),
)
