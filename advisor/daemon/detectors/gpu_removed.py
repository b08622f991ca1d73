"""A GPU, or a MIG instance, that was taken away.

An event without length, when the list of GPUs lacks one that the list before it had. A GPU that
merely does not answer stays on the list: that is `gpu_lost`.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, Severity


class Detector:
    """Watches the list of GPUs."""

    def __init__(self) -> None:
        self._listed: tuple[Gpu, ...] = ()

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if frame.gpus is None:
            return
        before, self._listed = self._listed, frame.gpus
        now = {gpu.uuid for gpu in frame.gpus}
        for gpu in before:
            if gpu.uuid not in now:
                yield _event(gpu, frame.time_s)


def _event(gpu: Gpu, time_s: float) -> Event:
    severity = Severity.INFO if gpu.is_instance else Severity.WARNING
    message = f"{called(gpu)} ({gpu.name}) was removed."
    return Event("gpu_removed", time_s, message, severity, gpu.uuid, time_s)
