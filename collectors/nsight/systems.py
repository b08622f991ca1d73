"""Nsight Systems: the SQLite files that `nsys export --type sqlite` makes, of any version.

Numbers of launches (`correlation`) repeat between the processes of one recording, and so do streams
of one device; `systems_devices` says how they are told apart here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.nsight import systems_tables as tables
from gpuadvisor.collectors.nsight.bounded import Warnings
from gpuadvisor.collectors.nsight.sqlite_export import MAGIC, Export, opened
from gpuadvisor.collectors.nsight.systems_reading import FARTHEST_NS, TIMES, ExportReader
from gpuadvisor.domain.profile import (
    CUT_OFF,
    FAILED_CALLS,
    LOST,
    SYSTEM_CALLS,
    FailedCalls,
    Header,
    Sink,
    failed_calls_told,
)
from gpuadvisor.errors import UsageError

METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""Tables about the export; the second name is that of schemas before 3.13."""
_MOST_FACTS = 10_000
_LONGEST_FACT = 1000  # characters
_MOST_FAILED = 20
"""Kinds of failed calls that are kept: a name and an error each."""
_TOLD = (
    "EXPORT_PRODUCT_NAME", "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION",
    "PROCESS_0:COMMAND", "CpuDescription", "CpuCores", "OsDescription", "Hostname",
    "CudaDriverVersion", "NvDriverVersion",
)  # fmt: skip
"""Names of metadata to keep. The rest includes the environment variables of the user's programs."""
_NVTX = "COLLECT_NVTX_TRACE"
_ERROR, _WARNING = 3, 2
"""Values of ENUM_DIAGNOSTIC_SEVERITY_LEVEL."""
_LOST = "Not all CUDA events"
_NOT_STARTED = "CUDA profiling might"
"""How warnings of Nsight Systems begin that tell why something of CUDA is missing."""
_LACKS = (_LOST, _NOT_STARTED, "Some events (", "Could not parse")
"""How what it reports begins, of any severity, where events are missing for it."""
_MOST_ERRORS = 5
_LONGEST_ERROR = 300  # characters
_NEVER = "Nsight Systems does not record this"
_NO_CUDA = "the recording has no CUDA events: record with `nsys profile --trace=cuda,nvtx`"
_NO_NVTX = "the recording has no NVTX ranges: record with `nsys profile --trace=cuda,nvtx`"
_NO_SAMPLES = (
    "no samples of a thread that calls CUDA: record with `nsys profile --sample=process-tree`"
)
_NO_METRICS = "record with `nsys profile --gpu-metrics-devices=all`"
_READERS: tuple[tuple[str, Callable[[ExportReader], int]], ...] = (
    ("kernels", tables.kernels),
    ("kernels", tables.graphs),
    ("copies", tables.copies),
    ("copies", tables.memsets),
    ("calls", tables.calls),
    ("synchronizations", tables.synchronizations),
    ("ranges", tables.ranges),
    ("counters", tables.counters),
    ("calls of MPI", tables.mpi_calls),
    ("system calls", tables.system_calls),
    ("samples", tables.samples),
)
_CUDA = ("kernels", "copies", "calls", "synchronizations")
_MAY_LACK = {  # columns that some versions of the export do not have
    "kernels.registers": ("CUPTI_ACTIVITY_KIND_KERNEL", "registersPerThread"),
    "kernels.shared_bytes": ("CUPTI_ACTIVITY_KIND_KERNEL", "dynamicSharedMemory"),
    "kernels.graph_node": ("CUPTI_ACTIVITY_KIND_KERNEL", "graphNodeId"),
    "copies.source": ("CUPTI_ACTIVITY_KIND_MEMCPY", "srcKind"),
    "copies.destination": ("CUPTI_ACTIVITY_KIND_MEMCPY", "dstKind"),
}


class ExportMetadata:
    """What the tables of names and values tell of the export, the recording and the machine."""

    def __init__(self, export: Export) -> None:
        self._export = export
        self._values: dict[str, str] = {}
        for table in (*METADATA, "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV"):
            for name, value in export.first_rows(table, ("name", "value"), _MOST_FACTS):
                if isinstance(name, str) and isinstance(value, (str, int)):
                    self._values.setdefault(name, str(value))

    @property
    def tool(self) -> str:
        """Who wrote the file, with its version."""
        parts = (self._values.get(f"EXPORT_PRODUCT_{part}", "") for part in ("NAME", "VERSION"))
        return " ".join(part[:_LONGEST_FACT] for part in parts if part) or "Nsight Systems"

    @property
    def facts(self) -> Mapping[str, str]:
        """What is worth keeping, by the export's own names."""
        found = {name: self._values[name][:_LONGEST_FACT] for name in _TOLD if name in self._values}
        return {name: value for name, value in found.items() if value}

    @property
    def nvtx_was_recorded(self) -> bool:
        return any(
            name.endswith(_NVTX) and value.lower() in ("true", "1")
            for name, value in self._values.items()
        )

    def begin_unix_ns(self, first_ns: int) -> int | None:
        """Return the time of day of an event, None where the file does not know it."""
        first_ns -= _whole(self._values.get("EXPORT_PARAM_TIME_SHIFT"))  # `nsys export --ts-shift`
        if self._values.get("EXPORT_PARAM_TIME_NORMALIZE", "").lower() == "true":
            return first_ns  # `--ts-normalize`: times are of day already
        for (epoch,) in self._export.first_rows(
            "TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",), 1
        ):
            if isinstance(epoch, int) and 0 < epoch < FARTHEST_NS:
                begin = epoch + first_ns
                return begin if abs(begin) < 2 * FARTHEST_NS else None
        return None


def recording_errors(export: Export, lacks_cuda: bool) -> list[str]:
    """Return what went wrong while it was recorded, such as events that were lost; where all of
    CUDA is missing also what Nsight Systems says of that, and else says of other processes."""
    rows = export.first_rows("DIAGNOSTIC_EVENT", ("severity", "text"), _MOST_FACTS)
    told = (_LOST, _NOT_STARTED) if lacks_cuda else (_LOST,)
    said = (
        text
        for level, text in rows
        if isinstance(text, str)
        and (level == _ERROR or (level == _WARNING and text.startswith(told)))
    )
    texts = dict.fromkeys(" ".join(text.split())[:_LONGEST_ERROR] for text in said)
    return list(texts)[:_MOST_ERRORS]


def _reported(text: str) -> str:
    return f"Nsight Systems reported: {text}"


def _whole(text: Any) -> int:
    """Return a time shift; 0 for what is none, or so far off that nothing honest is."""
    try:
        shift = int(text)
    except (TypeError, ValueError):
        return 0
    return shift if abs(shift) < FARTHEST_NS else 0


def recognises(head: bytes) -> bool:
    """Say whether a file that begins so is for this reader: any SQLite file."""
    return head.startswith(MAGIC)


NVPROF = frozenset({"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL", "StringTable"})
"""Tables of nvprof's databases, where kernels and names stand, and which no export of Nsight
Systems has. Other tables have the same names and other columns in both."""


SESSION = "TARGET_INFO_SESSION_START_TIME"
"""A table that every export has, also one without events."""


def read(path: Path, sink: Sink) -> Header:
    """Read an export into a sink; UsageError where it is none, or nothing of it can be used.

    The file is opened read-only and never written to. Memory is bounded by a batch of rows and by
    the different names, time by the size of the file.
    """
    with opened(path) as export:
        if not export.tables & {*METADATA, *TIMES}:
            if SESSION in export.tables:
                raise UsageError(
                    f"{path} is an export of Nsight Systems without an event: nothing was recorded,"
                    " or its report was not written to the end; record it again"
                )
            raise UsageError(
                f"{path} is a SQLite file, but not of Nsight Systems: give what "
                "`nsys export --type sqlite` made"
            )
        if not export.tables.isdisjoint(NVPROF):
            raise UsageError(
                f"{path} is a database of nvprof or the Visual Profiler, which is not read: record"
                " with `nsys profile`, and give what `nsys export --type sqlite` makes of it"
            )
        warnings = Warnings()
        for sentence in _cut_off(export).values():
            warnings.add(sentence)
        metadata, reading = ExportMetadata(export), ExportReader(export, sink, warnings)
        rows = dict.fromkeys((name for name, _ in _READERS), 0)
        for name, reader in _READERS:
            found = reader(reading)
            rows[name] += found
            if reader is tables.graphs and found:
                warnings.add(
                    f"{found} launches of CUDA graphs were recorded as a whole and count as one "
                    "kernel each: record with `--cuda-graph-trace=node` to see those in them"
                )
        if not reading.rows and warnings.all():
            raise UsageError(f"nothing of {path} can be read: {warnings.all()[0]}")
        lacks_cuda = not any(rows[table] for table in _CUDA)
        errors = recording_errors(export, lacks_cuda)
        for error in errors:
            warnings.add(_reported(error))
        lost = " ".join(_reported(error) for error in errors if error.startswith(_LACKS))
        header = _header(export, reading, metadata, rows)
        return replace(header, facts={**header.facts, LOST: lost}) if lost else header


def _header(
    export: Export, reading: ExportReader, metadata: ExportMetadata, rows: Mapping[str, int]
) -> Header:
    system = {SYSTEM_CALLS: "recorded"} if "OSRT_API" in export.tables else {}
    return Header(
        source="nsys",
        tool=metadata.tool,
        begin_unix_ns=metadata.begin_unix_ns(reading.first_ns) if reading.rows else None,
        first_ns=reading.first_ns,
        duration_ns=reading.duration_ns,
        devices=reading.devices.limits(),
        processes=reading.processes.names(),
        facts={**metadata.facts, **_failed(export, reading), **system, **_cut_off(export)},
        not_measured=_not_measured(export, metadata, rows),
        warnings=reading.warnings.all(),
        texts=reading.names.all(),
    )


def _cut_off(export: Export) -> dict[str, str]:
    """Return the fact that a part of the file is missing; none where it is whole."""
    if not export.missing_bytes:
        return {}
    return {CUT_OFF: f"The file is {export.missing_bytes:,} bytes shorter than it says"}


def _failed(export: Export, reading: ExportReader) -> Mapping[str, str]:
    """Return the fact of which calls failed; none where the file does not tell."""
    if "returnValue" not in export.columns("CUPTI_ACTIVITY_KIND_RUNTIME"):
        return {}
    found = (FailedCalls(*key, times) for key, times in reading.failed.most_common(_MOST_FAILED))
    return {FAILED_CALLS: failed_calls_told(found)}


def _not_measured(
    export: Export, metadata: ExportMetadata, rows: Mapping[str, int]
) -> dict[str, str]:
    never = ("operators", "memory", "collectives", "links", "metrics", "stalls")
    found = dict.fromkeys(never, _NEVER)
    if not any(rows[table] for table in _CUDA):
        found |= dict.fromkeys(_CUDA, _NO_CUDA)
    if not rows["ranges"] and not metadata.nvtx_was_recorded:
        found["ranges"] = _NO_NVTX
    if not rows["samples"]:
        found["samples"] = _NO_SAMPLES
    if not rows["counters"]:
        found["counters"] = _NO_METRICS
    for column, (table, source) in _MAY_LACK.items():
        if table in export.tables and source not in export.columns(table):
            found[column] = "this version of Nsight Systems does not export it"
    return found
