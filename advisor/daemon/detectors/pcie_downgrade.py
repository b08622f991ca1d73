"""A PCIe link below what GPU and slot can do, while the GPU works.

An idle GPU lowers the generation of its link to save power, and raises it within milliseconds of
work, so only what stays low under load for ten seconds begins an event. It ends when the link was
up for five seconds.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Frame, Gpu, Severity

BUSY_PCT = 50
"""Utilization from which the driver surely keeps the link up."""
BEGIN_AFTER_S = 10.0
END_AFTER_S = 5.0


class Detector(GpuDetector):
    """Watches the link of every whole GPU; instances share theirs."""

    def __init__(self) -> None:
        super().__init__("pcie_downgrade", begin_after_s=BEGIN_AFTER_S, end_after_s=END_AFTER_S)

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        yield "", None if gpu.is_instance else _is_low(gpu, latest)

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        generation, generation_max, width, width_max = _link(gpu, latest)
        return Wording(
            f"{called(gpu)} works over PCIe {generation} x{width} where {generation_max}"
            f" x{width_max} is possible: reseat the card, or check riser and BIOS.",
            Severity.WARNING,
            {"pcie_generation": generation or 0, "pcie_width": width or 0},
        )


def _is_low(gpu: Gpu, latest: Latest) -> bool | None:
    """Return whether the link is low; None where idleness would explain it, or it is unknown."""
    generation, generation_max, width, width_max = _link(gpu, latest)
    if generation is None or generation_max is None or width is None or width_max is None:
        return None
    if generation >= generation_max and width >= width_max:
        return False
    utilization = latest.value(gpu.uuid, "gpu_utilization_pct")
    return True if utilization is not None and utilization >= BUSY_PCT else None


def _link(gpu: Gpu, latest: Latest) -> tuple[int | None, int | None, int | None, int | None]:
    def whole(metric: str) -> int | None:
        value = latest.value(gpu.uuid, metric)
        return None if value is None else int(value)

    return (
        whole("pcie_generation"),
        whole("pcie_generation_max"),
        whole("pcie_width"),
        whole("pcie_width_max"),
    )
