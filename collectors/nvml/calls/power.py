"""Power and energy. NVML counts in milliwatts and millijoules.

The power draw is averaged over a second from Ampere (but for GA100) on; the instant one is a
field, read in `fields.py`. On A100 and H100 only a quarter of the time is sampled (Yang et al.,
"Part-time Power Measurements", SC24), so the energy of short spans is a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device


def _draw(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetPowerUsage(device.handle),)


def _energy(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetTotalEnergyConsumption(device.handle),)


def _limit(nvml: Any, device: Device) -> Sequence[Answer]:
    return (nvml.nvmlDeviceGetEnforcedPowerLimit(device.handle),)


CALLS = (
    Call(("power_w",), (_draw,), (1000,)),
    Call(("energy_j",), (_energy,), (1000,)),
    Call(("power_limit_w",), (_limit,), (1000,)),
)
