"""The PCIe link: its generation and width now and at most, and packets sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device


def _generation(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetCurrPcieLinkGeneration(device.handle),)


def _width(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetCurrPcieLinkWidth(device.handle),)


def _generation_max(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetMaxPcieLinkGeneration(device.handle),)


def _width_max(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetMaxPcieLinkWidth(device.handle),)


def _replays(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetPcieReplayCounter(device.handle),)


CALLS = (
    Call(("pcie_generation",), (_generation,)),
    Call(("pcie_width",), (_width,)),
    Call(("pcie_generation_max",), (_generation_max,)),
    Call(("pcie_width_max",), (_width_max,)),
    Call(("pcie_replays",), (_replays,)),
)
