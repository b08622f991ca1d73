"""Device memory that is nearly used up.

Begins above 95 %, where the next allocation of some size fails; ends below 90 %.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Frame, Gpu, Number, Severity

BEGIN_RATIO = 0.95
"""On 80 GB that leaves 4 GB, less than an activation or a batch of many models."""
END_RATIO = 0.90
GIB = 2**30


class Detector(GpuDetector):
    """Watches `memory_used_bytes` against the GPU's memory."""

    def __init__(self) -> None:
        super().__init__("memory_full")

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        used, total = _bytes(gpu, latest)
        limit = END_RATIO if self.episodes.is_running(gpu.uuid) else BEGIN_RATIO
        yield "", used > limit * total if used is not None and total else None

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        used, total = (number or 1 for number in _bytes(gpu, latest))
        return Wording(
            f"{called(gpu)} has {100 * used / total:.0f} % of its memory in use"
            f" ({used / GIB:.1f} of {total / GIB:.1f} GiB).",
            Severity.WARNING,
            {"memory_used_bytes": used, "memory_total_bytes": total},
        )


def _bytes(gpu: Gpu, latest: Latest) -> tuple[Number | None, Number | None]:
    used = latest.value(gpu.uuid, "memory_used_bytes")
    return used, latest.value(gpu.uuid, "memory_total_bytes") or gpu.memory_total_bytes
