"""The hardware itself holds the clock down."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuadvisor.domain.clock_reasons import HW_POWER_BRAKE_SLOWDOWN, HW_SLOWDOWN
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.clocks import METRIC, Throttling, held_in, reason, saving_of_clock
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import of_each_gpu
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

LEAST_SAMPLES = 2
"""The bit is never set on a healthy machine; one reading alone may be a false one. [own]"""
ADVICE = {
    HW_SLOWDOWN: "Check power cables, power supply and cooling of this GPU, and have it looked at"
    " if they are fine.",
    HW_POWER_BRAKE_SLOWDOWN: "Check the machine's power supply and the power budget of its rack:"
    " it told the GPU to draw less.",
}

RULE = Rule(
    Category.HEALTH,
    needs=(sampled(METRIC),),
    hides=("power_capped", "thermal_throttling", "clocks_below_maximum"),
)


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs with a slowdown by hardware that is not its temperature's."""
    read = window.series.get(METRIC)
    for name, advice in ADVICE.items():
        share = window.shares.get(reason(name), 0.0)
        if read is not None and round(share * read.count) >= LEAST_SAMPLES:
            yield RuleResult(
                held_in(window, name, share, "the time"),
                (Figure(name, round(100 * share, 1), "%", 0.0),),
                advice,
                *saving_of_clock(evidence, window),
                severity=Severity.CRITICAL,
            )


EVENTS = tuple(partial(Throttling, name, Severity.ERROR) for name in ADVICE)
