"""Memory rows that wait for a reset of the GPU to be replaced by spare ones.

Begins and ends with what the driver says: the state is its own and does not flicker.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Frame, Gpu, Severity

METRIC = "remap_pending"


class Detector(GpuDetector):
    """Watches `remap_pending`."""

    def __init__(self) -> None:
        super().__init__("remap_pending")

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        rows = latest.value(gpu.uuid, METRIC)
        yield "", None if rows is None else bool(rows)

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        return Wording(
            f"{called(gpu)} has failing memory rows that a reset replaces: reset it"
            f" (`nvidia-smi --gpu-reset -i {gpu.index}`) when nothing runs on it.",
            Severity.ERROR,
        )
