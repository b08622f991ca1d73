"""The clock is held down because the GPU is too hot."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.clock_reasons import HW_THERMAL_SLOWDOWN, SW_THERMAL_SLOWDOWN
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, Number
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.alert_states import GpuCondition, Level, Message
from gpuadvisor.rules.clocks import DriverThrottling, Throttling, held_in, reason, saving_of_clock
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, is_at_work, of_each_gpu
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

LEAST_SHARE = 0.05
"""Share of the samples at work: a healthy GPU has none, and one of a minute says nothing. [own]"""
BOTH = (SW_THERMAL_SLOWDOWN, HW_THERMAL_SLOWDOWN)
"""The clock is cut by the driver, and where that is too late by the hardware."""

RULE = Rule(
    Category.HEALTH,
    needs=(sampled("throttle_reasons", "gpu_utilization_pct"),),
    hides=("power_capped",),
)


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs at work whose clock was cut for their temperature, by driver or hardware."""
    shares = {name: window.busy_shares.get(reason(name), 0.0) for name in BOTH}
    share, heat = max(shares.values()), window.series.get("temperature_c")
    if not is_at_work(window) or share < LEAST_SHARE:
        return
    by_hardware = shares[HW_THERMAL_SLOWDOWN] >= LEAST_SHARE
    saving, method = saving_of_clock(evidence, window)
    unpriced = Severity.WARNING if saving is None else None
    yield RuleResult(
        held_in(window, HW_THERMAL_SLOWDOWN if by_hardware else SW_THERMAL_SLOWDOWN, share),
        (
            *(Figure(n, round(100 * shares[n], 1), "%", 100 * LEAST_SHARE) for n in BOTH),
            *([Figure("temperature_c", heat.high, "C")] if heat else ()),
        ),
        "Check fans, dust, airflow and the temperature of the room, and what the machines beside it"
        " give off; a lower power limit (`sudo nvidia-smi -pl WATTS`) holds it cooler until then.",
        saving,
        method,
        severity=Severity.CRITICAL if by_hardware else unpriced,
    )


BEGIN_BELOW_C = 3
"""Sensors count in whole degrees and waver by one, so this is as near as can be told apart."""
END_BELOW_C = 8


class Temperature(Level):
    """The event of a temperature within `BEGIN_BELOW_C` of the limit; ends `END_BELOW_C` below."""

    kind = "temperature"
    metrics = ("temperature_c", "temperature_slowdown_c")
    begin_after_s = 5.0

    def holds(self, gpu: Gpu, values: list[Number]) -> bool:
        now, limit = values
        return now >= limit - (END_BELOW_C if self.states.is_firing(gpu.uuid) else BEGIN_BELOW_C)

    def says(self, gpu: Gpu, values: list[Number]) -> Message:
        now, limit = values
        return Message(
            f"{called(gpu)} is at {now} C, and its clocks are cut at {limit} C:"
            " check fans and airflow.",
            Severity.WARNING,
            dict(zip(self.metrics, values, strict=True)),
        )


class Heat:
    """What heat does to a GPU, as one event at a time: the gravest of what holds.

    The clock is cut by the hardware, by the driver, or soon. A graver event ends a lesser one, and
    what is lesser begins by its own rule where nothing graver lasts or is about to begin.
    """

    kinds = (Throttling.kind, Temperature.kind)

    def __init__(self) -> None:
        self._gravest_first: tuple[GpuCondition, ...] = (
            Throttling(HW_THERMAL_SLOWDOWN, Severity.ERROR),
            DriverThrottling(SW_THERMAL_SLOWDOWN),
            Temperature(),
        )

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        """Have each be observed, but for those that a graver one includes."""
        graver: list[GpuCondition] = []
        for each in self._gravest_first:
            yield from each.observe(frame, latest)
            for gpu, key in tuple(each.states.known):
                is_over = any(other.states.is_firing(gpu, other.key) for other in graver)
                is_early = any((gpu, other.key) in other.states.known for other in graver)
                if is_over or (is_early and not each.states.is_firing(gpu, key)):
                    yield from each.states.end(frame.time_s, gpu, key)
            graver.append(each)


EVENTS = (Heat,)
