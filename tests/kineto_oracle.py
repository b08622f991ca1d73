"""What a trace says, read in the simplest way: all of it with `json`, an event at a time."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from gpuadvisor.domain.profile import Profile

Rows = dict[str, list[tuple[Any, ...]]]

_KINDS = {
    "Kernel": "kernel", "Memcpy": "gpu_memcpy", "Memset": "gpu_memset", "Runtime": "cuda_runtime",
    "Operator": "cpu_op", "cuda_driver": "cuda_runtime",
}  # fmt: skip
_RANGES = {"user_annotation": 0, "gpu_user_annotation": 2, "python_function": 3, "overhead": 5}
_DIRECTIONS = {"HtoD": 1, "DtoH": 2, "DtoD": 3, "HtoH": 4, "PtoP": 5}
_MEMORIES = {"Pageable": 1, "Pinned": 2, "Device": 3, "Array": 4, "Managed": 5}


def rows_of(trace: str) -> Rows:
    """Return the rows of each table, sorted, texts as texts, times since the earliest row."""
    document = json.loads(trace, parse_float=Decimal)
    events = document["traceEvents"] if isinstance(document, dict) else document
    rows: Rows = defaultdict(list)
    for event in events:
        for table, row in _rows(event):
            rows[table].append(row)
    timed = [row[0] for table, found in rows.items() if table != "links" for row in found]
    first = min(timed, default=0)
    return {
        table: sorted(row if table == "links" else (row[0] - first, *row[1:]) for row in found)
        for table, found in rows.items()
    }


def _rows(event: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    category, name, args = event.get("cat", ""), event.get("name", ""), event.get("args", {})
    category = _KINDS.get(category, category)
    begin, duration = _ns(event.get("ts", 0)), _ns(event.get("dur", 0))
    get: Callable[..., Any] = lambda key, default=-1: args.get(key, default)  # noqa: E731
    host = (begin, duration, _number(event.get("pid", -1)), _number(event.get("tid", -1)))
    device = (begin, duration, get("device"), get("stream"), get("correlation"))
    if event["ph"] != "X":
        if name == "[memory]":
            place = -1 if get("Device Type") == 0 else get("Device Id")
            yield "memory", (begin, place, get("Bytes"), get("Total Allocated"), get("Addr"))
    elif category == "kernel":
        grid, block = get("grid", [-1] * 3), get("block", [-1] * 3)
        sizes = (get("registers per thread"), get("shared memory"))
        yield "kernels", (*device, name, *grid, *block, *sizes)
        if name.startswith(("ncclKernel_", "ncclDevKernel_")):
            yield "collectives", (begin, get("correlation"))
    elif category in ("gpu_memcpy", "gpu_memset"):
        words = re.findall(r"\w+", name)
        if category == "gpu_memset":
            kinds: tuple[int, ...] = (6, 0, _MEMORIES.get(words[1], 0))
        else:
            ends = (_MEMORIES.get(word, 0) for word in words[2:4])
            kinds = (_DIRECTIONS[words[1]], *ends)
        yield "copies", (*device, *kinds, get("bytes"))
    elif category == "cuda_runtime":
        yield "calls", (*host, get("correlation"), name)
    elif category == "cpu_op" and not name.startswith(("Profiler", "enumerate", "Optimizer.")):
        shapes, types = (
            json.dumps(args[key], ensure_ascii=False) if key in args else "" for key in _SHAPES
        )
        stack = get("Call stack", "").replace(";", "\n")
        inputs = (
            args.get("Concrete Inputs", "") if re.search("_attention|_flash_attn", name) else ""
        )
        inputs = inputs and json.dumps(inputs, ensure_ascii=False)
        autograd = (get("Sequence number"), get("Fwd thread id"))
        yield (
            "operators",
            (*host, name, get("External id"), shapes, types, inputs, stack, *autograd),
        )
    elif category in (*_RANGES, "cpu_op"):
        kind = _RANGES.get(category, 0)
        if kind == 0 and name.startswith("ProfilerStep"):
            kind = 1
        if kind == 0 and name.startswith("enumerate(DataLoader)"):
            kind = 4
        yield "ranges", (*host, name, kind)
    if category in ("kernel", "gpu_memcpy", "gpu_memset") and event["ph"] == "X":
        external = get("External id", get("external id"))
        if external > 0 and external != get("correlation") != -1:
            yield "links", (external, get("correlation"))


_SHAPES = ("Input Dims", "Input type")


def _ns(time_us: Any) -> int:
    return round(Decimal(time_us) * 1000)


def _number(value: Any) -> int:
    if isinstance(value, int):
        return value
    last = value.rpartition(" ")[2]
    return int(last) if last.isdigit() else -1


_COLUMNS = {
    "kernels": (
        "begin_ns", "duration_ns", "device", "stream", "correlation", "name", "grid_x", "grid_y",
        "grid_z", "block_x", "block_y", "block_z", "registers", "shared_bytes",
    ),
    "copies": (
        "begin_ns", "duration_ns", "device", "stream", "correlation", "direction", "source",
        "destination", "bytes",
    ),
    "calls": ("begin_ns", "duration_ns", "process", "thread", "correlation", "name"),
    "operators": (
        "begin_ns", "duration_ns", "process", "thread", "name", "external_id", "shapes", "types",
        "inputs", "stack", "sequence", "forward_thread",
    ),
    "ranges": ("begin_ns", "duration_ns", "process", "thread", "name", "kind"),
    "memory": ("time_ns", "device", "bytes", "allocated_bytes", "address"),
    "collectives": ("begin_ns", "correlation"),
    "links": ("external_id", "correlation"),
}  # fmt: skip
_TEXTS = ("name", "shapes", "types", "inputs", "stack")


def rows_read(profile: Profile) -> Rows:
    """Return the same of a profile that was read."""
    texts = profile.header.texts
    rows = {}
    for table, names in _COLUMNS.items():
        columns = profile.columns(table, names)
        values = [
            [texts[number] for number in columns[name].tolist()]
            if name in _TEXTS
            else columns[name].tolist()
            for name in names
        ]
        rows[table] = sorted(zip(*values, strict=True))
    return {table: found for table, found in rows.items() if found}
