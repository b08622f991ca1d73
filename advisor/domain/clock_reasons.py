"""Why the driver holds clocks down: the bits of `throttle_reasons`.

Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReason...).
"""

from __future__ import annotations

from collections.abc import Mapping

SW_POWER_CAP = "sw_power_cap"
HW_SLOWDOWN = "hw_slowdown"
SYNC_BOOST = "sync_boost"
SW_THERMAL_SLOWDOWN = "sw_thermal_slowdown"
HW_THERMAL_SLOWDOWN = "hw_thermal_slowdown"
HW_POWER_BRAKE_SLOWDOWN = "hw_power_brake_slowdown"
APPLICATIONS_CLOCKS = "applications_clocks_setting"

BITS: Mapping[str, int] = {
    "gpu_idle": 0x1,
    APPLICATIONS_CLOCKS: 0x2,
    SW_POWER_CAP: 0x4,
    HW_SLOWDOWN: 0x8,
    SYNC_BOOST: 0x10,
    SW_THERMAL_SLOWDOWN: 0x20,
    HW_THERMAL_SLOWDOWN: 0x40,
    HW_POWER_BRAKE_SLOWDOWN: 0x80,
    "display_clock_setting": 0x100,
}
_SAYS_MORE = BITS[HW_THERMAL_SLOWDOWN] | BITS[HW_POWER_BRAKE_SLOWDOWN]


def holds(mask: int, reason: str) -> bool:
    """Return whether a reason holds; the general hardware bit is set beside each that says more."""
    if reason == HW_SLOWDOWN and mask & _SAYS_MORE:
        return False
    return bool(mask & BITS[reason])
