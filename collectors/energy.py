"""The energy that a GPU has used, by its own counter, and who else is using the GPU."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.devices import handle
from gpuadvisor.collectors.nvml import library as nvml
from gpuadvisor.domain.device import Device

MILLIJOULES_PER_JOULE = 1000


class EnergyMeter:
    """Reads the counter of one GPU: joules since its driver was loaded.

    `nvmlDeviceGetTotalEnergyConsumption` counts in millijoules, from Volta on. The counter is not
    fed at every instant: only differences over about 2 s or more mean something.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._reason = None if device.is_gpu else "the energy of a CPU is not measured"

    def unavailable(self) -> str | None:
        """Return why the last `read_j` gave nothing (or the next will), or None."""
        return self._reason

    def read_j(self) -> float | None:
        """Return the counter in joules, or None where it cannot be read; it never raises."""
        if not self._device.is_gpu:
            return None
        try:
            energy_mj = nvml.query(self._counter_mj)
        except nvml.QueryError as error:
            self._reason = f"the energy of {self._device.name} is not measured: {error}"
            return None
        self._reason = None
        return energy_mj / MILLIJOULES_PER_JOULE

    def _counter_mj(self, library: Any) -> int:
        return int(library.nvmlDeviceGetTotalEnergyConsumption(handle(library, self._device)))


@dataclass(frozen=True)
class ComputeProcess:
    """A process with a compute context on a GPU."""

    pid: int
    """In a container with its own process numbers: the host's number."""
    name: str | None
    """None where this process cannot see it (another user's, or outside the container)."""
    memory_bytes: int | None
    """GPU memory that it holds; None where the driver does not say."""


def other_processes(device: Device, own_pids: Collection[int] = ()) -> list[ComputeProcess] | None:
    """Return the compute processes on a GPU but for `own_pids` and their descendants.

    None where NVML cannot say (which is not "nobody"); empty for a CPU. In a container with its
    own process numbers, own processes cannot be told from those of others: ask while none of
    one's own is on the GPU.
    """
    if not device.is_gpu:
        return []
    try:
        running = nvml.query(lambda library: _running(library, device))
    except nvml.QueryError:
        return None
    if running is None:
        return None
    return [process for process in running if not _descends(process.pid, own_pids)]


def _running(library: Any, device: Device) -> list[ComputeProcess] | None:
    """List a GPU's processes by the newest form of the call that the driver has."""
    gpu = handle(library, device)
    for version in ("_v3", "_v2"):
        found = nvml.read(library, f"nvmlDeviceGetComputeRunningProcesses{version}", gpu)
        if found is not None:
            return [
                ComputeProcess(p.pid, _status(p.pid).get("Name"), p.usedGpuMemory) for p in found
            ]
    return None


def _descends(pid: int, ancestors: Collection[int]) -> bool:
    while pid > 0:
        if pid in ancestors:
            return True
        pid = int(_status(pid).get("PPid", 0))
    return False


def _status(pid: int) -> dict[str, str]:
    """Return the fields of proc_pid_status(5); empty where the process cannot be seen."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    fields = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in fields}
