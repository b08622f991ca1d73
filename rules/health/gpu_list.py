"""A GPU, or a MIG instance, was added or taken away: events without length.

A GPU that merely does not answer stays on the list: that is `gpu_lost`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Gpu
from gpuadvisor.rules.gpus import called


class GpuAdded:
    """The event that the list of GPUs has one more than the list before it."""

    kind: ClassVar[str] = "gpu_added"

    def __init__(self) -> None:
        self._listed: set[str] = set()
        """UUIDs; empty before any GPU was listed, so that the first list adds none."""
        self._has_begun = False

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if frame.gpus is None:
            return
        added = [gpu for gpu in frame.gpus if gpu.uuid not in self._listed]
        self._listed = {gpu.uuid for gpu in frame.gpus}
        if self._has_begun:
            for gpu in added:
                message = f"{called(gpu)} ({gpu.name}) was added."
                time_s = frame.time_s
                yield Event(self.kind, time_s, message, gpu=gpu.uuid, ended_s=time_s)
        self._has_begun = self._has_begun or bool(frame.gpus)


class GpuRemoved:
    """The event that the list of GPUs lacks one that the list before it had."""

    kind: ClassVar[str] = "gpu_removed"

    def __init__(self) -> None:
        self._listed: tuple[Gpu, ...] = ()

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if frame.gpus is None:
            return
        before, self._listed = self._listed, frame.gpus
        now = {gpu.uuid for gpu in frame.gpus}
        for gpu in before:
            if gpu.uuid not in now:
                severity = Severity.INFO if gpu.is_instance else Severity.WARNING
                message = f"{called(gpu)} ({gpu.name}) was removed."
                time_s = frame.time_s
                yield Event(self.kind, time_s, message, severity, gpu.uuid, time_s)


EVENTS = (GpuAdded, GpuRemoved)
