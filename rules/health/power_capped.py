"""The clock is held down by the power limit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuadvisor.domain.clock_reasons import SW_POWER_CAP
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.clocks import (
    LEAST_HELD,
    DriverThrottling,
    clocks_mhz,
    held_in,
    reason,
    saving_of_clock,
)
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import is_at_work, of_each_gpu
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult

RULE = Rule(
    Category.HEALTH,
    needs=(sampled("throttle_reasons", "gpu_utilization_pct", "sm_clock_mhz", "sm_clock_max_mhz"),),
)


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs at work that were at their limit, with the clock below its maximum."""
    share = window.busy_shares.get(reason(SW_POWER_CAP), 0.0)
    clocks = clocks_mhz(window)
    if clocks is None or clocks[0] > (1 - NOTICEABLE) * clocks[1]:
        return
    if share < LEAST_HELD or not is_at_work(window):
        return
    limit = window.series.get("power_limit_w")
    yield RuleResult(
        held_in(window, SW_POWER_CAP, share),
        (
            Figure(SW_POWER_CAP, round(100 * share, 1), "%", 100 * LEAST_HELD),
            Figure("sm_clock_mhz", round(clocks[0]), "MHz"),
            Figure("sm_clock_max_mhz", round(clocks[1]), "MHz"),
            *([Figure("power_limit_w", limit.last, "W")] if limit else ()),
        ),
        "See whether the limit is below the GPU's default (`nvidia-smi -q -d POWER`) and raise"
        " it with `sudo nvidia-smi -pl WATTS`; at the default, only work that needs less"
        " energy gets faster, such as a lower precision or fewer bytes moved. Do not compare"
        " its timings with those of a GPU that is not capped.",
        *saving_of_clock(evidence, window),
    )


EVENTS = (partial(DriverThrottling, SW_POWER_CAP),)
