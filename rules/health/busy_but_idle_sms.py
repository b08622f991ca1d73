"""A GPU at "100 % utilization" whose SMs are mostly idle."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import FULL_USE_PCT, called, is_at_work, of_each_gpu
from gpuadvisor.rules.health.broken_collector import IDLE_PCT
from gpuadvisor.rules.requirements import either, sampled
from gpuadvisor.rules.rule import MOST, Rule, RuleResult

FIRST_WITH_COUNTERS = (9, 0)
"""Compute capability from which on the driver reads these counters (GPM)."""

RULE = Rule(
    Category.HEALTH,
    needs=(
        either(
            (sampled("gpu_utilization_pct", "sm_active_pct"),),
            (sampled("gpu_utilization_pct", "power_w", "power_limit_w"),),
        ),
    ),
)


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs that seem fully used, by what their SMs did, or on older ones by their power."""
    utilization = window.busy.get("gpu_utilization_pct")
    if utilization is None or utilization.mean < FULL_USE_PCT or not is_at_work(window):
        return
    used = Figure("gpu_utilization", round(utilization.mean, 1), "%", FULL_USE_PCT)
    for but, figure in (*_by_activity(window), *_by_power(window)):
        yield RuleResult(
            f"{called(window.gpu)} seems used to {used.value:.0f} %, but {but}",
            (used, figure),
            "Record what runs (`gpuadvisor profile`): utilization only says that some kernel ran,"
            " such as many short ones, ones with few blocks, or one that waits for another GPU.",
            severity=Severity.NOTICE,
        )


def _by_activity(window: GpuWindow) -> Iterator[tuple[str, Figure]]:
    active = window.busy.get("sm_active_pct")
    if active is not None and active.mean < 100 * MOST and active.low > IDLE_PCT:
        yield (
            f"on average only {active.mean:.0f} % of its SMs have work",
            Figure("sm_active", round(active.mean, 1), "%", 100 * MOST),
        )


def _by_power(window: GpuWindow) -> Iterator[tuple[str, Figure]]:
    """Look where the GPU is known to be too old for counters: a silent one says nothing."""
    power, limit = window.busy.get("power_w"), window.series.get("power_limit_w")
    capability = window.gpu.compute_capability
    if power is None or limit is None or capability is None or capability >= FIRST_WITH_COUNTERS:
        return
    most_w = MOST * limit.last
    if power.mean < most_w:
        yield (
            f"draws only {power.mean:.0f} of {limit.last:.0f} W: its SMs may have little to do",
            Figure("power", round(power.mean, 1), "W", most_w),
        )
