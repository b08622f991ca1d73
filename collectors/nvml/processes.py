"""The processes that have memory on the GPUs: by NVML which, by the operating system who they are.

In a container with its own process numbers, NVML gives the host's: these mean nothing here, or
another process. They are shown as the host's, and nothing is invented about them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from ctypes import Structure, byref, c_uint, c_ulonglong
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.domain.telemetry import Gpu, GpuProcess

COMMAND_CHARACTERS = 300
CONTAINER_ID_CHARACTERS = 12
"""Length of a container's identifier, as `docker ps` shows it."""

_FIRST_NAMESPACE = "pid:[4026531836]"
"""The host's namespace of process numbers (PROC_PID_INIT_INO in the kernel's proc_ns.h)."""
_CONTAINER = re.compile("[0-9a-f]{64}")
"""docker, containerd, podman and Kubernetes all name the control group by the whole id."""
KINDS = {"compute": "Compute", "graphics": "Graphics"}
_VERSIONS = ("_v3", "_v2", "")
_WINDOW_US = 5_000_000
"""Utilization is averaged over the newest samples of so long; the driver keeps older ones too."""
_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
Listed = dict[int, tuple[str, int | None]]
"""Kind (`compute`, `graphics`) and bytes on the GPU of each PID."""


class ProcessFacts:
    """Facts of processes, each asked once where it cannot change."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, tuple[Any, dict[str, Any]]] = {}
        """A psutil.Process, and the fields of a GpuProcess that do not change while it lives."""
        self._has_host_numbers = _namespace(proc) == _FIRST_NAMESPACE

    def describe(
        self, gpu: str, pid: int, kind: str, memory_bytes: int | None, sm_pct: float | None
    ) -> GpuProcess:
        """Return a process of a GPU with all that can be known of it here."""
        known = self._facts(pid)
        if known is None:
            facts: dict[str, Any] = {"name": None, "is_host_pid": not self._has_host_numbers}
        else:
            process, lasting = known
            facts = {
                **lasting,
                "cpu_pct": _quiet(lambda: process.cpu_percent(None)),
                "host_memory_bytes": _quiet(lambda: process.memory_info().rss),
            }
        return GpuProcess(gpu, pid, kind, memory_bytes, sm_utilization_pct=sm_pct, **facts)

    def forget_others(self, pids: set[int]) -> None:
        """Forget all but these processes."""
        for pid in self._known.keys() - pids:
            del self._known[pid]

    def _facts(self, pid: int) -> tuple[Any, dict[str, Any]] | None:
        import psutil

        known = self._known.get(pid)
        if known is not None and known[0].is_running():
            return known
        self._known.pop(pid, None)
        try:
            process = psutil.Process(pid)
        except (psutil.Error, OSError, ValueError):
            return None
        if not self._has_host_numbers and not self._may_use_gpus(pid):
            return None
        with process.oneshot():
            command = _quiet(process.cmdline)
            self._known[pid] = (
                process,
                {
                    "name": _quiet(process.name),
                    "user": _quiet(process.username),
                    "command": " ".join(command)[:COMMAND_CHARACTERS] if command else None,
                    "container": self._container(pid),
                    "parent_pid": _quiet(process.ppid),
                    "started_s": _quiet(process.create_time),
                },
            )
        _quiet(lambda: process.cpu_percent(None))  # the first call only sets its beginning
        return self._known[pid]

    def _may_use_gpus(self, pid: int) -> bool:
        """Whether a process may be the one that NVML means: it has a device file of NVIDIA open."""
        try:
            for link in (self._proc / str(pid) / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if "/dev/nvidia" in str(link.readlink()):
                        return True
        except OSError:
            return True  # another user's: it cannot be told
        return False

    def _container(self, pid: int) -> str | None:
        try:
            groups = (self._proc / str(pid) / "cgroup").read_text("utf-8", "replace")
        except OSError:
            return None
        found = _CONTAINER.findall(groups)
        return found[-1][:CONTAINER_ID_CHARACTERS] if found else None


def _namespace(proc: Path) -> str:
    try:
        return str((proc / "self/ns/pid").readlink())
    except OSError:
        return _FIRST_NAMESPACE  # a kernel without such namespaces


def _quiet(ask: Any) -> Any:
    """Return an answer of psutil, None where it may not say or the process is gone."""
    import psutil

    try:
        return ask()
    except (psutil.Error, OSError):
        return None


class GpuProcesses:
    """Lists the processes, by the newest form of the calls that the driver has."""

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
    used = ((process.pid, process.usedGpuMemory) for process in processes)
    return [(pid, None if memory == _NOT_AVAILABLE else memory) for pid, memory in used]


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
