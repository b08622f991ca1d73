"""A GPU that has no spare memory row left for one that fails.

Begins and ends with what the driver says: the state is its own and does not flicker.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Frame, Gpu, Severity

METRIC = "remap_failed"


class Detector(GpuDetector):
    """Watches `remap_failed`."""

    def __init__(self) -> None:
        super().__init__("remap_failed")

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        rows = latest.value(gpu.uuid, METRIC)
        yield "", None if rows is None else bool(rows)

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        return Wording(
            f"{called(gpu)} could not replace a failing memory row, as it has no spare one left:"
            " have the GPU replaced.",
            Severity.ERROR,
        )
