"""The clock is held down by the power limit."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.clock_reasons import SW_POWER_CAP
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.clocks import (
    METHOD,
    Throttling,
    clock_loss,
    clocks_mhz,
    reason,
    saving_of_clock,
)
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, is_at_work, scope
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

LEAST_SHARE = 0.1
"""Share of the samples at work: a GPU that touches its limit now and then loses nothing. [own]"""
LEAST_LOSS = 0.02
"""Share of the clock that is lost: GPUs step in 15 MHz, about 1 %. [own]"""

RULE = Rule(
    Category.HEALTH,
    needs=(sampled("throttle_reasons", "gpu_utilization_pct", "sm_clock_mhz", "sm_clock_max_mhz"),),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs at work that were at their limit, with the clock below its maximum."""
    for window in gpus_of_run(evidence):
        share = window.busy_shares.get(reason(SW_POWER_CAP), 0.0)
        loss, clocks = clock_loss(window), clocks_mhz(window)
        if not is_at_work(window) or share < LEAST_SHARE or loss is None or clocks is None:
            continue
        if loss < LEAST_LOSS:
            continue
        limit = window.series.get("power_limit_w")
        of_watts = f" of {limit.last:.0f} W" if limit else ""
        yield RuleResult(
            f"{called(window.gpu)} works at {clocks[0]:.0f} of {clocks[1]:.0f} MHz: its power"
            f" limit{of_watts} holds in {share:.0%} of the time that it is at work",
            (
                Figure("sw_power_cap", round(100 * share, 1), "%", 100 * LEAST_SHARE),
                Figure("sm_clock_mhz", round(clocks[0]), "MHz"),
                Figure("sm_clock_max_mhz", round(clocks[1]), "MHz"),
                *([Figure("power_limit_w", limit.last, "W")] if limit else ()),
            ),
            "See whether the limit is below the GPU's default (`nvidia-smi -q -d POWER`) and raise"
            " it with `sudo nvidia-smi -pl WATTS`; at the default, only work that needs less"
            " energy gets faster, such as a lower precision or fewer bytes moved. Do not compare"
            " its timings with those of a GPU that is not capped.",
            saving_of_clock(evidence, window, loss),
            f"{METHOD}.",
            scope(window.gpu),
        )


class PowerCap(Throttling):
    """The event that the power limit holds the clock down."""

    reason = SW_POWER_CAP
    figure = ("power_limit_w", "W")


EVENTS = (PowerCap,)
