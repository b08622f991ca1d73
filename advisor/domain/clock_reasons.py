"""Why the driver holds clocks down: the bits of `throttle_reasons`, each with its words.

Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h, nvmlClocksEventReason...).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SW_POWER_CAP = "sw_power_cap"
HW_SLOWDOWN = "hw_slowdown"
SYNC_BOOST = "sync_boost"
SW_THERMAL_SLOWDOWN = "sw_thermal_slowdown"
HW_THERMAL_SLOWDOWN = "hw_thermal_slowdown"
HW_POWER_BRAKE_SLOWDOWN = "hw_power_brake_slowdown"
APPLICATIONS_CLOCKS = "applications_clocks_setting"


@dataclass(frozen=True)
class ClockReason:
    """A reason that costs speed."""

    name: str
    bit: int
    rank: int
    """How bad it is among the others; 0 is the worst."""
    label: str
    """A word or two, for a narrow column."""
    cause: str
    """How the sentence `GPU 3 began to be held at 1410 of 1980 MHz by ...` goes on."""


SLOWING: Mapping[str, ClockReason] = {
    reason.name: reason
    for reason in (
        ClockReason(SW_POWER_CAP, 0x4, 4, "power cap", "its power limit"),
        ClockReason(HW_SLOWDOWN, 0x8, 2, "hw slowdown", "its hardware: check power and cooling"),
        ClockReason(SYNC_BOOST, 0x10, 5, "sync boost", "the slowest GPU of its sync boost group"),
        ClockReason(SW_THERMAL_SLOWDOWN, 0x20, 3, "thermal", "its temperature"),
        ClockReason(
            HW_THERMAL_SLOWDOWN,
            0x40,
            0,
            "hw thermal",
            "its hardware, which is too hot: check the cooling",
        ),
        ClockReason(
            HW_POWER_BRAKE_SLOWDOWN,
            0x80,
            1,
            "power brake",
            "the power brake of the machine: check the power supply",
        ),
    )
}
"""Reasons that cost speed by name, in the order of their bits."""

BITS: Mapping[str, int] = {
    "gpu_idle": 0x1,
    APPLICATIONS_CLOCKS: 0x2,
    **{reason.name: reason.bit for reason in SLOWING.values()},
    "display_clock_setting": 0x100,
}
"""The bit of every reason, also of those that cost no speed."""
_SAYS_MORE = BITS[HW_THERMAL_SLOWDOWN] | BITS[HW_POWER_BRAKE_SLOWDOWN]


def holds(mask: int, reason: str) -> bool:
    """Return whether a reason holds; the general hardware bit is set beside each that says more."""
    if reason == HW_SLOWDOWN and mask & _SAYS_MORE:
        return False
    return bool(mask & BITS[reason])


def slowing(mask: int) -> list[ClockReason]:
    """Return the reasons of a mask that cost speed, in the order of their bits."""
    return [reason for reason in SLOWING.values() if holds(mask, reason.name)]
