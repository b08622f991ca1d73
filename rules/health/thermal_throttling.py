"""The clock is held down because the GPU is too hot."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuadvisor.domain.clock_reasons import HW_THERMAL_SLOWDOWN, SW_THERMAL_SLOWDOWN
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.clocks import DriverThrottling, Throttling, held_in, reason, saving_of_clock
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import is_at_work, of_each_gpu
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


EVENTS = (
    partial(DriverThrottling, SW_THERMAL_SLOWDOWN),
    partial(Throttling, HW_THERMAL_SLOWDOWN, Severity.ERROR),
)
