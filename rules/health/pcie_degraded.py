"""The PCIe link runs below what GPU and slot can do."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure, Severity
from gpuadvisor.domain.profile import Direction
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, is_at_work, scope
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult

LINK = ("pcie_generation", "pcie_width")
LIMITS = tuple(f"{name}_max" for name in LINK)
LINK_DIRECTIONS = (Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST)

RULE = Rule(Category.HEALTH, needs=(sampled("gpu_utilization_pct", *LINK, *LIMITS),))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs whose link was low in every sample at work: idle ones lower it to save power."""
    for window in gpus_of_run(evidence):
        link = _link(window)
        if link is None or not is_at_work(window) or window.gpu.is_instance:
            continue
        generation, width, most_generation, most_width = link
        if generation >= most_generation and width >= most_width:
            continue
        share = _speed(generation, width) / _speed(most_generation, most_width)
        yield RuleResult(
            f"{called(window.gpu)} works over PCIe {generation} x{width} where"
            f" {most_generation} x{most_width} is possible: copies run at {share:.0%} of the speed",
            (
                Figure("pcie_generation", generation, "", most_generation),
                Figure("pcie_width", width, "", most_width),
            ),
            "Reseat the card, check riser and cable, and look in the BIOS for the slot's speed and"
            " bifurcation.",
            *_saving(evidence, share),
            scope=scope(window.gpu),
            severity=Severity.WARNING,
        )


def _link(window: GpuWindow) -> tuple[int, int, int, int] | None:
    """Return the best generation and width at work, and the best possible ones."""
    now = [window.busy.get(name) for name in LINK]
    most = [window.series.get(name) for name in LIMITS]
    if not all(now) or not all(most):
        return None
    generation, width = (int(each.high) for each in now if each)
    most_generation, most_width = (int(each.last) for each in most if each)
    if most_generation < 1 or most_width < 1:
        return None
    return generation, width, most_generation, most_width


def _speed(generation: int, width: int) -> float:
    """Return how much a link carries, in no unit: each generation carries twice as much a lane."""
    return float(width * 2**generation)


def _saving(evidence: Evidence, share: float) -> tuple[Estimate | None, str]:
    facts = evidence.facts
    if facts is None or not evidence.has_timeline or "copies" in facts.not_measured:
        return None, ""
    exposed = sum(copy.exposed_ns for copy in facts.copies if copy.direction in LINK_DIRECTIONS)
    return (
        Estimate.of_part("copy/exposed", exposed, 0.0, 1 - share),
        "At most the share by which the link is slower, of the time of copies between host and GPU"
        " in which no kernel ran.",
    )
