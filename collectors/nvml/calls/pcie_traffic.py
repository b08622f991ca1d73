"""Bytes over PCIe: by GPM, else by the counter that takes 21 ms a call, on a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import PENDING, Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device

_METRICS = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")


def _by_gpm(nvml: Any, device: Device) -> Sequence[Answer]:
    return device.gpm.read_all_or_raise(nvml, device.handle, _METRICS)


def _by_counter(nvml: Any, device: Device) -> Sequence[Answer]:
    rates = device.pcie.read(nvml, device.uuid, device.handle)
    return rates or (PENDING, PENDING)


CALLS = (Call(_METRICS, (_by_gpm, _by_counter)),)
