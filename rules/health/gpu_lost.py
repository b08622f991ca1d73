"""The driver lost a GPU: it fell off the bus, or was pulled."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import UNNAMED, Event, Frame, Gpu, State
from gpuadvisor.rules.alert_states import GpuCondition, Message
from gpuadvisor.rules.gpus import called

INSTANCE = "MIG-"
"""Begin of the UUID of a MIG instance."""


class GpuLost(GpuCondition):
    """The event of a GPU whose metrics are LOST; ends when a value of it is read again."""

    kind = "gpu_lost"

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, Message] = {}
        """What was said last of each GPU (UUID) that was lost."""

    def observe(self, frame: Frame, latest: Latest) -> Iterable[Event]:
        """Judge every GPU, also those that the driver does not list any more: a loss is not over
        where the driver was loaded anew without the GPU.

        One without a name is over once its number answers; a MIG instance ends with its GPU.
        """
        listed = {gpu.uuid for gpu in latest.gpus}
        for uuid, key in tuple(self.states.known):
            if uuid is None or uuid in listed:
                continue
            if uuid.startswith(INSTANCE) or (uuid.startswith(UNNAMED) and latest.gpus):
                yield from self.states.end(frame.time_s, uuid, key)
            elif frame.full and frame.problem is None:
                again = partial(self._said.__getitem__, uuid)
                yield from self.states.update(frame.time_s, True, again, uuid, key)
        yield from super().observe(frame, latest)

    def forget(self, frame: Frame) -> Iterable[Event]:
        """End nothing: `observe` sees to it."""
        return ()

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> bool | None:
        sample = frame.samples.get(gpu.uuid)
        if sample is None:
            return None
        for absence in sample.unavailable.values():
            if absence.state is State.LOST:
                return True
        return False if sample.values else None

    def message(self, gpu: Gpu, latest: Latest) -> Message:
        self._said[gpu.uuid] = said = Message(
            f"{called(gpu)} ({gpu.name}) is lost, it does not answer any more: the kernel log says"
            " why (`dmesg | grep -i xid`), and often only a reboot brings it back.",
            Severity.ERROR,
            {"pci_bus_id": gpu.pci_bus_id or ""},
        )
        return said


EVENTS = (GpuLost,)
