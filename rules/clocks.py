"""What conditions of the clock share: what a lower clock costs, and the events of its reasons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.clock_reasons import BITS, SLOWING, SW_POWER_CAP, SW_THERMAL_SLOWDOWN, holds
from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.alert_states import GpuCondition, Message
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.kernel_families import COMMUNICATION
from gpuadvisor.rules.gpus import called, is_at_work
from gpuadvisor.rules.rule import Estimate

METRIC = "throttle_reasons"
LEAST_HELD = 0.1
"""Share of the samples at work from which on power, or heat, is what holds a clock: a GPU that
touches its limit now and then loses nothing. [own]"""
MEMORY_BOUND_PCT = 60
"""Percent of the memory's peak from which on that, and not the clock of the SMs, is taken to be
the limit: as Nsight Compute's roofline rules have it."""
PIPES = ("tensor_active_pct", "fp64_active_pct", "fp32_active_pct", "fp16_active_pct")
METHOD = (
    "At most the share by which the clock was below its maximum, of the time in which kernels"
    " computed; what waits for memory gains nothing, cycles in which an arithmetic pipe was seen"
    " active gain all of it."
)
TOLD = ("sm_clock_mhz", "sm_clock_max_mhz", "power_limit_w", "temperature_c")
"""The metrics that an event tells when it begins."""
FIGURES = {SW_POWER_CAP: "power_limit_w", SW_THERMAL_SLOWDOWN: "temperature_c"}
"""The metric that says more about a reason."""


def clocks_mhz(window: GpuWindow) -> tuple[float, float] | None:
    """Return the SM clock at work, as a mean, and its maximum; None where one is not known."""
    clock, highest = window.busy.get("sm_clock_mhz"), window.series.get("sm_clock_max_mhz")
    if clock is None or highest is None or highest.last <= 0:
        return None
    return clock.mean, highest.last


def saving_of_clock(evidence: Evidence, window: GpuWindow) -> tuple[Estimate | None, str]:
    """Return what the highest clock would save, and how that is known; None where it is not.

    It is a part of the run, or of the time that the GPU was at work.
    """
    clocks = clocks_mhz(window)
    if clocks is None or not is_at_work(window):
        return None, ""
    loss = max(1.0 - clocks[0] / clocks[1], 0.0)
    active = max((window.busy[pipe].mean for pipe in PIPES if pipe in window.busy), default=0.0)
    memory = window.busy.get("dram_active_pct")
    is_memory_bound = memory is not None and memory.mean >= MEMORY_BOUND_PCT
    high = loss * (1 - memory.mean / 100) if memory is not None and is_memory_bound else loss
    low = min(loss * active / 100, high)
    facts = evidence.facts
    if facts is None or not evidence.has_timeline or not facts.busy:
        seconds = evidence.telemetry.measured_s if evidence.telemetry is not None else 0.0
        at_work_ns = 1e9 * seconds * window.busy_share
        return Estimate(low * at_work_ns, high * at_work_ns, {}, at_work_ns), METHOD
    busiest = max(facts.busy, key=lambda each: each.compute_ns)
    parts: dict[str, float] = {}
    for kernel in facts.kernels:
        if kernel.device == busiest.device and not COMMUNICATION.search(kernel.name):
            part = f"kernel/{kernel.name}"
            parts[part] = parts.get(part, 0.0) + kernel.time_ns
    return Estimate(low * busiest.compute_ns, high * busiest.compute_ns, parts), METHOD


def reason(name: str) -> str:
    """Return what the share of a clocks event reason is called in a window."""
    return f"{METRIC}/{name}"


def _cause(name: str, figure: float | None) -> str:
    """Return by what a clocks event reason holds a clock down, with the value of its metric."""
    unit = f" ({figure:.0f} {BY_NAME[FIGURES[name]].unit})" if figure is not None else ""
    return f"by {SLOWING[name].cause}{unit}"


def held_in(window: GpuWindow, name: str, share: float, of: str = "its time at work") -> str:
    """Return the summary of a finding that a reason held the clock down for a share (0 to 1) of
    that time.

    The clock is the mean of all of a GPU's time at work, also of that in which nothing held it.
    """
    clocks, figure = clocks_mhz(window), window.series.get(FIGURES.get(name, ""))
    ran = (
        f" ran at {clocks[0]:.0f} of {clocks[1]:.0f} MHz on average at work, and" if clocks else ""
    )
    cause = _cause(name, figure.high if figure else None)
    return f"{called(window.gpu)}{ran} was held down for {100 * share:.0f} % of {of} {cause}"


class Throttling(GpuCondition):
    """Clocks that the hardware holds down, a fault at any size; the key of an event is the reason.

    Begins when the reason was reported for two seconds in sum.
    """

    kind = "throttling"
    begin_after_s: ClassVar[float] = 2.0
    """Two readings at the rhythm of one second: one alone may be a false one."""
    end_after_s = 60.0
    """What comes with each wave of a load, such as an epoch or a batch of requests, is one event:
    these take seconds to a minute. [own]"""
    break_s = 10.0
    """Longer than the pause between two steps of training, in which the reason disappears."""
    in_fast_frames = True

    def __init__(self, name: str, severity: Severity = Severity.WARNING) -> None:
        super().__init__()
        self.key = name
        self.severity = severity

    def observe(self, frame: Frame, latest: Latest) -> Iterable[Event]:
        if not latest.throttle_reasons & BITS[self.key] and not self.states.known:
            return ()  # nothing to begin or end: nearly always
        return super().observe(frame, latest)

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> bool | None:
        sample = frame.samples.get(gpu.uuid)
        mask = sample.values.get(METRIC) if sample else None
        return None if mask is None else holds(int(mask), self.key)

    def message(self, gpu: Gpu, latest: Latest) -> Message:
        read = {name: latest.value(gpu.uuid, name) for name in TOLD}
        known = {name: value for name, value in read.items() if value is not None}
        clocks = _clocks_now(gpu, latest)
        at = f"at {clocks[0]:.0f} of {clocks[1]:.0f} MHz" if clocks else "below its clocks"
        cause = _cause(self.key, known.get(FIGURES.get(self.key, "")))
        text = f"{called(gpu)} began to be held {at} {cause}."
        return Message(text, self.severity, known)


class DriverThrottling(Throttling):
    """Clocks that the driver holds down as it was told to: news where that costs some speed.

    A GPU in full use touches its power limit now and then, at its highest clock, and loses nothing.
    """

    begin_after_s = 10.0
    """In sum: some steps of training, of which one that is slower says nothing. [own]"""
    least_loss: ClassVar[float] = 0.05
    """Share of the clock: GPUs step in 15 MHz, about 1 %, and runs differ by as much. [own]"""

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> bool | None:
        is_held = super().judge(gpu, frame, latest)
        clocks = _clocks_now(gpu, latest) if is_held else None
        return is_held if clocks is None else clocks[0] <= (1 - self.least_loss) * clocks[1]


def _clocks_now(gpu: Gpu, latest: Latest) -> tuple[float, float] | None:
    """Return the SM clock and its maximum in MHz; None where one is not known."""
    clock = latest.value(gpu.uuid, "sm_clock_mhz")
    highest = latest.value(gpu.uuid, "sm_clock_max_mhz")
    return None if clock is None or highest is None else (clock, highest)
