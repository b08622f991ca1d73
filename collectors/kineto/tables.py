"""The tables of a trace: what ran on devices, and what the CPU did, one function a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

from gpuadvisor.collectors.kineto.batch import Column, EventRows, Output, column, whole_number
from gpuadvisor.collectors.kineto.events import (
    AnyEvent,
    Arguments,
    CallArgs,
    CopyArgs,
    InputArgs,
    KernelArgs,
    MemoryArgs,
    OperatorArgs,
    Sizes,
    SynchronizationArgs,
    triple,
)
from gpuadvisor.collectors.kineto.names import (
    call_of,
    collective_of,
    is_range,
    range_of,
    synchronization_of,
)
from gpuadvisor.domain.profile import NO_TEXT, UNKNOWN, Direction, Memory, Range

KERNEL, COPY, CALL = Arguments(KernelArgs), Arguments(CopyArgs), Arguments(CallArgs)
OPERATOR, INPUTS, MEMORY = Arguments(OperatorArgs), Arguments(InputArgs), Arguments(MemoryArgs)
SYNCHRONIZATION, COUNTER = Arguments(SynchronizationArgs), Arguments(dict[str, float])

_NAME, _SHAPES, _TYPES = attrgetter("name"), attrgetter("shapes"), attrgetter("types")
_SEQUENCE, _FORWARD_THREAD = attrgetter("sequence"), attrgetter("forward_thread")
_ADDRESS = attrgetter("address")
_ATTENTION = ("_attention", "::_flash_attn")
"""Parts of the names of operators of which the values of inputs are kept: whether it is causal."""
_NO_STREAM = 2**32 - 1
"""What CUPTI writes where a synchronisation is of no stream."""
_LARGEST_DEVICE = 2**15 - 1
_CPU = 0
"""The device type of the CPU (`c10/core/DeviceType.h`)."""


def kernels(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take kernels, and the collectives among them."""
    rows = output.fit(events, KERNEL)
    records = rows.records
    columns = {
        **_on_device(output, rows),
        "name": output.numbers(rows.names),
        **_sizes("grid", [record.grid for record in records]),
        **_sizes("block", [record.block for record in records]),
        "registers": column([record.registers for record in records], "int32"),
        "shared_bytes": column([record.shared_bytes for record in records], "int32"),
    }
    output.add("kernels", columns, ("registers", "shared_bytes", "grid_x"))
    _collectives(output, rows)


def copies(
    output: Output,
    events: Sequence[AnyEvent],
    kind_of: Callable[[str], tuple[Direction, Memory, Memory]],
) -> None:
    """Take copies, or memsets, which are copies from nowhere; `kind_of` reads their names."""
    rows = output.fit(events, COPY)
    kinds = [kind_of(name) for name in rows.names]
    columns = {
        **_on_device(output, rows),
        "bytes": column([record.bytes for record in rows.records]),
        "direction": column([kind[0] for kind in kinds], "int8"),
        "source": column([kind[1] for kind in kinds], "int8"),
        "destination": column([kind[2] for kind in kinds], "int8"),
    }
    output.add("copies", columns, ("bytes",))


def synchronizations(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take what CUPTI says of waiting."""
    rows = output.fit(events, SYNCHRONIZATION)
    pairs = zip(rows.names, rows.records, strict=True)
    streams = column([record.stream for record in rows.records])
    columns = {
        **rows.timed(),
        "device": column([record.device for record in rows.records], "int16"),
        "stream": np.where(streams == _NO_STREAM, UNKNOWN, streams),
        "correlation": column([record.correlation for record in rows.records]),
        "kind": column([synchronization_of(record.kind or name) for name, record in pairs], "int8"),
    }
    output.add("synchronizations", columns)


def counters(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take samples of counters: a row for each value."""
    rows = output.fit(events, COUNTER)
    values = [
        (time, _device(event), _counter_name(event.name, key), value)
        for time, event, record in zip(rows.begin.tolist(), rows.events, rows.records, strict=True)
        for key, value in record.items()
    ]
    columns = {
        "time_ns": column([value[0] for value in values]),
        "device": column([value[1] for value in values], "int16"),
        "name": output.numbers([value[2] for value in values]),
        "value": column([value[3] for value in values], "float64"),
    }
    output.add("counters", columns)


def calls(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take calls into the runtime and the driver."""
    rows = output.fit(events, CALL)
    told = [call_of(name) for name in rows.names]
    columns = {
        **rows.on_host(),
        "correlation": column([record.correlation for record in rows.records]),
        "name": output.numbers([name for name, _ in told]),
        "kind": column([kind for _, kind in told], "int8"),
    }
    output.add("calls", columns)


def operators(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take operators of the framework, and the ranges that older versions wrote among them."""
    used = set(map(_NAME, events))
    if names := set(filter(is_range, used)):
        ranges(output, [event for event in events if event.name in names])
        events = [event for event in events if event.name not in names]
    rows = output.fit(events, OPERATOR)
    texts, records = output.texts, rows.records
    columns = {
        **rows.on_host(),
        "name": output.numbers(rows.names),
        "external_id": column([record.external_id for record in records]),
        "shapes": column(texts.numbers_of_json(map(_SHAPES, records)), "int32"),
        "types": column(texts.numbers_of_json(map(_TYPES, records)), "int32"),
        "inputs": _inputs(output, rows, used),
        "stack": column(texts.numbers_of_stacks([record.stack for record in records]), "int32"),
        "flops": column([record.flops for record in records], "float64"),
        "sequence": _wrapped(records, _SEQUENCE),
        "forward_thread": _wrapped(records, _FORWARD_THREAD),
    }
    output.add("operators", columns, ("external_id", "shapes", "types", "stack", "flops"))


def _inputs(output: Output, rows: EventRows, used: set[str]) -> Column:
    """Return the texts of the values of inputs, of attention among the names that are used: of all
    operators they would be many."""
    found = np.full(len(rows), NO_TEXT, np.int32)
    names = {name for name in used if any(part in name for part in _ATTENTION)}
    places = [at for at, each in enumerate(rows.events) if each.name in names] if names else []
    for place in places:
        _, records = INPUTS.of([rows.events[place]])
        found[place] = output.texts.numbers_of_json(record.inputs for record in records)[0]
    return found


def ranges(output: Output, events: Sequence[AnyEvent], kind: Range | None = None) -> None:
    """Take ranges of one kind; None for those of the CPU's threads, whose names tell it."""
    rows = output.fit(events)
    kinds = [range_of(name) for name in rows.names] if kind is None else [kind] * len(rows)
    columns = {**rows.on_host(), "name": output.numbers(rows.names), "kind": column(kinds, "int8")}
    output.add("ranges", columns)


def memory(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take allocations and releases."""
    rows = output.fit(events, MEMORY)
    records = rows.records
    devices = [UNKNOWN if record.device_type == _CPU else record.device for record in records]
    columns = {
        "time_ns": rows.begin,
        "device": column(devices, "int16"),
        "bytes": column([record.bytes for record in records]),
        "allocated_bytes": column([record.allocated_bytes for record in records]),
        "reserved_bytes": column([record.reserved_bytes for record in records]),
        "address": _wrapped(records, _ADDRESS),
    }
    output.add("memory", columns, ("allocated_bytes", "reserved_bytes", "address"))


def _on_device(output: Output, rows: EventRows) -> dict[str, Column]:
    """Return times and places, and note which operator launched what."""
    correlation = column([record.correlation for record in rows.records])
    graph_node = column([record.graph_node for record in rows.records])
    _links(output, rows, correlation)
    return {
        **rows.timed(),
        "device": column([record.device for record in rows.records], "int16"),
        "stream": column([record.stream for record in rows.records]),
        "correlation": correlation,
        "graph_node": np.where(graph_node == 0, UNKNOWN, graph_node),
    }


def _links(output: Output, rows: EventRows, correlation: Column) -> None:
    """Take the external ids; older versions wrote the correlation in their place."""
    external = column([record.external_id for record in rows.records])
    older = column([record.old_external_id for record in rows.records])
    external = np.where(external == UNKNOWN, older, external)
    linked = (external > 0) & (correlation != UNKNOWN) & (external != correlation)
    columns = {"external_id": external[linked], "correlation": correlation[linked]}
    output.add("links", columns)


def _sizes(name: str, triples: list[Sizes]) -> dict[str, Column]:
    if str in set(map(type, triples)):
        triples = list(map(triple, triples))
    sizes = np.fromiter(chain.from_iterable(triples), np.int32, 3 * len(triples)).reshape(-1, 3)
    return {f"{name}_{axis}": sizes[:, place].copy() for place, axis in enumerate("xyz")}


def _collectives(output: Output, rows: EventRows) -> None:
    """Take what kernels of NCCL and RCCL say, or at least what their names do."""
    told = [
        record.collective or collective_of(name)
        for name, record in zip(rows.names, rows.records, strict=True)
    ]
    chosen = [place for place, name in enumerate(told) if name]
    records = [rows.records[place] for place in chosen]
    columns = {
        "correlation": column([record.correlation for record in records]),
        "begin_ns": rows.begin[chosen],
        "name": output.numbers([name for name in told if name]),
        "type": output.numbers([record.type for record in records]),
        "group": output.numbers([record.group for record in records]),
        "group_size": column([record.group_size for record in records], "int32"),
        "sequence": column([record.sequence for record in records]),
        "in_elements": column([record.in_elements for record in records]),
        "out_elements": column([record.out_elements for record in records]),
    }
    output.add("collectives", columns, ("in_elements", "type"))


def _device(event: AnyEvent) -> int:
    """Return the number in `GPU 0 Counters`."""
    number = whole_number(event.pid)
    return number if 0 <= number <= _LARGEST_DEVICE else UNKNOWN


def _counter_name(name: str, key: str) -> str:
    """Return a metric's name; Kineto gives its hardware counters an empty key."""
    return f"{name} {key}" if name and key not in ("", "value") else name or key


def _wrapped(records: Sequence[Any], value: Callable[[Any], int]) -> Column:
    """Return numbers of records, such as addresses, by their 64 bits, so that the highest become
    negative: 2^64 - 1, which some versions write where there is none, becomes UNKNOWN."""
    try:
        return np.fromiter(map(value, records), np.int64, len(records))
    except OverflowError:
        return column([(value(record) + 2**63) % 2**64 - 2**63 for record in records])
