"""Tables of an Nsight Systems export, each turned into one of a profile's.

Which columns there are depends on the version, and the program decides which tables: those without
rows are left out. Schemas 2.9 (2020) to 3.24 (2026).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuadvisor.collectors.cuda_calls import kind_of, plain_name
from gpuadvisor.collectors.nsight.cells import IntArray, count, mapped, real, whole, within
from gpuadvisor.collectors.nsight.sqlite_export import DamagedError, Export
from gpuadvisor.collectors.nsight.systems_devices import process_of, thread_of
from gpuadvisor.collectors.nsight.systems_reading import (
    MPI,
    BoolArray,
    Cells,
    Converted,
    ExportReader,
    cell_numbers,
    text_numbers,
)
from gpuadvisor.domain.profile import (
    UNKNOWN,
    CallKind,
    Direction,
    Memory,
    Range,
    Synchronization,
)

_MOST_KINDS = 1000
_CHAINS = "SAMPLING_CALLCHAINS"
_KERNEL_MODULE = "the operating system's kernel"
_NO_SYMBOL = ("0x", "[")
"""How texts begin that stand for a function without a symbol: its address, or `[Unknown]` and
`[Broken backtraces]`."""

_DIRECTIONS = {  # ends of names in ENUM_CUDA_MEMCPY_OPER
    "KIND_HTOD": Direction.HOST_TO_DEVICE, "KIND_HTOA": Direction.HOST_TO_DEVICE,
    "KIND_DTOH": Direction.DEVICE_TO_HOST, "KIND_ATOH": Direction.DEVICE_TO_HOST,
    "KIND_DTOD": Direction.DEVICE_TO_DEVICE, "KIND_ATOA": Direction.DEVICE_TO_DEVICE,
    "KIND_ATOD": Direction.DEVICE_TO_DEVICE, "KIND_DTOA": Direction.DEVICE_TO_DEVICE,
    "KIND_HTOH": Direction.HOST_TO_HOST, "KIND_PTOP": Direction.PEER_TO_PEER,
    "KIND_UVM_HTOD": Direction.MIGRATION, "KIND_UVM_DTOH": Direction.MIGRATION,
    "KIND_UVM_DTOD": Direction.MIGRATION,
}  # fmt: skip
_MEMORIES = {  # ends of names in ENUM_CUDA_MEM_KIND
    "KIND_PAGEABLE": Memory.PAGEABLE, "KIND_PINNED": Memory.PINNED,
    "KIND_DEVICE": Memory.DEVICE, "KIND_DEVICE_STATIC": Memory.DEVICE,
    "KIND_ARRAY": Memory.ARRAY,
    "KIND_MANAGED": Memory.MANAGED, "KIND_MANAGED_STATIC": Memory.MANAGED,
}  # fmt: skip

# For exports that do not carry their enumerations; equal in all of schemas 2.9 to 3.24.
_USUAL_DIRECTIONS = {
    1: Direction.HOST_TO_DEVICE, 2: Direction.DEVICE_TO_HOST, 3: Direction.HOST_TO_DEVICE,
    4: Direction.DEVICE_TO_HOST, 5: Direction.DEVICE_TO_DEVICE, 6: Direction.DEVICE_TO_DEVICE,
    7: Direction.DEVICE_TO_DEVICE, 8: Direction.DEVICE_TO_DEVICE, 9: Direction.HOST_TO_HOST,
    10: Direction.PEER_TO_PEER, 11: Direction.MIGRATION, 12: Direction.MIGRATION,
    13: Direction.MIGRATION,
}  # fmt: skip
_USUAL_MEMORIES = {
    0: Memory.PAGEABLE, 1: Memory.PINNED, 2: Memory.DEVICE, 3: Memory.ARRAY, 4: Memory.MANAGED,
    5: Memory.DEVICE, 6: Memory.MANAGED,
}  # fmt: skip
_MIGRATED = {
    11: (Memory.MANAGED, Memory.DEVICE), 12: (Memory.DEVICE, Memory.MANAGED),
    13: (Memory.DEVICE, Memory.DEVICE),
}  # fmt: skip
"""Ends of a migration by its kind, where the file tells no memory: from the host, to it, between
devices. Managed memory stands for the host's side."""
_SYNCHRONIZATIONS = {
    1: Synchronization.EVENT, 2: Synchronization.STREAM_WAIT, 3: Synchronization.STREAM,
    4: Synchronization.CONTEXT,
}  # fmt: skip
_NVTX_RANGES = (59, 60)
"""Values of `eventType`: pushed and popped, started and ended. Others are marks and domains."""

_NO_FAILURES = (4, 201, 600, 709)
"""Errors of calls that are none of the program's: CUDA or its context is gone as the process ends
(`cudaErrorCudartUnloading`, `cudaErrorDeviceUninitialized`, `cudaErrorContextIsDestroyed`), and
`cudaErrorNotReady`."""
_ASKING = (CallKind.OTHER, CallKind.EVENT)
_BACKTRACE = 67
"""An `eventClass`, TRACE_PROCESS_EVENT_CUDABACKTRACE: the stack of a call, which is there besides
with the same number, in recordings with `--cudabacktrace`. Equal in all of 221 exports."""

_STEP, _LOADER = "ProfilerStep#", "enumerate(DataLoader)#"
_WHERE = ("deviceId", "streamId", "correlationId", "globalPid")
_GRID = {"gridX": "grid_x", "gridY": "grid_y", "gridZ": "grid_z"}
_BLOCK = {"blockX": "block_x", "blockY": "block_y", "blockZ": "block_z"}
_NO_STREAM = 2**32 - 1
"""CUPTI_SYNCHRONIZATION_INVALID_VALUE."""
_METRICS_GPU_BITS = 0xFF
"""Bits of `typeId`, which says what and whose a metric is, that number the GPU."""


_COPY_KINDS = ("ENUM_CUDA_MEMCPY_OPER", _DIRECTIONS, _USUAL_DIRECTIONS)
"""What tells the direction of a `copyKind`."""
_MEMORY_KINDS = ("ENUM_CUDA_MEM_KIND", _MEMORIES, _USUAL_MEMORIES)
"""What tells the memory of a `srcKind`, `dstKind` or `memKind`."""


def _enumeration(
    export: Export, table: str, meanings: Mapping[str, int], usual: Mapping[int, int]
) -> Mapping[int, int]:
    """Return the meanings of an enumeration's numbers, the usual ones where it is not there."""
    found: dict[int, int] = {}
    for number, name in export.first_rows(table, ("id", "name"), _MOST_KINDS):
        if isinstance(number, int) and isinstance(name, str):
            meaning = meanings.get(name[name.find("KIND_") :])
            if meaning is not None:
                found[number] = meaning
    return found or usual


def _translated(numbers: IntArray, meanings: Mapping[int, int]) -> npt.NDArray[Any]:
    """Return a meaning for each number; 0, which is unknown everywhere, for others."""
    return mapped(lambda number: meanings.get(number, 0), numbers).astype(np.int8)


def _range_kind(name: str) -> Range:
    """Return who marked a range, as far as its name tells."""
    if name.startswith(_STEP):
        return Range.STEP
    return Range.LOADER if name.startswith(_LOADER) else Range.USER


def kernels(reading: ExportReader) -> int:
    """Read kernels that were launched one by one, or as nodes of a graph."""
    columns = reading.export.columns("CUPTI_ACTIVITY_KIND_KERNEL")
    name = "demangledName" if "demangledName" in columns else "shortName"
    shared = ("staticSharedMemory", "dynamicSharedMemory")
    shape = {**_GRID, **_BLOCK, "registersPerThread": "registers"}

    def convert(cells: Cells, used: IntArray) -> Converted:
        static, dynamic = (whole(cells[column])[used] for column in shared)
        both = np.where((static < 0) | (dynamic < 0) | (static + dynamic < 0), -1, static + dynamic)
        ids = whole(cells[name])[used]
        return {
            **_where(reading, cells, used),
            **{ours: count(cells[theirs], "int32")[used] for theirs, ours in shape.items()},
            "name": text_numbers(ids, reading.strings, reading.names.number),
            "shared_bytes": within(both, "int32"),
            "graph_node": count(cells["graphNodeId"], "int64")[used],
        }

    wanted = (*_WHERE, *shape, *shared, name, "graphNodeId")
    return reading.events("CUPTI_ACTIVITY_KIND_KERNEL", "kernels", wanted, convert)


def graphs(reading: ExportReader) -> int:
    """Read launches of CUDA graphs of which only the whole was recorded, as kernels."""
    unknown = ("registers", "shared_bytes", *_GRID.values(), *_BLOCK.values())

    def name_of(graph: int) -> int:
        return reading.names.number("CUDA graph" if graph == UNKNOWN else f"CUDA graph {graph}")

    def convert(cells: Cells, used: IntArray) -> Converted:
        names = mapped(name_of, count(cells["graphId"], "int64")[used])
        return {
            **_where(reading, cells, used),
            **{column: np.full(len(used), UNKNOWN, np.int32) for column in unknown},
            "name": names.astype(np.int32),
            "graph_node": np.full(len(used), UNKNOWN, np.int64),
        }

    wanted = (*_WHERE, "graphId")
    return reading.events("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "kernels", wanted, convert)


def copies(reading: ExportReader) -> int:
    """Read copies."""
    directions = _enumeration(reading.export, *_COPY_KINDS)
    memories = _enumeration(reading.export, *_MEMORY_KINDS)

    def convert(cells: Cells, used: IntArray) -> Converted:
        kind = whole(cells["copyKind"])[used]
        source, destination = (
            _translated(whole(cells[end])[used], memories) for end in ("srcKind", "dstKind")
        )
        for ends, place in ((source, 0), (destination, 1)):
            for number, memory in _MIGRATED.items():
                ends[(kind == number) & (ends == Memory.NOT_KNOWN)] = memory[place]
        return {
            **_where(reading, cells, used),
            "direction": _translated(kind, directions),
            "source": source,
            "destination": destination,
            "bytes": count(cells["bytes"], "int64")[used],
            "graph_node": count(cells["graphNodeId"], "int64")[used],
        }

    wanted = (*_WHERE, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId")
    return reading.events("CUPTI_ACTIVITY_KIND_MEMCPY", "copies", wanted, convert)


def memsets(reading: ExportReader) -> int:
    """Read fillings of memory with a value."""
    memories = _enumeration(reading.export, *_MEMORY_KINDS)

    def convert(cells: Cells, used: IntArray) -> Converted:
        return {
            **_where(reading, cells, used),
            "direction": np.full(len(used), Direction.MEMSET, np.int8),
            "source": np.full(len(used), Memory.NOT_KNOWN, np.int8),
            "destination": _translated(whole(cells["memKind"])[used], memories),
            "bytes": count(cells["bytes"], "int64")[used],
            "graph_node": count(cells["graphNodeId"], "int64")[used],
        }

    wanted = (*_WHERE, "bytes", "memKind", "graphNodeId")
    return reading.events("CUPTI_ACTIVITY_KIND_MEMSET", "copies", wanted, convert)


def calls(reading: ExportReader) -> int:
    """Read calls into the CUDA runtime and driver."""

    def convert(cells: Cells, used: IntArray) -> Converted:
        ids, owner = whole(cells["nameId"])[used], whole(cells["globalTid"])[used]
        number = reading.names.number
        _count_failed(reading, ids, whole(cells["returnValue"])[used])
        reading.calling.update(np.unique(owner).tolist())
        correlation = whole(cells["correlationId"])[used]
        return {
            "process": process_of(owner),
            "thread": thread_of(owner),
            "correlation": reading.processes.unique(correlation, owner),
            "name": text_numbers(ids, reading.strings, lambda text: number(plain_name(text))),
            "kind": text_numbers(ids, reading.strings, kind_of).astype(np.int8),
        }

    def is_call(cells: Cells) -> BoolArray:
        chosen: BoolArray = whole(cells["eventClass"]) != _BACKTRACE
        return chosen

    wanted = ("globalTid", "correlationId", "nameId", "returnValue", "eventClass")
    source = "CUPTI_ACTIVITY_KIND_RUNTIME"
    return reading.events(source, "calls", wanted, convert, choose=is_call)


def _count_failed(reading: ExportReader, ids: IntArray, returned: IntArray) -> None:
    """Count the calls that returned an error, of those that give the GPU work, wait for it or
    handle its memory: others ask whether something is so, and an error is an answer."""
    rows = np.flatnonzero((returned > 0) & ~np.isin(returned, _NO_FAILURES))
    pairs = zip(ids[rows].tolist(), returned[rows].tolist(), strict=True)
    for (number, error), times in Counter(pairs).items():
        name = reading.strings.get(number, "")
        if kind_of(name) not in _ASKING:
            reading.failed[plain_name(name), error] += times


def synchronizations(reading: ExportReader) -> int:
    """Read what waited for what."""

    def convert(cells: Cells, used: IntArray) -> Converted:
        found = _where(reading, cells, used)
        waiting = _translated(whole(cells["syncType"])[used], _SYNCHRONIZATIONS)
        return {**found, "kind": waiting}

    wanted = (*_WHERE, "syncType")
    source = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
    return reading.events(source, "synchronizations", wanted, convert)


def ranges(reading: ExportReader) -> int:
    """Read NVTX ranges."""
    typed = "eventType" in reading.export.columns("NVTX_EVENTS")
    kind_of_name: dict[int, int] = {}

    def number(text: str) -> int:
        found = reading.names.number(text)
        kind_of_name[found] = _range_kind(text)
        return found

    def convert(cells: Cells, used: IntArray) -> Converted:
        owner = whole(cells["globalTid"])[used]
        own = [cells["text"][row] for row in used.tolist()]
        by_id = text_numbers(whole(cells["textId"])[used], reading.strings, number)
        texts = cell_numbers(own, number)
        names = np.where(texts > 0, texts, by_id).astype(np.int32)
        known = _translated(names.astype(np.int64), kind_of_name)
        return {
            "process": process_of(owner), "thread": thread_of(owner), "name": names, "kind": known
        }  # fmt: skip

    return reading.events(
        "NVTX_EVENTS",
        "ranges",
        ("text", "textId", "globalTid", "eventType"),
        convert,
        texts=True,
        choose=(lambda cells: np.isin(whole(cells["eventType"]), _NVTX_RANGES)) if typed else None,
    )


def system_calls(reading: ExportReader) -> int:
    """Read what threads that call CUDA call of the operating system's libraries, as ranges: the
    part of them between the first and the last of all that was read before, and not what these
    calls make themselves.

    A program's start and its end may be long, and other threads may wait for all of its life.
    """
    return _calls_around(reading, ("OSRT_API",), "nameId", Range.SYSTEM)


def mpi_calls(reading: ExportReader) -> int:
    """Read what threads that call CUDA call of MPI, as ranges of the program: the part of them
    between the first and the last of all that was read before."""
    return _calls_around(reading, MPI, "textId", Range.USER)


def _calls_around(
    reading: ExportReader, tables: Iterable[str], name: str, range_kind: Range
) -> int:
    if not reading.calling:
        return 0
    first, last = reading.first_ns, reading.first_ns + reading.duration_ns
    calling = np.array(sorted(reading.calling), np.int64)

    def choose(cells: Cells) -> BoolArray:
        within = (whole(cells["start"]) < last) & (whole(cells["end"]) > first)
        outermost = whole(cells["nestingLevel"]) <= 0
        chosen: BoolArray = within & outermost & np.isin(whole(cells["globalTid"]), calling)
        return chosen

    def convert(cells: Cells, used: IntArray) -> Converted:
        ids, owner = whole(cells[name])[used], whole(cells["globalTid"])[used]
        return {
            "process": process_of(owner),
            "thread": thread_of(owner),
            "name": text_numbers(ids, reading.strings, reading.names.number),
            "kind": np.full(len(used), range_kind, np.int8),
        }

    wanted, window = ("globalTid", name, "nestingLevel"), (first, last)
    return sum(
        reading.events(each, "ranges", wanted, convert, choose=choose, window=window)
        for each in tables
    )


def samples(reading: ExportReader) -> int:
    """Read what threads that call CUDA executed when they were sampled, between the first and the
    last of all that was read before: of each stack the innermost frame.

    Needs 16 bytes of memory for each sample of the file.
    """
    columns = reading.export.columns
    if not reading.calling or not {"id", "start", "globalTid"} <= columns("COMPOSITE_EVENTS"):
        return 0
    if not {"id", "symbol", "module", "stackDepth"} <= columns(_CHAINS):
        return 0
    first, last = reading.first_ns, reading.first_ns + reading.duration_ns
    calling = np.array(sorted(reading.calling), np.int64)
    ids, symbols, modules = _innermost(reading)
    used_texts = np.unique(np.concatenate((symbols, modules)))
    texts = dict(reading.texts_of(used_texts[used_texts >= 0]))
    texts[_IN_KERNEL] = _KERNEL_MODULE
    number = reading.names.number

    def choose(cells: Cells) -> BoolArray:
        at = whole(cells["start"])
        within: BoolArray = (at >= first) & (at < last)
        return within & np.isin(whole(cells["globalTid"]), calling)

    def convert(cells: Cells, used: IntArray) -> Converted:
        owner, wanted = whole(cells["globalTid"])[used], whole(cells["id"])[used]
        row = np.searchsorted(ids, wanted)
        found = (row < len(ids)) & (wanted != UNKNOWN)
        found[found] = ids[row[found]] == wanted[found]
        symbol, module = (np.full(len(used), UNKNOWN, np.int64) for _ in range(2))
        symbol[found], module[found] = symbols[row[found]], modules[row[found]]
        return {
            "process": process_of(owner),
            "thread": thread_of(owner),
            "function": text_numbers(symbol, texts, lambda text: number(_function(text))),
            "module": text_numbers(module, texts, lambda text: number(_base_name(text))),
        }

    wanted = ("id", "globalTid")
    return reading.events("COMPOSITE_EVENTS", "samples", wanted, convert, choose=choose)


def _innermost(reading: ExportReader) -> tuple[IntArray, IntArray, IntArray]:
    """Return the samples that have stacks, in order and each once, with the export's numbers of
    the function's and the module's name."""
    columns = ("id", "symbol", "module", "unresolved", "kernelMode")
    kept = [_compact(*[np.empty(0, np.int64)] * len(columns))]
    try:
        for batch in reading.export.batches(_CHAINS, columns, where="stackDepth = 0"):
            kept.append(_compact(*(whole(batch[name]) for name in columns)))
    except DamagedError as error:
        reading.warnings.add(f"{_CHAINS} could be read only in part: {error}")
    ids, symbol, module = (np.concatenate([each[place] for each in kept]) for place in range(3))
    ids, row = np.unique(ids, return_index=True)
    return ids, symbol[row], module[row]


_IN_KERNEL = -2
"""Stands for the module of a frame of the operating system's kernel."""


def _compact(
    ids: IntArray, symbol: IntArray, module: IntArray, unresolved: IntArray, kernel: IntArray
) -> tuple[IntArray, npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Return samples with the export's numbers of their texts, `UNKNOWN` where there is none."""
    module = np.where(kernel > 0, _IN_KERNEL, within(module, "int32"))
    symbol = np.where(unresolved > 0, UNKNOWN, within(symbol, "int32"))
    return ids, symbol.astype(np.int32), module.astype(np.int32)


def _function(symbol: str) -> str:
    """Return a function's name; empty for what is none."""
    return "" if symbol.startswith(_NO_SYMBOL) else symbol


def _base_name(path: str) -> str:
    """Return the name of a library or program, whose folders tell of its user's machine."""
    return re.split(r"[/\\]", path)[-1]


def counters(reading: ExportReader) -> int:
    """Read metrics that were sampled over time."""
    rows = reading.export.first_rows(
        "TARGET_INFO_GPU_METRICS", ("typeId", "metricId", "metricName"), 100_000
    )
    names = {
        (kind, metric): reading.names.number(name)
        for kind, metric, name in rows
        if isinstance(name, str)
    }

    def convert(cells: Cells, used: IntArray) -> Converted:
        kind, metric = whole(cells["typeId"])[used], whole(cells["metricId"])[used]
        found = mapped(lambda *key: names.get(key, 0), kind, metric)
        gpus = np.where(kind < 0, UNKNOWN, kind & _METRICS_GPU_BITS)
        return {
            "device": reading.devices.of_gpus(gpus),
            "name": found.astype(np.int32),
            "value": real(cells["value"])[used],
        }

    return reading.events("GPU_METRICS", "counters", ("typeId", "metricId", "value"), convert)


def _where(reading: ExportReader, cells: Cells, used: IntArray) -> Converted:
    """Return where on which device something ran, and what launched it."""
    ordinal, stream, launch, owner = (whole(cells[column])[used] for column in _WHERE)
    stream = np.where(stream == _NO_STREAM, UNKNOWN, stream)
    return {
        "device": reading.devices.of_events(ordinal, process_of(owner)),
        "stream": reading.processes.streams(stream, ordinal, owner),
        "correlation": reading.processes.unique(launch, owner),
    }
