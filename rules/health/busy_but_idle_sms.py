"""A GPU at "100 % utilization" whose SMs are mostly idle."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, is_at_work, scope
from gpuadvisor.rules.health.broken_collector import IDLE_PCT
from gpuadvisor.rules.requirements import either, sampled
from gpuadvisor.rules.rule import Rule, RuleResult

LEAST_UTILIZATION_PCT = 90.0
"""On average at work: what `nvidia-smi` shows, and people take for a GPU in full use. [own]"""
MOST_SM_ACTIVE_PCT = 50.0
"""Percent of SMs with at least one warp, averaged over SMs and time. [own]"""
MOST_POWER_SHARE = 0.5
"""Share of the power limit, where the GPU does not count what its SMs do. [own]"""
FIRST_WITH_COUNTERS = (9, 0)
"""Compute capability from which on the driver reads these counters (GPM)."""
ADVICE = (
    "Record what runs (`gpuadvisor profile`): utilization only says that some kernel ran, such as"
    " many short ones, ones with few blocks, or one that waits for another GPU."
)

RULE = Rule(
    Category.HEALTH,
    needs=(
        either(
            (sampled("gpu_utilization_pct", "sm_active_pct"),),
            (sampled("gpu_utilization_pct", "power_w", "power_limit_w"),),
        ),
    ),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs that seem fully used, by what their SMs did, or on older ones by their power."""
    for window in gpus_of_run(evidence):
        utilization = window.busy.get("gpu_utilization_pct")
        if utilization is None or not is_at_work(window):
            continue
        if utilization.mean >= LEAST_UTILIZATION_PCT:
            used = Figure("gpu_utilization", round(utilization.mean, 1), "%", LEAST_UTILIZATION_PCT)
            yield from _by_activity(window, used)
            yield from _by_power(window, used)


def _by_activity(window: GpuWindow, used: Figure) -> Iterator[RuleResult]:
    active = window.busy.get("sm_active_pct")
    if active is None or active.mean >= MOST_SM_ACTIVE_PCT or active.low <= IDLE_PCT:
        return
    yield RuleResult(
        f"{called(window.gpu)} seems used to {used.value:.0f} %, but on average only"
        f" {active.mean:.0f} % of its SMs have work",
        (used, Figure("sm_active", round(active.mean, 1), "%", MOST_SM_ACTIVE_PCT)),
        ADVICE,
        scope=scope(window.gpu),
        severity=Severity.NOTICE,
    )


def _by_power(window: GpuWindow, used: Figure) -> Iterator[RuleResult]:
    power, limit = window.busy.get("power_w"), window.series.get("power_limit_w")
    if power is None or limit is None or not _has_no_counters(window.gpu):
        return
    if power.mean < MOST_POWER_SHARE * limit.last:
        yield RuleResult(
            f"{called(window.gpu)} seems used to {used.value:.0f} %, but draws only"
            f" {power.mean:.0f} of {limit.last:.0f} W: its SMs may have little to do",
            (used, Figure("power", round(power.mean, 1), "W", MOST_POWER_SHARE * limit.last)),
            ADVICE,
            scope=scope(window.gpu),
            severity=Severity.NOTICE,
        )


def _has_no_counters(gpu: Gpu) -> bool:
    """Return whether the GPU is known to be too old for them: one that merely did not tell says
    nothing."""
    capability = gpu.compute_capability
    return capability is not None and capability < FIRST_WITH_COUNTERS
