"""From frames to rows, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuadvisor.domain.metrics import Metric
from gpuadvisor.domain.telemetry import Event, Gpu, GpuProcess, Number, Severity

Row = tuple[Any, ...]
_LARGEST = 2**63
"""From here on SQLite has no integers."""


def values_of(metrics: Iterable[Metric], values: Mapping[str, Number]) -> Row:
    """Return a row's metrics in their order; None where the frame has no value."""
    known = values.get  # most are None: they are read every ten seconds, or every minute
    return tuple(
        [
            None if (value := known(metric.name)) is None else fitting(metric, value)
            for metric in metrics
        ]
    )


def fitting(metric: Metric, value: Number | None) -> Number | None:
    """Return the value in its column's type; None where it is larger than any real one."""
    if value is None:
        return None
    if not metric.whole:
        return float(value)
    return int(value) if abs(value) < _LARGEST else None


GPU_COLUMNS = (
    "uuid, place, number, name, memory_total_bytes, pci_bus_id, compute_capability, parent_uuid"
)


def gpu_row(gpu: Gpu, place: int | None) -> Row:
    """Return the columns of GPU_COLUMNS. `place` is that in the list; None: not present."""
    capability = gpu.compute_capability and ".".join(map(str, gpu.compute_capability))
    return (
        gpu.uuid, place, gpu.index, gpu.name, gpu.memory_total_bytes, gpu.pci_bus_id, capability,
        gpu.parent_uuid,
    )  # fmt: skip


def gpu_of(row: Sequence[Any]) -> Gpu:
    """Return the GPU of a row of GPU_COLUMNS."""
    uuid, _, number, name, memory, bus_id, capability, parent = row
    major, _, minor = (capability or "").partition(".")
    return Gpu(
        uuid, number, name, memory, bus_id, (int(major), int(minor)) if capability else None, parent
    )


EVENT_COLUMNS = "kind, gpu, key, began_s, ended_s, severity, message, data"


def event_row(event: Event) -> Row:
    """Return the columns of EVENT_COLUMNS; no GPU is an empty text, as NULLs are all different."""
    return (
        event.kind, event.gpu or "", event.key, event.began_s, event.ended_s, str(event.severity),
        event.message, json.dumps(dict(event.data)),
    )  # fmt: skip


def event_of(row: Sequence[Any]) -> Event:
    """Return the event of a row of EVENT_COLUMNS."""
    kind, gpu, key, began_s, ended_s, severity, message, data = row
    return Event(
        kind, began_s, message, Severity(severity), gpu or None, ended_s, key, json.loads(data)
    )


PROGRAM_COLUMNS = (
    "gpu, pid, kind, name, user, command, container, is_host_pid, parent_pid, started_s"
)


def program_row(process: GpuProcess, gpu: int) -> Row:
    """Return the columns of PROGRAM_COLUMNS: what of a process stays as it is."""
    return (
        gpu, process.pid, process.kind, process.name, process.user, process.command,
        process.container, int(process.is_host_pid), process.parent_pid, process.started_s,
    )  # fmt: skip


PROCESS_COLUMNS = "memory_bytes, sm_utilization_pct, cpu_pct, host_memory_bytes"


def process_row(process: GpuProcess) -> Row:
    """Return the columns of PROCESS_COLUMNS: what of a process changes."""
    return (
        process.memory_bytes, process.sm_utilization_pct, process.cpu_pct,
        process.host_memory_bytes,
    )  # fmt: skip


def process_of(gpu: str, row: Sequence[Any]) -> GpuProcess:
    """Return the process of a row of PROGRAM_COLUMNS without the first, then PROCESS_COLUMNS."""
    pid, kind, name, user, command, container, is_host, parent, started_s, *changing = row
    memory, utilization, cpu, host_memory = changing
    return GpuProcess(
        gpu, pid, kind, memory, name, user, command, container, bool(is_host), utilization, cpu,
        host_memory, parent, started_s,
    )  # fmt: skip
