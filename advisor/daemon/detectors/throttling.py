"""Clocks that are held down for a reason that costs speed.

Begins when a reason was reported for two seconds in sum, as a GPU at its power limit drops in and
out of it within a second; ends after ten seconds without. A key per reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.clock_reasons import BITS, holds
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Frame, Gpu, Number, Severity

# Left out are gpu_idle, applications_clocks_setting and display_clock_setting: nothing is lost.
SW_POWER_CAP = BITS["sw_power_cap"]
HW_SLOWDOWN = BITS["hw_slowdown"]
SYNC_BOOST = BITS["sync_boost"]
SW_THERMAL_SLOWDOWN = BITS["sw_thermal_slowdown"]
HW_THERMAL_SLOWDOWN = BITS["hw_thermal_slowdown"]
HW_POWER_BRAKE_SLOWDOWN = BITS["hw_power_brake_slowdown"]

REASONS: dict[str, tuple[int, Severity, str]] = {
    "sw_power_cap": (SW_POWER_CAP, Severity.WARNING, "by its power limit"),
    "hw_slowdown": (HW_SLOWDOWN, Severity.ERROR, "by its hardware: check power and cooling"),
    "sync_boost": (SYNC_BOOST, Severity.WARNING, "by the slowest GPU of its sync boost group"),
    "sw_thermal_slowdown": (SW_THERMAL_SLOWDOWN, Severity.WARNING, "by its temperature"),
    "hw_thermal_slowdown": (
        HW_THERMAL_SLOWDOWN,
        Severity.ERROR,
        "by its hardware, which is too hot: check the cooling",
    ),
    "hw_power_brake_slowdown": (
        HW_POWER_BRAKE_SLOWDOWN,
        Severity.ERROR,
        "by the power brake of the machine: check the power supply",
    ),
}
"""By key: the bit, how much it matters, and how the sentence goes on."""
ANY = sum(bit for bit, _, _ in REASONS.values())

BEGIN_AFTER_S = 2.0
"""Two readings at the rhythm of one second: shorter than that costs no step worth a message."""
END_AFTER_S = 10.0
"""Longer than the pause between two steps of training, in which the reason disappears."""


SAID = ("sm_clock_mhz", "sm_clock_max_mhz", "power_limit_w", "temperature_c")
"""The metrics that an event tells when it begins."""


class Detector(GpuDetector):
    """Watches `throttle_reasons` in every frame that has it."""

    in_fast_frames = True

    def __init__(self) -> None:
        super().__init__("throttling", begin_after_s=BEGIN_AFTER_S, end_after_s=END_AFTER_S)
        self._seen: dict[str, set[str]] = {}

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        sample = frame.samples.get(gpu.uuid)
        mask = sample.values.get("throttle_reasons") if sample else None
        seen = self._seen.setdefault(gpu.uuid, set())
        if mask is None:
            yield from ((key, None) for key in REASONS if key in seen and frame.whole)
        elif int(mask) & ANY or seen:
            now = {key for key in REASONS if holds(int(mask), key)}
            seen |= now
            yield from ((key, key in now) for key in REASONS if key in seen)

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        read = {name: latest.value(gpu.uuid, name) for name in SAID}
        known = {name: value for name, value in read.items() if value is not None}
        return Wording(_sentence(gpu, key, known), REASONS[key][1], known)


def _sentence(gpu: Gpu, key: str, known: Mapping[str, Number]) -> str:
    at = "below its clocks"
    if "sm_clock_mhz" in known and "sm_clock_max_mhz" in known:
        at = f"at {known['sm_clock_mhz']:.0f} of {known['sm_clock_max_mhz']:.0f} MHz"
    figure = ""
    if key == "sw_power_cap" and "power_limit_w" in known:
        figure = f" ({known['power_limit_w']:.0f} W)"
    elif key == "sw_thermal_slowdown" and "temperature_c" in known:
        figure = f" ({known['temperature_c']:.0f} C)"
    return f"{called(gpu)} is held {at} {REASONS[key][2]}{figure}."
