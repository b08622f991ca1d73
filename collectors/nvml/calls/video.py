"""How busy the video engines are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device


def _encoder(nvml: Any, device: Device) -> Sequence[Answer]:
    return nvml.nvmlDeviceGetEncoderUtilization(device.handle)[:1]  # type: ignore[no-any-return]


def _decoder(nvml: Any, device: Device) -> Sequence[Answer]:
    return nvml.nvmlDeviceGetDecoderUtilization(device.handle)[:1]  # type: ignore[no-any-return]


CALLS = (
    Call(("encoder_utilization_pct",), (_encoder,)),
    Call(("decoder_utilization_pct",), (_decoder,)),
)
