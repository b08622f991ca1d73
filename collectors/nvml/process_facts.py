"""What the operating system says of a process: whose it is, what it runs, in which container.

In a container with its own process numbers, NVML gives the host's: these mean nothing here, or
another process. They are shown as the host's, and nothing is invented about them.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any, NamedTuple

from gpuadvisor.domain.telemetry import GpuProcess

COMMAND_CHARACTERS = 300
CONTAINER_ID_CHARACTERS = 12
"""As `docker ps` shows it."""

_FIRST_NAMESPACE = "pid:[4026531836]"
"""The host's namespace of process numbers (PROC_PID_INIT_INO in the kernel's proc_ns.h)."""
_CONTAINER = re.compile("[0-9a-f]{64}")
"""docker, containerd, podman and Kubernetes all name the control group by the whole id."""


class _Known(NamedTuple):
    """What does not change while a process lives."""

    process: Any
    """A psutil.Process."""
    name: str | None
    user: str | None
    command: str | None
    container: str | None
    parent_pid: int | None
    started_s: float | None


class ProcessFacts:
    """Facts of processes, each asked once where it cannot change."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, _Known] = {}
        self._has_host_numbers = _namespace(proc) == _FIRST_NAMESPACE

    def describe(
        self, gpu: str, pid: int, kind: str, memory_bytes: int | None, sm_pct: float | None
    ) -> GpuProcess:
        """Return a process of a GPU with all that can be known of it here."""
        known = self._facts(pid)
        if known is None:
            is_host_pid = not self._has_host_numbers
            return GpuProcess(
                gpu, pid, kind, memory_bytes, None,
                is_host_pid=is_host_pid, sm_utilization_pct=sm_pct,
            )  # fmt: skip
        return GpuProcess(
            gpu=gpu,
            pid=pid,
            kind=kind,
            memory_bytes=memory_bytes,
            name=known.name,
            user=known.user,
            command=known.command,
            container=known.container,
            sm_utilization_pct=sm_pct,
            cpu_pct=_quiet(lambda: known.process.cpu_percent(None)),
            host_memory_bytes=_quiet(lambda: known.process.memory_info().rss),
            parent_pid=known.parent_pid,
            started_s=known.started_s,
        )

    def forget_others(self, pids: set[int]) -> None:
        """Forget all but these processes."""
        for pid in self._known.keys() - pids:
            del self._known[pid]

    def _facts(self, pid: int) -> _Known | None:
        import psutil

        known = self._known.get(pid)
        if known is not None and known.process.is_running():
            return known
        self._known.pop(pid, None)
        try:
            process = psutil.Process(pid)
        except (psutil.Error, OSError, ValueError):
            return None
        if not self._has_host_numbers and not self._may_use_gpus(pid):
            return None
        with process.oneshot():
            self._known[pid] = _Known(
                process,
                _quiet(process.name),
                _quiet(process.username),
                _command(process),
                self._container(pid),
                _quiet(process.ppid),
                _quiet(process.create_time),
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


def _command(process: Any) -> str | None:
    words = _quiet(process.cmdline)
    return " ".join(words)[:COMMAND_CHARACTERS] if words else None


def _quiet(ask: Any) -> Any:
    """Return an answer of psutil, None where it may not say or the process is gone."""
    import psutil

    try:
        return ask()
    except (psutil.Error, OSError):
        return None
