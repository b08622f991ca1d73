"""How long the clocks were below what was wanted, and why; NVML counts nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call, Way
from gpuadvisor.collectors.nvml.device import Device

_POLICIES = {
    "power_violation_s": "NVML_PERF_POLICY_POWER",
    "thermal_violation_s": "NVML_PERF_POLICY_THERMAL",
    "reliability_violation_s": "NVML_PERF_POLICY_RELIABILITY",
    "board_limit_violation_s": "NVML_PERF_POLICY_BOARD_LIMIT",
}


def _time_for(policy: str) -> Way:
    def time_ns(nvml: Any, device: Device) -> Sequence[Answer]:
        status = nvml.nvmlDeviceGetViolationStatus(device.handle, getattr(nvml, policy))
        return (status.violationTime,)

    return time_ns


CALLS = tuple(
    Call((metric,), (_time_for(policy),), (10**9,)) for metric, policy in _POLICIES.items()
)
