"""The PCIe link runs below what GPU and slot can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.profile import Direction
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu, Number
from gpuadvisor.domain.telemetry_window import BUSY_PCT, GpuWindow
from gpuadvisor.rules.alert_states import Level, Message
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, is_at_work, of_each_gpu
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult

LINK = ("pcie_generation", "pcie_width")
"""Generation and number of lanes."""
LIMITS = tuple(f"{name}_max" for name in LINK)
"""The highest of each that GPU and slot have together."""
ADVICE = (
    "Reseat the card, check riser and cable, and look in the BIOS for the slot's speed and"
    " bifurcation."
)
LINK_DIRECTIONS = (Direction.HOST_TO_DEVICE, Direction.DEVICE_TO_HOST)

RULE = Rule(Category.HEALTH, needs=(sampled("gpu_utilization_pct", *LINK, *LIMITS),))


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs whose link was low in every sample at work: idle ones lower it to save power."""
    now = [window.busy[name].high for name in LINK if name in window.busy]
    most = [window.series[name].last for name in LIMITS if name in window.series]
    link = [int(number) for number in now + most]
    if len(link) < 4 or min(most) < 1 or window.gpu.is_instance or not is_at_work(window):
        return
    if _is_low(link):
        generation, width, most_generation, most_width = link
        # In no unit: each generation carries twice as much a lane.
        share = width * 2**generation / (most_width * 2**most_generation)
        yield RuleResult(
            f"{_sentence(window.gpu, link)}: copies run at {100 * share:.0f} % of the speed",
            (
                Figure("pcie_generation", generation, "", most_generation),
                Figure("pcie_width", width, "", most_width),
            ),
            ADVICE,
            *_saving(evidence, share),
            severity=Severity.WARNING,
        )


def _is_low(link: Sequence[Number]) -> bool:
    """Return whether a link, its generation and width and the highest ones, is below these."""
    return link[0] < link[2] or link[1] < link[3]


def _sentence(gpu: Gpu, link: Sequence[Number]) -> str:
    generation, width, most_generation, most_width = map(int, link)
    return (
        f"{called(gpu)} works over PCIe {generation} x{width} where {most_generation}"
        f" x{most_width} is possible"
    )


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


class LowLink(Level):
    """The event of a low link while the GPU works; instances share the link of their GPU.

    An idle GPU raises its link within milliseconds of work, so only what stays low under load for
    ten seconds begins an event.
    """

    kind = "pcie_downgrade"
    metrics = (*LINK, *LIMITS)
    begin_after_s = 10.0
    end_after_s = 5.0

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> bool | None:
        is_low = None if gpu.is_instance else super().judge(gpu, frame, latest)
        if not is_low:
            return is_low
        # A low link of an idle GPU is as it should be, and says nothing.
        utilization = latest.value(gpu.uuid, "gpu_utilization_pct")
        return True if utilization is not None and utilization >= BUSY_PCT else None

    def holds(self, gpu: Gpu, values: list[Number]) -> bool:
        return _is_low(values)

    def says(self, gpu: Gpu, values: list[Number]) -> Message:
        data = dict(zip(LINK, values, strict=False))
        return Message(f"{_sentence(gpu, values)}. {ADVICE}", Severity.WARNING, data)


EVENTS = (LowLink,)
