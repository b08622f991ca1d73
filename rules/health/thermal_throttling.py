"""The clock is held down because the GPU is too hot."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.clock_reasons import HW_THERMAL_SLOWDOWN, SW_THERMAL_SLOWDOWN
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.clocks import METHOD, Throttling, clock_loss, reason, saving_of_clock
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, is_at_work, scope
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

LEAST_SHARE = 0.05
"""Share of the samples at work: a healthy GPU has none, and one of a minute says nothing. [own]"""

RULE = Rule(
    Category.HEALTH,
    needs=(sampled("throttle_reasons", "gpu_utilization_pct"),),
    hides=("power_capped",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs at work whose clock was cut for their temperature, by driver or hardware."""
    for window in gpus_of_run(evidence):
        software, hardware = (
            window.busy_shares.get(reason(name), 0.0)
            for name in (SW_THERMAL_SLOWDOWN, HW_THERMAL_SLOWDOWN)
        )
        share = max(software, hardware)
        if not is_at_work(window) or share < LEAST_SHARE:
            continue
        heat, loss = window.series.get("temperature_c"), clock_loss(window)
        warmest = f" (up to {heat.high:.0f} C)" if heat else ""
        by = "hardware" if hardware >= LEAST_SHARE else "driver"
        yield RuleResult(
            f"The {by} cuts the clock of {called(window.gpu)} for its temperature{warmest} in"
            f" {share:.0%} of the time that it is at work",
            (
                Figure("sw_thermal_slowdown", round(100 * software, 1), "%", 100 * LEAST_SHARE),
                Figure("hw_thermal_slowdown", round(100 * hardware, 1), "%", 100 * LEAST_SHARE),
                *([Figure("temperature_c", heat.high, "C")] if heat else ()),
            ),
            "Check fans, dust, airflow and the temperature of the room, and what the machines"
            " beside it give off; a lower power limit (`sudo nvidia-smi -pl WATTS`) holds it cooler"
            " until then.",
            None if loss is None else saving_of_clock(evidence, window, loss),
            "" if loss is None else f"{METHOD}.",
            scope(window.gpu),
            _severity(hardware, loss),
        )


def _severity(hardware: float, loss: float | None) -> Severity | None:
    if hardware >= LEAST_SHARE:
        return Severity.CRITICAL
    return Severity.WARNING if loss is None else None


class CutByDriver(Throttling):
    """The event that the driver cuts the clock for the temperature."""

    reason = SW_THERMAL_SLOWDOWN
    figure = ("temperature_c", "C")


class CutByHardware(Throttling):
    """The event that the hardware cuts the clock for the temperature."""

    reason = HW_THERMAL_SLOWDOWN
    severity = Severity.ERROR


EVENTS = (CutByDriver, CutByHardware)
