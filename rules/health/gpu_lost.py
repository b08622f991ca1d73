"""The driver lost a GPU: it fell off the bus, or was pulled."""

from __future__ import annotations

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu, State
from gpuadvisor.rules.alert_states import GpuCondition, Message
from gpuadvisor.rules.gpus import called


class GpuLost(GpuCondition):
    """The event of a GPU whose metrics are LOST; ends when a value of it is read again."""

    kind = "gpu_lost"

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> bool | None:
        sample = frame.samples.get(gpu.uuid)
        if sample is None:
            return None
        for absence in sample.unavailable.values():
            if absence.state is State.LOST:
                return True
        return False if sample.values else None

    def message(self, gpu: Gpu, latest: Latest) -> Message:
        return Message(
            f"{called(gpu)} ({gpu.name}) is lost, it does not answer any more: the kernel log says"
            " why (`dmesg | grep -i xid`), and often only a reboot brings it back.",
            Severity.ERROR,
            {"pci_bus_id": gpu.pci_bus_id or ""},
        )


EVENTS = (GpuLost,)
