"""What conditions of the clock share: what a lower clock costs, and the events of its reasons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.clock_reasons import SLOWING, holds
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.alert_states import GpuCondition, Message
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called
from gpuadvisor.rules.rule import Estimate

METRIC = "throttle_reasons"
MEMORY_BOUND_PCT = 60
"""Percent of the memory's peak from which on that, and not the clock of the SMs, is taken to be
the limit: as Nsight Compute's roofline rules have it."""
PIPES = ("tensor_active_pct", "fp64_active_pct", "fp32_active_pct", "fp16_active_pct")
COMMUNICATION_KERNELS = "nccl"
METHOD = (
    "At most the share by which the clock was below its maximum, of the time in which kernels"
    " computed; what waits for memory gains nothing, cycles in which an arithmetic pipe was seen"
    " active gain all of it"
)
TOLD = ("sm_clock_mhz", "sm_clock_max_mhz", "power_limit_w", "temperature_c")
"""The metrics that an event tells when it begins."""


def clocks_mhz(window: GpuWindow) -> tuple[float, float] | None:
    """Return the SM clock at work, as a mean, and its maximum; None where one is not known."""
    clock, highest = window.busy.get("sm_clock_mhz"), window.series.get("sm_clock_max_mhz")
    if clock is None or highest is None or highest.last <= 0:
        return None
    return clock.mean, highest.last


def clock_loss(window: GpuWindow) -> float | None:
    """Return by what share of the maximum the clock was below it at work; None if not known."""
    clocks = clocks_mhz(window)
    return None if clocks is None else max(1.0 - clocks[0] / clocks[1], 0.0)


def saving_of_clock(evidence: Evidence, window: GpuWindow, loss: float) -> Estimate:
    """Return what the highest clock would save: of the run, or of the time that it was at work."""
    active = max((window.busy[pipe].mean for pipe in PIPES if pipe in window.busy), default=0.0)
    memory = window.busy.get("dram_active_pct")
    is_memory_bound = memory is not None and memory.mean >= MEMORY_BOUND_PCT
    high = loss * (1 - memory.mean / 100) if memory is not None and is_memory_bound else loss
    low = min(loss * active / 100, high)
    facts = evidence.facts
    if facts is None or not evidence.has_timeline or not facts.busy:
        seconds = evidence.telemetry.seconds if evidence.telemetry is not None else 0.0
        at_work_ns = 1e9 * seconds * window.busy_share
        return Estimate(low * at_work_ns, high * at_work_ns, {}, at_work_ns)
    busiest = max(facts.busy, key=lambda each: each.compute_ns)
    parts: dict[str, float] = {}
    for kernel in facts.kernels:
        if kernel.device == busiest.device and COMMUNICATION_KERNELS not in kernel.name.lower():
            part = f"kernel/{kernel.name}"
            parts[part] = parts.get(part, 0.0) + kernel.time_ns
    return Estimate(low * busiest.compute_ns, high * busiest.compute_ns, parts)


def reason(name: str) -> str:
    """Return what the share of a clocks event reason is called in a window."""
    return f"{METRIC}/{name}"


class Throttling(GpuCondition):
    """Clocks that are held down for a reason that costs speed; the key of an event is the reason.

    Begins when the reason was reported for two seconds in sum, as a GPU at its power limit drops
    in and out of it within a second.
    """

    kind = "throttling"
    begin_after_s = 2.0
    """Two readings at the rhythm of one second: shorter than that costs no step worth a message."""
    end_after_s = 10.0
    """Longer than the pause between two steps of training, in which the reason disappears."""
    in_fast_frames = True

    reason: ClassVar[str]
    severity: ClassVar[Severity] = Severity.WARNING
    figure: ClassVar[tuple[str, str]] = ("", "")
    """The metric that says more about the reason, and its unit."""

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        sample = frame.samples.get(gpu.uuid)
        mask = sample.values.get(METRIC) if sample else None
        if mask is not None:
            yield self.reason, holds(int(mask), self.reason)
        elif frame.full:
            yield self.reason, None

    def message(self, gpu: Gpu, key: str, latest: Latest) -> Message:
        read = {name: latest.value(gpu.uuid, name) for name in TOLD}
        known = {name: value for name, value in read.items() if value is not None}
        at = "below its clocks"
        if "sm_clock_mhz" in known and "sm_clock_max_mhz" in known:
            at = f"at {known['sm_clock_mhz']:.0f} of {known['sm_clock_max_mhz']:.0f} MHz"
        metric, unit = self.figure
        figure = f" ({known[metric]:.0f} {unit})" if metric in known else ""
        text = f"{called(gpu)} is held {at} by {SLOWING[key].cause}{figure}."
        return Message(text, self.severity, known)
