"""The PCIe link runs below what GPU and slot can do."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.profile import Direction
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu
from gpuadvisor.domain.telemetry_window import BUSY_PCT, GpuWindow
from gpuadvisor.rules.alert_states import GpuCondition, Message
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, is_at_work, scope
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult

LINK = ("pcie_generation", "pcie_width")
LIMITS = tuple(f"{name}_max" for name in LINK)
Link = tuple[int, int, int, int]
"""Generation and number of lanes, and the highest of each that GPU and slot have together."""
LINK_DIRECTIONS = (Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST)

RULE = Rule(Category.HEALTH, needs=(sampled("gpu_utilization_pct", *LINK, *LIMITS),))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs whose link was low in every sample at work: idle ones lower it to save power."""
    for window in gpus_of_run(evidence):
        link = _link(window)
        if link is None or not is_at_work(window) or window.gpu.is_instance:
            continue
        generation, width, most_generation, most_width = link
        if not _is_low(link):
            continue
        share = _speed(generation, width) / _speed(most_generation, most_width)
        yield RuleResult(
            f"{_sentence(window.gpu, link)}: copies run at {share:.0%} of the speed",
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


def _link(window: GpuWindow) -> Link | None:
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


def _is_low(link: Link) -> bool:
    generation, width, most_generation, most_width = link
    return generation < most_generation or width < most_width


def _sentence(gpu: Gpu, link: Link) -> str:
    generation, width, most_generation, most_width = link
    return (
        f"{called(gpu)} works over PCIe {generation} x{width} where"
        f" {most_generation} x{most_width} is possible"
    )


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


class LowLink(GpuCondition):
    """The event of a low link while the GPU works; instances share the link of their GPU.

    An idle GPU raises its link within milliseconds of work, so only what stays low under load for
    ten seconds begins an event.
    """

    kind = "pcie_downgrade"
    begin_after_s = 10.0
    end_after_s = 5.0

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        link = None if gpu.is_instance else _link_now(gpu, latest)
        if link is None or not _is_low(link):
            yield "", None if link is None else False
        else:  # of an idle GPU that is as it should be, and says nothing
            utilization = latest.value(gpu.uuid, "gpu_utilization_pct")
            yield "", True if utilization is not None and utilization >= BUSY_PCT else None

    def message(self, gpu: Gpu, key: str, latest: Latest) -> Message:
        link = _link_now(gpu, latest) or (0, 0, 0, 0)
        return Message(
            f"{_sentence(gpu, link)}: reseat the card, or check riser and BIOS.",
            Severity.WARNING,
            {"pcie_generation": link[0], "pcie_width": link[1]},
        )


def _link_now(gpu: Gpu, latest: Latest) -> Link | None:
    generation, width, most_generation, most_width = (
        latest.value(gpu.uuid, name) for name in (*LINK, *LIMITS)
    )
    if generation is None or width is None or most_generation is None or most_width is None:
        return None
    return int(generation), int(width), int(most_generation), int(most_width)


EVENTS = (LowLink,)
