"""A GPU, or a MIG instance, that was not there before.

An event without length, when the list of GPUs has one more than the list before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Event, Frame


class Detector:
    """Watches the list of GPUs."""

    def __init__(self) -> None:
        self._listed: set[str] | None = None

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if frame.gpus is None or (self._listed is None and not frame.gpus):
            return
        before, self._listed = self._listed, {gpu.uuid for gpu in frame.gpus}
        for gpu in frame.gpus if before is not None else ():
            if gpu.uuid not in before:  # type: ignore[operator]
                message = f"{called(gpu)} ({gpu.name}) was added."
                time_s = frame.time_s
                yield Event("gpu_added", time_s, message, gpu=gpu.uuid, ended_s=time_s)
