"""A temperature just below the one at which the clocks are cut.

Begins when it was within 3 C of it for five seconds, ends below 8 C of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Frame, Gpu, Number, Severity

BEGIN_BELOW_C = 3
"""Sensors count in whole degrees and waver by one, so this is as near as can be told apart."""
END_BELOW_C = 8
BEGIN_AFTER_S = 5.0


class Detector(GpuDetector):
    """Watches `temperature_c` against `temperature_slowdown_c`."""

    def __init__(self) -> None:
        super().__init__("temperature", begin_after_s=BEGIN_AFTER_S)

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        now, limit = _degrees(gpu, latest)
        margin = END_BELOW_C if self.episodes.is_running(gpu.uuid) else BEGIN_BELOW_C
        yield "", None if now is None or limit is None else now >= limit - margin

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        now, limit = _degrees(gpu, latest)
        return Wording(
            f"{called(gpu)} is at {now} C, and its clocks are cut at {limit} C:"
            " check fans and airflow.",
            Severity.WARNING,
            {"temperature_c": now or 0, "temperature_slowdown_c": limit or 0},
        )


def _degrees(gpu: Gpu, latest: Latest) -> tuple[Number | None, Number | None]:
    return (
        latest.value(gpu.uuid, "temperature_c"),
        latest.value(gpu.uuid, "temperature_slowdown_c"),
    )
