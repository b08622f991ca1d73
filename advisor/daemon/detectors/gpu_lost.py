"""A GPU that the driver lost: it fell off the bus, or was pulled.

Begins with the first whole frame that says so; ends when a value of it is read again, which says
that it is back, or when it leaves the list of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.daemon.episodes import GpuDetector, Wording, called
from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Frame, Gpu, Severity, State


class Detector(GpuDetector):
    """Watches for troubles with the state LOST."""

    def __init__(self) -> None:
        super().__init__("gpu_lost")

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        sample = frame.samples.get(gpu.uuid)
        if sample is None:
            yield "", None
        elif any(trouble.state is State.LOST for trouble in sample.troubles.values()):
            yield "", True
        else:
            yield "", False if sample.values else None

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        return Wording(
            f"{called(gpu)} ({gpu.name}) is lost, it does not answer any more: the kernel log says"
            " why (`dmesg | grep -i xid`), and often only a reboot brings it back.",
            Severity.ERROR,
            {"pci_bus_id": gpu.pci_bus_id or ""},
        )
