"""Activity counters that read zero on a GPU that is fully busy: they are broken, it is not idle.

Known from others: after Xid 31 the profiling fields read 0 for ever (NVIDIA/DCGM#303 and #202).
Begins after 30 s of 100 % utilization with no SM active, ends when an SM is.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Frame, Gpu, Severity

BUSY_PCT = 99
IDLE_PCT = 0.01
"""One warp on one of 132 SMs for all of the time is 0.76 %, and for a seventieth of it 0.01 %."""
BEGIN_AFTER_S = 30.0
"""The two average over different times, so they disagree for a second or two around every pause."""


class Detector(GpuDetector):
    """Watches `sm_active_pct` against `gpu_utilization_pct`."""

    def __init__(self) -> None:
        super().__init__("broken_collector", begin_after_s=BEGIN_AFTER_S)

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        active = latest.value(gpu.uuid, "sm_active_pct")
        utilization = latest.value(gpu.uuid, "gpu_utilization_pct")
        if active is None or utilization is None:
            yield "", None
        elif active > IDLE_PCT:
            yield "", False
        else:  # once it is broken, only activity proves that it is mended
            yield "", utilization >= BUSY_PCT or self.episodes.is_running(gpu.uuid)

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        return Wording(
            f"{called(gpu)} is fully busy while its counters say that no SM is active: the"
            " counters are broken; stop other profilers, and if that does not help, reset the GPU.",
            Severity.WARNING,
        )
