"""Rows of a profile as events of a Chrome trace, in the words of Kineto.

Each function takes some rows of a table and yields a line of JSON an event. Whole texts are escaped
once each; times are written exactly, in microseconds with three decimals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from math import isfinite
from typing import Any, TypeAlias

from gpuadvisor.domain.profile import UNKNOWN, Direction, Memory, Range, Synchronization

Rows: TypeAlias = Mapping[str, list[Any]]
"""Columns of some rows, as Python values."""


@dataclass
class Places:
    """Which process of the trace shows what, and the texts of the profile as JSON."""

    texts: Sequence[str]
    device_offset: int = 0
    """Added to a device's number to get its process: no process of the host has it."""
    operator_of: Mapping[int, int] = field(default_factory=dict)
    """Correlation to the external id of the operator that launched it."""
    collectives: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Correlation and begin to what a communication kernel says, as the members of an object."""

    def __post_init__(self) -> None:
        self.text = cache(lambda number: quoted(self._plain(number)))
        """Return a text as JSON, with its quotes."""
        self.json = cache(lambda number: _as_json(self._plain(number)))
        """Return a text that is JSON already, such as shapes, as it is; another one quoted."""

    def device(self, number: int) -> int:
        return number + self.device_offset

    def on_device(self, rows: Rows) -> Iterator[tuple[int, int]]:
        """Yield process and thread of what ran in a stream."""
        return zip(map(self.device, rows["device"]), rows["stream"], strict=True)

    def _plain(self, number: int) -> str:
        return self.texts[number] if 0 <= number < len(self.texts) else ""


def quoted(text: str) -> str:
    """Return a text as JSON in ASCII; what is no UTF-8 becomes `?`, as no reader takes it."""
    return json.dumps(text.encode("utf-8", "replace").decode())


def microseconds(nanoseconds: int) -> str:
    """Return `12.345`, exactly; a trace's times are not negative."""
    nanoseconds = max(nanoseconds, 0)
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"


def _as_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), allow_nan=False)
    except (ValueError, RecursionError):
        return quoted(text)


_DIRECTIONS: Mapping[int, str] = {
    Direction.HOST_TO_DEVICE: "HtoD",
    Direction.DEVICE_TO_HOST: "DtoH",
    Direction.DEVICE_TO_DEVICE: "DtoD",
    Direction.HOST_TO_HOST: "HtoH",
    Direction.PEER_TO_PEER: "PtoP",
}
_MEMORIES: Mapping[int, str] = {
    Memory.PAGEABLE: "Pageable",
    Memory.PINNED: "Pinned",
    Memory.DEVICE: "Device",
    Memory.ARRAY: "Array",
    Memory.MANAGED: "Managed",
}
_NOT_KNOWN = "Unknown"
_RANGES = {
    Range.DEVICE: "gpu_user_annotation",
    Range.PYTHON: "python_function",
    Range.OVERHEAD: "overhead",
    Range.SYSTEM: "system_call",
}
_SYNCHRONIZATIONS = {
    Synchronization.EVENT: "Event Sync",
    Synchronization.STREAM_WAIT: "Stream Wait Event",
    Synchronization.STREAM: "Stream Sync",
    Synchronization.CONTEXT: "Context Sync",
}


def event(
    category: str, name: str, place: tuple[int, int], begin_ns: int, duration_ns: int, args: str
) -> str:
    """Return a complete event; its name is JSON, and its arguments are the members of an object."""
    return (
        f'{{"ph":"X","cat":"{category}","name":{name},"pid":{place[0]},"tid":{place[1]},'
        f'"ts":{microseconds(begin_ns)},"dur":{microseconds(duration_ns)},"args":{{{args}}}}}'
    )


def members(columns: Mapping[str, Iterable[int | str]]) -> Iterator[str]:
    """Yield what is known of each row, as the members of an object; texts are JSON already."""
    names = [f'"{name}":' for name in columns]
    for row in zip(*columns.values(), strict=True):
        yield ",".join(
            f"{name}{value}"
            for name, value in zip(names, row, strict=True)
            if value not in (UNKNOWN, '""')
        )


def _events(
    rows: Rows,
    categories: Iterable[str],
    names: Iterable[str],
    places: Iterable[tuple[int, int]],
    args: Iterable[str],
) -> Iterator[str]:
    """Return a complete event for each row."""
    return map(event, categories, names, places, rows["begin_ns"], rows["duration_ns"], args)


def _on_host(rows: Rows) -> Iterator[tuple[int, int]]:
    return zip(rows["process"], rows["thread"], strict=True)


def _of_device(rows: Rows, places: Places) -> dict[str, Iterable[int | str]]:
    """Return the arguments of all that ran on a device."""
    return {
        "External id": (places.operator_of.get(each, UNKNOWN) for each in rows["correlation"]),
        "device": rows["device"],
        "stream": rows["stream"],
        "correlation": rows["correlation"],
        "graph node id": rows["graph_node"],
    }


def kernels(rows: Rows, places: Places) -> Iterator[str]:
    """Yield kernels, with what those of a communication library say."""
    args = members(
        {
            **_of_device(rows, places),
            "registers per thread": rows["registers"],
            "shared memory": rows["shared_bytes"],
            "grid": _sizes(rows, "grid"),
            "block": _sizes(rows, "block"),
        }
    )
    if places.collectives:
        keys = zip(rows["correlation"], rows["begin_ns"], strict=True)
        said = (places.collectives.get(key, "") for key in keys)
        args = (",".join(filter(None, both)) for both in zip(args, said, strict=True))
    names = map(places.text, rows["name"])
    return _events(rows, repeat("kernel"), names, places.on_device(rows), args)


def _sizes(rows: Rows, what: str) -> Iterator[int | str]:
    for size in zip(*(rows[f"{what}_{axis}"] for axis in "xyz"), strict=True):
        yield "[{},{},{}]".format(*size) if min(size) >= 0 else UNKNOWN


def copies(rows: Rows, places: Places) -> Iterator[str]:
    """Yield copies and memsets under Kineto's names, which tell directions and memory kinds."""
    named = map(copy_name, rows["direction"], rows["source"], rows["destination"])
    categories, names = zip(*named, strict=True)
    args = members({**_of_device(rows, places), "bytes": rows["bytes"]})
    return _events(rows, categories, map(quoted, names), places.on_device(rows), args)


@cache
def copy_name(direction: int, source: int, destination: int) -> tuple[str, str]:
    """Return category and name of a copy as Kineto writes them."""
    ends = [_MEMORIES.get(end, _NOT_KNOWN) for end in (source, destination)]
    if direction == Direction.MEMSET:
        return "gpu_memset", f"Memset ({ends[1]})"
    words = _DIRECTIONS.get(direction, _NOT_KNOWN)
    return "gpu_memcpy", f"Memcpy {words} ({ends[0]} -> {ends[1]})"


def calls(rows: Rows, places: Places) -> Iterator[str]:
    """Yield calls into CUDA."""
    names, args = map(places.text, rows["name"]), members({"correlation": rows["correlation"]})
    return _events(rows, repeat("cuda_runtime"), names, _on_host(rows), args)


def operators(rows: Rows, places: Places) -> Iterator[str]:
    """Yield operators with their shapes, types and stacks."""
    args = members(
        {
            "External id": rows["external_id"],
            "Input Dims": map(places.json, rows["shapes"]),
            "Input type": map(places.json, rows["types"]),
            "Concrete Inputs": map(places.json, rows["inputs"]),
            "Call stack": map(places.text, rows["stack"]),
            "flops": (f"{each:.17g}" if isfinite(each) else UNKNOWN for each in rows["flops"]),
            "Sequence number": rows["sequence"],
            "Fwd thread id": rows["forward_thread"],
        }
    )
    names = map(places.text, rows["name"])
    return _events(rows, repeat("cpu_op"), names, _on_host(rows), args)


def ranges(rows: Rows, places: Places) -> Iterator[str]:
    """Yield ranges: of the program, steps, Python functions, overheads."""
    categories = (_RANGES.get(kind, "user_annotation") for kind in rows["kind"])
    where = (
        (places.device(process) if kind == Range.DEVICE else process, thread)
        for process, thread, kind in zip(rows["process"], rows["thread"], rows["kind"], strict=True)
    )
    return _events(rows, categories, map(places.text, rows["name"]), where, repeat(""))


def synchronizations(rows: Rows, places: Places) -> Iterator[str]:
    """Yield what waited for what."""
    words = [quoted(_SYNCHRONIZATIONS.get(kind, "Sync")) for kind in rows["kind"]]
    args = members(
        {
            "cuda_sync_kind": words,
            **{name: rows[name] for name in ("device", "stream", "correlation")},
        }
    )
    return _events(rows, repeat("cuda_sync"), words, places.on_device(rows), args)


def memory(rows: Rows, places: Places) -> Iterator[str]:
    """Yield allocations and releases, and a counter that Perfetto draws as a curve."""
    devices, allocated, reserved = (
        rows[name] for name in ("device", "allocated_bytes", "reserved_bytes")
    )
    args = members(
        {
            "Device Type": (0 if device == UNKNOWN else 1 for device in devices),
            "Device Id": devices,
            "Bytes": map(str, rows["bytes"]),
            "Addr": rows["address"],
            "Total Allocated": allocated,
            "Total Reserved": reserved,
        }
    )
    curves = members({"allocated": allocated, "reserved": reserved})
    for time, device, size, values, curve in zip(
        rows["time_ns"], devices, allocated, args, curves, strict=True
    ):
        process = 0 if device == UNKNOWN else places.device(device)
        yield (
            f'{{"ph":"i","s":"t","name":"[memory]","pid":{process},"tid":0,'
            f'"ts":{microseconds(time)},"args":{{{values}}}}}'
        )
        if device != UNKNOWN and size >= 0:
            yield (
                f'{{"ph":"C","cat":"gpuadvisor","name":"memory, bytes","pid":{process},'
                f'"ts":{microseconds(time)},"args":{{{curve}}}}}'
            )


def counters(rows: Rows, places: Places) -> Iterator[str]:
    """Yield samples of counters."""
    names = ("time_ns", "device", "name", "value")
    for time, device, name, value in zip(*(rows[name] for name in names), strict=True):
        if isfinite(value):  # JSON has no other numbers
            yield (
                f'{{"ph":"C","name":{places.text(name)},"pid":{places.device(device)},'
                f'"ts":{microseconds(time)},"args":{{"value":{value:.17g}}}}}'
            )


WRITERS: Mapping[str, Callable[[Rows, Places], Iterator[str]]] = {
    write.__name__: write
    for write in (kernels, copies, calls, synchronizations, operators, ranges, memory, counters)
}
"""Table of a profile to what writes its rows."""
