"""The processes that have memory on the GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import Structure, byref, c_uint, c_ulonglong
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.process_facts import ProcessFacts
from gpuadvisor.domain.telemetry import Gpu, GpuProcess

KINDS = {"compute": "Compute", "graphics": "Graphics"}
_VERSIONS = ("_v3", "_v2", "")
_WINDOW_US = 5_000_000
"""Utilization is averaged over the newest samples of so long; the driver keeps older ones too."""
_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF

Listed = dict[int, tuple[str, int | None]]
"""By PID: kind, and bytes on the GPU."""


class Processes:
    """Lists them, by the newest form of the calls that the driver has."""

    def __init__(self) -> None:
        self._facts = ProcessFacts()
        self._versions: dict[tuple[str, str], int] = {}

    def read(self, nvml: Any, gpus: Sequence[tuple[Gpu, Any]]) -> tuple[GpuProcess, ...] | None:
        """Return those of the GPUs (with their handles); None where no GPU can say.

        Raises LibraryGoneError.
        """
        parents = {gpu.parent_uuid for gpu, _ in gpus}
        found: list[GpuProcess] = []
        is_known = False
        for gpu, handle in gpus:
            if gpu.uuid in parents:
                continue  # its instances say it, each for itself
            listed = self._list(nvml, gpu, handle)
            if listed is not None:
                is_known = True
                found.extend(self._describe(nvml, gpu, handle, listed))
        self._facts.forget_others({process.pid for process in found})
        return tuple(found) if is_known or not gpus else None

    def forget_versions(self) -> None:
        """Begin again with the newest calls: the library may be another one now."""
        self._versions.clear()

    def _list(self, nvml: Any, gpu: Gpu, handle: Any) -> Listed | None:
        kinds = {kind: self._of_kind(nvml, gpu, handle, kind) for kind in KINDS}
        if all(processes is None for processes in kinds.values()):
            return None
        listed: Listed = {}
        for kind, processes in kinds.items():
            for pid, memory_bytes in processes or ():
                listed.setdefault(pid, (kind, memory_bytes))  # many compute and draw
        return listed

    def _of_kind(
        self, nvml: Any, gpu: Gpu, handle: Any, kind: str
    ) -> list[tuple[int, int | None]] | None:
        first = self._versions.get((gpu.uuid, kind), 0)
        for i in range(first, len(_VERSIONS)):
            try:
                processes = _running(nvml, handle, KINDS[kind], _VERSIONS[i])
            except (nvml.NVMLError, AttributeError) as error:
                code = codes.code_of(error)
                if code in codes.LIBRARY_GONE:
                    raise codes.LibraryGoneError from error
                if code not in codes.OLDER_WAY:
                    return None
            else:
                self._versions[gpu.uuid, kind] = i
                return processes
        return None

    def _describe(self, nvml: Any, gpu: Gpu, handle: Any, listed: Listed) -> Iterator[GpuProcess]:
        busy = _utilization(nvml, handle) if listed else None
        for pid, (kind, memory_bytes) in listed.items():
            share = None if busy is None else busy.get(pid, 0.0)
            yield self._facts.describe(gpu.uuid, pid, kind, memory_bytes, share)


class _FirstProcess(Structure):
    """`nvmlProcessInfo_v1_t`, which nvidia-ml-py does not have any more."""

    _fields_ = (("pid", c_uint), ("usedGpuMemory", c_ulonglong))


def _running(nvml: Any, handle: Any, kind: str, version: str) -> list[tuple[int, int | None]]:
    name = f"nvmlDeviceGet{kind}RunningProcesses{version}"
    processes = getattr(nvml, name)(handle) if version else _first_version(nvml, handle, name)
    return [(process.pid, _bytes(process.usedGpuMemory)) for process in processes]


def _first_version(nvml: Any, handle: Any, name: str) -> Any:
    function = getattr(nvml.nvmlLib, name)
    count = c_uint(0)
    code = function(handle, byref(count), None)
    if code == nvml.NVML_ERROR_INSUFFICIENT_SIZE:
        count.value = 2 * count.value + 5  # some may start meanwhile
        processes = (_FirstProcess * count.value)()
        code = function(handle, byref(count), processes)
        if not code:
            return processes[: count.value]
    if code:
        raise nvml.NVMLError(code)
    return []


def _bytes(used: int | None) -> int | None:
    return None if used in (None, _NOT_AVAILABLE) else used


def _utilization(nvml: Any, handle: Any) -> dict[int, float] | None:
    """Return how busy each process keeps the SMs, in percent; None where the driver cannot say.

    A process without a sample was idle.
    """
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    except (nvml.NVMLError, AttributeError) as error:
        return {} if codes.code_of(error) == codes.NOT_FOUND else None
    newest_us = max((sample.timeStamp for sample in samples), default=0)
    shares: dict[int, list[int]] = {}
    for sample in samples:
        if sample.smUtil <= 100 and sample.timeStamp >= newest_us - _WINDOW_US:
            shares.setdefault(sample.pid, []).append(sample.smUtil)
    return {pid: sum(values) / len(values) for pid, values in shares.items()}
