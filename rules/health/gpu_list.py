"""A GPU, or a MIG instance, was added or taken away: events without length.

A GPU that merely does not answer stays on the list: that is `gpu_lost`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Gpu
from gpuadvisor.rules.gpus import called

ADDED = "gpu_added"
REMOVED = "gpu_removed"


class GpuList:
    """The event that the list of GPUs has one more than the one before it, or lacks one."""

    def __init__(self, kind: str) -> None:
        self.kind, self.kinds = kind, (kind,)
        self._listed: tuple[Gpu, ...] = ()
        self._has_begun = False
        """Whether any GPU was listed so far: the first list adds none."""

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if frame.gpus is None:
            return
        before, self._listed = self._listed, frame.gpus
        longer, shorter = (before, frame.gpus) if self.kind == REMOVED else (frame.gpus, before)
        known = {gpu.uuid for gpu in shorter}
        for gpu in longer if self._has_begun else ():
            if gpu.uuid not in known:
                is_loss = self.kind == REMOVED and not gpu.is_instance
                severity = Severity.WARNING if is_loss else Severity.INFO
                message = f"{called(gpu)} ({gpu.name}) was {self.kind.removeprefix('gpu_')}."
                yield Event(self.kind, frame.time_s, message, severity, gpu.uuid, frame.time_s)
        self._has_begun = self._has_begun or bool(frame.gpus)


EVENTS = (partial(GpuList, ADDED), partial(GpuList, REMOVED))
