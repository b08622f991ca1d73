"""The readers that `fuzz_readers.py` tests, the small files it begins with, and how it makes more.

Mutated bytes are the file itself. Only databases, of which hardly any mutation is one, come in two
ways: bytes that begin as a database does are one, of all others the cells of one are made.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from gpuadvisor.collectors.kineto import reader as kineto
from gpuadvisor.collectors.nsight import compute_csv, compute_report, systems
from gpuadvisor.collectors.nsight.sqlite_export import MAGIC
from gpuadvisor.domain.profile import Header, Sink
from tests import nsys_files

PROFILES = Path(__file__).parents[1] / "data" / "profiles"
MOST_METRICS = 12
"""Of a kernel in a seed; real ones have up to 2,200, which are slow to mutate."""
LONGEST_ARGUMENT = 200
"""Characters of an event's argument in a seed."""
DETAILS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream",'
    '"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type"\n'
    '"0","5","a.out","127.0.0.1","gemm","2024-Jan-01","1","7","GPU Speed Of Light Throughput",'
    '"Duration","usecond","1,234.5","",""\n'
    '"0","5","a.out","127.0.0.1","gemm","2024-Jan-01","1","7","Launch Statistics",'
    '"Registers Per Thread","register/thread","40","",""\n'
)
MORE_TABLES = {
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{**nsys_files.KERNEL, "graphId": 3}],
    "GPU_METRICS": [{"timestamp": 1, "typeId": 1, "metricId": 1, "value": 1}],
    "TARGET_INFO_GPU_METRICS": [{"typeId": 1, "metricId": 1, "metricName": "SMs Active"}],
    "TARGET_INFO_CUDA_DEVICE": [{"pid": nsys_files.PID, "cudaId": 0, "gpuId": 0}],
    "DIAGNOSTIC_EVENT": [{"severity": 3, "text": "Not all events were collected."}],
    "ENUM_CUDA_MEMCPY_OPER": [{"id": 1, "name": "CUDA_MEMCPY_KIND_HTOD"}],
}
CELLS = (0, 1, -1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, -(2**63), 1e308, float("inf"), 1.5, None)
"""At which something may change."""
WILD, MISSING = 1, 2
"""What may become of a table."""


def plain(data: bytes, path: Path, _: Callable[[bytes], Any]) -> None:
    """Write the bytes as they are."""
    path.write_bytes(data)


@dataclass(frozen=True)
class Target:
    """A reader under test."""

    read: Callable[[Path, Sink], Header]
    seeds: Callable[[Path], Iterator[bytes]]
    """Given an empty folder to work in."""
    words: tuple[str, ...] = ()
    """Which mutations put in."""
    write: Callable[[bytes, Path, Callable[[bytes], Any]], None] = plain
    """Writes the file that bytes stand for, with a maker of Atheris' `FuzzedDataProvider`."""
    most_bytes: int = 1 << 16
    """Of an input."""


class Pieces:
    """A file's content cut at every so many bytes."""

    damage = ""

    def __init__(self, content: bytes, size: int) -> None:
        self._content, self._size = content, size

    def __iter__(self) -> Iterator[bytes]:
        for begin in range(0, len(self._content), self._size):
            yield self._content[begin : begin + self._size]


def database(data: bytes, path: Path, provider: Callable[[bytes], Any]) -> None:
    """Write a database, which is the bytes or has cells made of them."""
    if data.startswith(MAGIC[:6]):
        path.write_bytes(data)
        return
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE other (cell)")  # as empty ones cannot be serialized
        for table, rows in _wild(provider(data)):
            names = ", ".join(f'"{name}"' for name in rows[0])
            connection.execute(f"CREATE TABLE {table} ({names})")
            places = ", ".join("?" * len(rows[0]))
            cells = [list(row.values()) for row in rows]
            connection.executemany(f"INSERT INTO {table} VALUES ({places})", cells)
        path.write_bytes(connection.serialize())


def _wild(chosen: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield tables with some cells, columns and rows changed as the bytes tell."""
    for table, (row, *rest) in {**nsys_files.tables(), **MORE_TABLES}.items():
        fate = chosen.ConsumeIntInRange(0, 3)
        if fate == MISSING:
            continue
        columns = [name for name in row if fate != WILD or chosen.ConsumeIntInRange(0, 15)]
        more = chosen.ConsumeIntInRange(0, 3) if fate == WILD else 0
        rows = [row, *rest, *[row] * more]
        found = [
            {name: _cell(chosen, each[name]) if fate == WILD else each[name] for name in columns}
            for each in rows
        ]
        if columns:
            yield table, found


def _cell(chosen: Any, usual: Any) -> Any:
    kind = chosen.ConsumeIntInRange(0, 7)
    if kind == 1:
        return chosen.PickValueInList(list(CELLS))
    if kind == 2:
        return chosen.ConsumeInt(8)
    if kind == 3:
        return chosen.ConsumeFloat()
    if kind == 4:
        return chosen.ConsumeUnicodeNoSurrogates(12)
    if kind == 5:
        return chosen.ConsumeBytes(12)
    return chosen.ConsumeIntInRange(0, 5000) if kind == 6 else usual


def read_in_pieces(path: Path, sink: Sink) -> Header:
    """Read a trace cut anywhere, in as many parts as its first bytes tell."""
    content = path.read_bytes()
    size = 1 + sum(content[:64]) % 300
    return kineto.read_blocks(Pieces(content, size), path, sink, enough_bytes=size)


def read_printed(path: Path, sink: Sink) -> Header:
    """Read a file as what the process printed that reads reports."""
    python = path.with_name("python")
    if not python.exists():
        python.write_text('#!/bin/sh\nexec cat "$5"\n')
        python.chmod(0o755)
    return compute_report.read(path, sink, str(python))


def traces(_: Path) -> Iterator[bytes]:
    """Yield real traces with an event of each category and kind, in all three forms."""
    small = listed = b""
    for path in sorted(PROFILES.rglob("*.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        different = {(e.get("cat"), e.get("ph")): e for e in reversed(document["traceEvents"])}
        events = [_shortened(event) for event in different.values()]
        devices = document.get("deviceProperties", [])[:1]
        small = json.dumps(
            {**document, "deviceProperties": devices, "traceEvents": events}
        ).encode()
        listed = json.dumps(events).encode()
        yield small
    yield listed
    yield gzip.compress(small)
    yield zstandard.compress(small)


def _shortened(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args", {}).items()
    kept = {name: value for name, value in arguments if len(str(value)) < LONGEST_ARGUMENT}
    return {**event, "args": kept}


def exports(folder: Path) -> Iterator[bytes]:
    """Yield two databases, and bytes from which others are made."""
    contents = {**nsys_files.tables(), **MORE_TABLES}
    many = [{**nsys_files.RANGE, "start": n, "end": n + 1} for n in range(100)]
    for changed in ({}, {"NVTX_EVENTS": many}):
        path = folder / "seed.sqlite"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA page_size = 512")
            connection.execute("VACUUM")
        yield nsys_files.write(path, {**contents, **changed}).read_bytes()
    for length in (64, 512, 2048):
        yield bytes(7 * place % 251 for place in range(length))


def tables(_: Path) -> Iterator[bytes]:
    """Yield what ncu printed, with few of its metrics."""
    yield DETAILS.encode()
    yield DETAILS.encode("utf-16")
    for path in sorted(PROFILES.glob("*.raw.csv.gz")):
        text = gzip.decompress(path.read_bytes()).decode()
        rows = list(islice(csv.reader(io.StringIO(text)), 4))
        device = [place for place, name in enumerate(rows[0]) if name.startswith("device__")]
        launch = [place for place, name in enumerate(rows[0]) if name.startswith("launch__")]
        kept = {*range(11), *device[:MOST_METRICS], *launch[:MOST_METRICS]}
        printed = io.StringIO()
        few = ([row[place] for place in sorted(kept)] for row in rows)
        csv.writer(printed, quoting=csv.QUOTE_ALL).writerows(few)
        yield b"==PROF== Connected to process 1\n" + printed.getvalue().encode()


def printed_lines(_: Path) -> Iterator[bytes]:
    """Yield what the process prints that reads reports."""
    metrics = {
        "gpu__time_duration.sum": [5000.0, "ns"],
        "launch__registers_per_thread": [40, "register/thread"],
        "launch__grid_dim_x": [8, ""],
        "device__attribute_display_name": ["NVIDIA A10G", ""],
        "device__attribute_max_mem_frequency_khz": [6251000, ""],
        "dram__bytes.sum": [12.5, "Mbyte"],
    }
    line = json.dumps({"name": "gemm", "metrics": metrics}).encode() + b"\n"
    yield line
    yield line * 3


def reports(_: Path) -> Iterator[bytes]:
    """Yield a real report."""
    for path in sorted(PROFILES.glob("*.ncu-rep.gz")):
        yield gzip.decompress(path.read_bytes())


_JSON = ('"traceEvents"', '"args"', '"ts"', '"dur"', "},{", "NaN", "Infinity", "1e999", "\\ud800",
         '"cpu_op"', '"kernel"', '"ph": "C"', "9223372036854775808", "null")  # fmt: skip
_CSV = ('","', '""', "Kernel Name", "Metric Name", "Invocations", "no data", "1.234,5", "1e308",
        "Gbyte", "usecond", "device__attribute_", "==PROF==", "ERR_NVGPUCTRPERM")  # fmt: skip
_PRINTED = ('{"name": ', '"metrics": {', "[1, ", "null", "1e999", "NaN", "-1", "true")

TARGETS = {
    "kineto": Target(kineto.read, traces, _JSON),
    "kineto_in_pieces": Target(read_in_pieces, traces, _JSON),
    "systems": Target(systems.read, exports, write=database),
    "compute_csv": Target(compute_csv.read, tables, _CSV),
    "compute_report": Target(read_printed, printed_lines, _PRINTED),
    "compute_report_file": Target(compute_report.read, reports, most_bytes=1 << 21),
}
