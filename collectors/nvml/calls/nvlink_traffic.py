"""Bytes over NVLink: by GPM, else from the fields that count KiB."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import PENDING, Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device
from gpuadvisor.collectors.nvml.field_values import read

_METRICS = ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")
_BYTES_PER_KIB = 1024
_US_PER_S = 1_000_000
_ALL_LINKS = 0xFFFFFFFF
"""As scope of the throughput fields: the sum over all links (nvml.h)."""


def _by_gpm(nvml: Any, device: Device) -> Sequence[Answer]:
    return device.gpm.read_all_or_raise(nvml, device.handle, _METRICS)


class _ByFields:
    """Rates from two readings of the counters."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, int]] = []

    def __call__(self, nvml: Any, device: Device) -> Sequence[Answer]:
        transmit = nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX
        receive = nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
        before = self._before
        self._before = read(nvml, device, ((transmit, _ALL_LINKS), (receive, _ALL_LINKS)))
        for value, _ in self._before:
            if isinstance(value, Exception):
                self._before = []
                raise value
        if not before:
            return PENDING, PENDING
        return [_rate(*pair) for pair in zip(before, self._before, strict=True)]


def _rate(before: tuple[Any, int], now: tuple[Any, int]) -> Answer:
    kib, time_us = now[0] - before[0], now[1] - before[1]
    if kib < 0 or time_us <= 0:
        return PENDING  # the counters began anew
    rate: float = kib * _BYTES_PER_KIB * _US_PER_S / time_us
    return rate


CALLS = (Call(_METRICS, (_by_gpm, _ByFields)),)
