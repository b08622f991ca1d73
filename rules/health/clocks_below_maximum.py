"""The clock is set below its maximum."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.clock_reasons import APPLICATIONS_CLOCKS, SLOWING
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.clocks import LEAST_HELD, clocks_mhz, reason, saving_of_clock
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, is_at_work, of_each_gpu
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import MOST, Rule, RuleResult

LEAST_LOSS = 0.1
"""Share of the clock: the highest is for light work, and boards differ by some steps. [own]"""

RULE = Rule(
    Category.HEALTH,
    needs=(sampled("throttle_reasons", "gpu_utilization_pct", "sm_clock_mhz", "sm_clock_max_mhz"),),
)


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs at work below their highest clock, where neither power nor heat explains it."""
    clocks, shares = clocks_mhz(window), window.busy_shares
    if clocks is None or clocks[0] > (1 - LEAST_LOSS) * clocks[1]:
        return
    if not shares or not is_at_work(window):
        return
    if any(shares[reason(name)] >= LEAST_HELD for name in SLOWING):
        return
    applications = shares[reason(APPLICATIONS_CLOCKS)]
    is_told = applications >= MOST
    yield RuleResult(
        f"{called(window.gpu)} works at {clocks[0]:.0f} of {clocks[1]:.0f} MHz, held by"
        f" {'its application clocks' if is_told else 'neither power nor heat'}",
        (
            Figure("sm_clock_mhz", round(clocks[0]), "MHz", round((1 - LEAST_LOSS) * clocks[1])),
            Figure("sm_clock_max_mhz", round(clocks[1]), "MHz"),
            Figure(APPLICATIONS_CLOCKS, round(100 * applications, 1), "%", 100 * MOST),
        ),
        "Reset the application clocks with `sudo nvidia-smi -rac`."
        if is_told
        else "Look for a locked clock (`nvidia-smi -q -d CLOCK`) and unlock it with"
        " `sudo nvidia-smi -rgc`, unless it is locked for steady timings.",
        *saving_of_clock(evidence, window),
    )
