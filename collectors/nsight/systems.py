"""Nsight Systems: the SQLite files that `nsys export --type sqlite` makes, of any version.

Numbers of launches (`correlation`) repeat between the processes of one recording, and so do streams
of one device; `systems_processes` says how they are told apart here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from gpuadvisor.collectors.nsight import systems_tables as tables
from gpuadvisor.collectors.nsight.remarks import Remarks
from gpuadvisor.collectors.nsight.sqlite_export import MAGIC, Export, opened
from gpuadvisor.collectors.nsight.systems_header import METADATA, Told, errors
from gpuadvisor.collectors.nsight.systems_reading import TIMES, Reading
from gpuadvisor.domain.profile import Header, Sink
from gpuadvisor.errors import UsageError

_NEVER = "Nsight Systems does not record this"
_NO_CUDA = "the recording has no CUDA events: record with `nsys profile --trace=cuda,nvtx`"
_NO_NVTX = "the recording has no NVTX ranges: record with `nsys profile --trace=cuda,nvtx`"
_NO_METRICS = "record with `nsys profile --gpu-metrics-devices=all`"
_READERS: tuple[tuple[str, Callable[[Reading], int]], ...] = (
    ("kernels", tables.kernels),
    ("kernels", tables.graphs),
    ("copies", tables.copies),
    ("copies", tables.memsets),
    ("calls", tables.calls),
    ("synchronizations", tables.synchronizations),
    ("ranges", tables.ranges),
    ("counters", tables.counters),
)
_CUDA = ("kernels", "copies", "calls", "synchronizations")
_MAY_LACK = {  # columns that some versions of the export do not have
    "kernels.registers": ("CUPTI_ACTIVITY_KIND_KERNEL", "registersPerThread"),
    "kernels.shared_bytes": ("CUPTI_ACTIVITY_KIND_KERNEL", "dynamicSharedMemory"),
    "kernels.graph_node": ("CUPTI_ACTIVITY_KIND_KERNEL", "graphNodeId"),
    "copies.source": ("CUPTI_ACTIVITY_KIND_MEMCPY", "srcKind"),
    "copies.destination": ("CUPTI_ACTIVITY_KIND_MEMCPY", "dstKind"),
}


def recognises(head: bytes) -> bool:
    """Say whether a file that begins so is for this reader: any SQLite file."""
    return head.startswith(MAGIC)


def read(path: Path, sink: Sink) -> Header:
    """Read an export into a sink; UsageError where it is none, or nothing of it can be used.

    The file is opened read-only and never written to. Memory is bounded by a batch of rows and by
    the different names, time by the size of the file.
    """
    with opened(path) as export:
        _require_nsys(path, export)
        remarks = Remarks()
        if export.missing_bytes:
            remarks.add(f"the file is {export.missing_bytes:,} bytes shorter than it says")
        told, reading = Told(export), Reading(export, sink, remarks)
        rows = dict.fromkeys((name for name, _ in _READERS), 0)
        for name, reader in _READERS:
            found = reader(reading)
            rows[name] += found
            if reader is tables.graphs and found:
                remarks.add(
                    f"{found} launches of CUDA graphs were recorded as a whole and count as one "
                    "kernel each: record with `--cuda-graph-trace=node` to see those in them"
                )
        if not reading.rows and remarks.all():
            raise UsageError(f"nothing of {path} can be read: {remarks.all()[0]}")
        for error in errors(export):
            remarks.add(error)
        return _header(export, reading, told, rows)


def _require_nsys(path: Path, export: Export) -> None:
    if not export.tables & {*METADATA, *TIMES}:
        raise UsageError(
            f"{path} is a SQLite file, but not of Nsight Systems: give what "
            "`nsys export --type sqlite` made"
        )


def _header(export: Export, reading: Reading, told: Told, rows: Mapping[str, int]) -> Header:
    return Header(
        source="nsys",
        tool=told.tool,
        begin_unix_ns=told.begin_unix_ns(reading.first_ns) if reading.rows else None,
        first_ns=reading.first_ns,
        duration_ns=reading.duration_ns,
        devices=reading.devices.limits(),
        processes=reading.processes.names(),
        facts=told.facts,
        not_measured=_not_measured(export, told, rows),
        warnings=reading.remarks.all(),
        texts=reading.names.all(),
    )


def _not_measured(export: Export, told: Told, rows: Mapping[str, int]) -> dict[str, str]:
    never = ("operators", "memory", "collectives", "links", "metrics")
    found = dict.fromkeys(never, _NEVER)
    if not any(rows[table] for table in _CUDA):
        found |= dict.fromkeys(_CUDA, _NO_CUDA)
    if not rows["ranges"] and not told.nvtx_was_recorded:
        found["ranges"] = _NO_NVTX
    if not rows["counters"]:
        found["counters"] = _NO_METRICS
    for column, (table, source) in _MAY_LACK.items():
        if table in export.tables and source not in export.columns(table):
            found[column] = "this version of Nsight Systems does not export it"
    return found
