"""Rows of a profile as events of a Chrome trace, in the words of Kineto.

Each function takes some rows of a table and yields a line of JSON an event. Whole texts are escaped
once each; times are written exactly, in microseconds with three decimals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from gpuadvisor.domain.profile import UNKNOWN, Direction, Memory, Range, Synchronization
from gpuadvisor.rules.facts.intervals import IntArray


@dataclass
class Places:
    """Which process of the trace shows what, and the texts of the profile as JSON."""

    texts: Sequence[str]
    device_offset: int = 0
    """Added to a device's number to get its process: no process of the host has it."""
    operator_of: Mapping[int, int] = field(default_factory=dict)
    """Correlation to the external id of the operator that launched it."""
    collectives: Mapping[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """Correlation and begin to what a communication kernel says."""
    _known: dict[int, str] = field(default_factory=dict)
    _raw: dict[int, str] = field(default_factory=dict)

    def text(self, number: int) -> str:
        """Return a text as JSON, with its quotes."""
        found = self._known.get(number)
        if found is None:
            found = self._known[number] = quoted(self._plain(number))
        return found

    def json(self, number: int) -> str:
        """Return a text that is JSON already, such as shapes, as it is; another one quoted."""
        found = self._raw.get(number)
        if found is None:
            found = self._raw[number] = _as_json(self._plain(number))
        return found

    def device(self, number: int) -> int:
        return number + self.device_offset

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


Rows: TypeAlias = Mapping[str, list[Any]]
"""Columns of some rows, as Python values."""

_DIRECTIONS = {
    Direction.HOST_TO_DEVICE: "HtoD",
    Direction.DEVICE_TO_HOST: "DtoH",
    Direction.DEVICE_TO_DEVICE: "DtoD",
    Direction.HOST_TO_HOST: "HtoH",
    Direction.PEER_TO_PEER: "PtoP",
}
_MEMORIES = {
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
}
_SYNCHRONIZATIONS = {
    Synchronization.EVENT: "Event Sync",
    Synchronization.STREAM_WAIT: "Stream Wait Event",
    Synchronization.STREAM: "Stream Sync",
    Synchronization.CONTEXT: "Context Sync",
}


def _event(
    category: str, name: str, place: tuple[int, int], begin: int, duration: int, args: str
) -> str:
    return (
        f'{{"ph":"X","cat":"{category}","name":{name},"pid":{place[0]},"tid":{place[1]},'
        f'"ts":{microseconds(begin)},"dur":{microseconds(duration)},"args":{{{args}}}}}'
    )


def _args(pairs: Mapping[str, int | str]) -> str:
    """Return what is known of them, inside of an object; texts are JSON already."""
    return ",".join(
        f'"{name}":{value}' for name, value in pairs.items() if value not in (UNKNOWN, '""')
    )


def kernels(rows: Rows, places: Places) -> Iterator[str]:
    """Yield kernels, with what those of a communication library say."""
    names = ("begin_ns", "duration_ns", "device", "stream", "correlation", "name", "registers",
             "shared_bytes", "graph_node")  # fmt: skip
    sizes = [zip(*(rows[f"{what}_{axis}"] for axis in "xyz"), strict=True)
             for what in ("grid", "block")]  # fmt: skip
    columns = zip(*(rows[name] for name in names), *sizes, strict=True)
    for (
        begin,
        duration,
        device,
        stream,
        correlation,
        name,
        registers,
        shared,
        node,
        grid,
        block,
    ) in columns:
        args = {
            **_on_device(places, device, stream, correlation, node),
            "registers per thread": registers,
            "shared memory": shared,
            "grid": "[{},{},{}]".format(*grid) if min(grid) >= 0 else UNKNOWN,
            "block": "[{},{},{}]".format(*block) if min(block) >= 0 else UNKNOWN,
            **places.collectives.get((correlation, begin), {}),
        }
        place = places.device(device), stream
        yield _event("kernel", places.text(name), place, begin, duration, _args(args))


def copies(rows: Rows, places: Places) -> Iterator[str]:
    """Yield copies and memsets under Kineto's names, which tell directions and memory kinds."""
    names = ("begin_ns", "duration_ns", "device", "stream", "correlation", "bytes", "direction",
             "source", "destination", "graph_node")  # fmt: skip
    for row in zip(*(rows[name] for name in names), strict=True):
        begin, duration, device, stream, correlation, size, direction, source, target, node = row
        category, name = copy_name(direction, source, target)
        args = {**_on_device(places, device, stream, correlation, node), "bytes": size}
        place = places.device(device), stream
        yield _event(category, quoted(name), place, begin, duration, _args(args))


def copy_name(direction: int, source: int, destination: int) -> tuple[str, str]:
    """Return category and name of a copy as Kineto writes them."""
    ends = [_MEMORIES.get(Memory(end), _NOT_KNOWN) if end in list(Memory) else _NOT_KNOWN
            for end in (source, destination)]  # fmt: skip
    if direction == Direction.MEMSET:
        return "gpu_memset", f"Memset ({ends[1]})"
    known = Direction(direction) if direction in list(Direction) else Direction.OTHER
    words = _DIRECTIONS.get(known, _NOT_KNOWN)
    return "gpu_memcpy", f"Memcpy {words} ({ends[0]} -> {ends[1]})"


def _on_device(
    places: Places, device: int, stream: int, correlation: int, node: int
) -> dict[str, int | str]:
    return {
        "External id": places.operator_of.get(correlation, UNKNOWN),
        "device": device,
        "stream": stream,
        "correlation": correlation,
        "graph node id": node,
    }


def calls(rows: Rows, places: Places) -> Iterator[str]:
    """Yield calls into CUDA."""
    names = ("begin_ns", "duration_ns", "process", "thread", "name", "correlation")
    for begin, duration, process, thread, name, correlation in zip(
        *(rows[name] for name in names), strict=True
    ):
        args = _args({"correlation": correlation})
        place = process, thread
        yield _event("cuda_runtime", places.text(name), place, begin, duration, args)


def operators(rows: Rows, places: Places) -> Iterator[str]:
    """Yield operators with their shapes, types and stacks."""
    names = ("begin_ns", "duration_ns", "process", "thread", "name", "external_id", "shapes",
             "types", "stack", "flops")  # fmt: skip
    for row in zip(*(rows[name] for name in names), strict=True):
        begin, duration, process, thread, name, external_id, shapes, types, stack, flops = row
        args = {
            "External id": external_id,
            "Input Dims": places.json(shapes),
            "Input type": places.json(types),
            "Call stack": places.text(stack),
            "flops": UNKNOWN if flops != flops or abs(flops) == float("inf") else f"{flops:.17g}",
        }
        place = process, thread
        yield _event("cpu_op", places.text(name), place, begin, duration, _args(args))


def ranges(rows: Rows, places: Places) -> Iterator[str]:
    """Yield ranges: of the program, steps, Python functions, overheads."""
    names = ("begin_ns", "duration_ns", "process", "thread", "name", "kind")
    for begin, duration, process, thread, name, kind in zip(
        *(rows[name] for name in names), strict=True
    ):
        category = _RANGES.get(kind, "user_annotation")
        shown = places.device(process) if kind == Range.DEVICE else process
        yield _event(category, places.text(name), (shown, thread), begin, duration, "")


def synchronizations(rows: Rows, places: Places) -> Iterator[str]:
    """Yield what waited for what."""
    names = ("begin_ns", "duration_ns", "device", "stream", "correlation", "kind")
    for begin, duration, device, stream, correlation, kind in zip(
        *(rows[name] for name in names), strict=True
    ):
        words = _SYNCHRONIZATIONS.get(kind, "Sync")
        args = {"cuda_sync_kind": quoted(words), "device": device, "stream": stream,
                "correlation": correlation}  # fmt: skip
        place = places.device(device), stream
        yield _event("cuda_sync", quoted(words), place, begin, duration, _args(args))


def memory(rows: Rows, places: Places) -> Iterator[str]:
    """Yield allocations and releases, and a counter that Perfetto draws as a curve."""
    names = ("time_ns", "device", "bytes", "allocated_bytes", "reserved_bytes", "address")
    for time, device, size, allocated, reserved, address in zip(
        *(rows[name] for name in names), strict=True
    ):
        on_host = device == UNKNOWN
        args = {"Device Type": 0 if on_host else 1, "Device Id": device, "Bytes": f"{size}",
                "Addr": address, "Total Allocated": allocated,
                "Total Reserved": reserved}  # fmt: skip
        process = 0 if on_host else places.device(device)
        yield (
            f'{{"ph":"i","s":"t","name":"[memory]","pid":{process},"tid":0,'
            f'"ts":{microseconds(time)},"args":{{{_args(args)}}}}}'
        )
        if not on_host and allocated >= 0:
            both = _args({"allocated": allocated, "reserved": reserved})
            yield (
                f'{{"ph":"C","cat":"gpuadvisor","name":"memory, bytes","pid":{process},'
                f'"ts":{microseconds(time)},"args":{{{both}}}}}'
            )


def counters(rows: Rows, places: Places) -> Iterator[str]:
    """Yield samples of counters."""
    names = ("time_ns", "device", "name", "value")
    for time, device, name, value in zip(*(rows[name] for name in names), strict=True):
        if value - value == 0:  # neither NaN nor infinite, which JSON cannot say
            yield (
                f'{{"ph":"C","name":{places.text(name)},"pid":{places.device(device)},'
                f'"ts":{microseconds(time)},"args":{{"value":{value:.17g}}}}}'
            )


WRITERS: Mapping[str, Callable[[Rows, Places], Iterator[str]]] = {
    "kernels": kernels,
    "copies": copies,
    "calls": calls,
    "synchronizations": synchronizations,
    "operators": operators,
    "ranges": ranges,
    "memory": memory,
    "counters": counters,
}
"""Table of a profile to what writes its rows."""


def arrows(
    number: IntArray, call: Mapping[str, IntArray], work: Mapping[str, IntArray], places: Places
) -> Iterator[str]:
    """Yield an arrow from each call to what it launched; all arrays are of one length."""
    columns = (number, call["begin_ns"], call["process"], call["thread"], work["begin_ns"],
               work["device"], work["stream"])  # fmt: skip
    start = '{"ph":"s","cat":"ac2g","name":"ac2g","id":%d,"pid":%d,"tid":%d,"ts":%s}'
    end = '{"ph":"f","bp":"e","cat":"ac2g","name":"ac2g","id":%d,"pid":%d,"tid":%d,"ts":%s}'
    for row in zip(*(np.asarray(column).tolist() for column in columns), strict=True):
        key, called, process, thread, begun, device, stream = row
        yield start % (key, process, thread, microseconds(called))
        yield end % (key, places.device(device), stream, microseconds(begun))
