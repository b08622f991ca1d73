"""The hardware itself holds the clock down."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.clock_reasons import HW_POWER_BRAKE_SLOWDOWN, HW_SLOWDOWN
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.clocks import METHOD, Throttling, clock_loss, reason, saving_of_clock
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, is_at_work, scope
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
WORDS = {
    HW_SLOWDOWN: "The hardware of {gpu} holds its clock down",
    HW_POWER_BRAKE_SLOWDOWN: "The power brake of the machine holds the clock of {gpu} down",
}

RULE = Rule(
    Category.HEALTH,
    needs=(sampled("throttle_reasons"),),
    hides=("power_capped", "thermal_throttling", "clocks_below_maximum"),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs with a slowdown by hardware that is not its temperature's."""
    for window in gpus_of_run(evidence):
        read = window.series.get("throttle_reasons")
        for name, advice in ADVICE.items():
            share = window.shares.get(reason(name), 0.0)
            if read is None or round(share * read.count) < LEAST_SAMPLES:
                continue
            loss = clock_loss(window) if is_at_work(window) else None
            yield RuleResult(
                f"{WORDS[name].format(gpu=called(window.gpu))} in {share:.0%} of the time",
                (Figure(name, round(100 * share, 1), "%", 0.0),),
                advice,
                None if loss is None else saving_of_clock(evidence, window, loss),
                "" if loss is None else f"{METHOD}.",
                scope(window.gpu),
                Severity.CRITICAL,
            )


class HardwareSlowdown(Throttling):
    """The event that the GPU's own hardware holds the clock down, for no more specific reason."""

    reason = HW_SLOWDOWN
    severity = Severity.ERROR


class PowerBrake(Throttling):
    """The event that the power brake of the machine holds the clock down."""

    reason = HW_POWER_BRAKE_SLOWDOWN
    severity = Severity.ERROR


EVENTS = (HardwareSlowdown, PowerBrake)
