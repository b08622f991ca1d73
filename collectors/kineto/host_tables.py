"""What the host did: calls, operators, ranges, and the framework's memory."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from gpuadvisor.collectors.kineto.batch import Column, Output, column
from gpuadvisor.collectors.kineto.events import (
    AnyEvent,
    Arguments,
    CallArgs,
    MemoryArgs,
    OperatorArgs,
)
from gpuadvisor.collectors.kineto.names import call_of, is_range, range_of
from gpuadvisor.domain.profile import UNKNOWN, Range

_NAME, _SHAPES, _TYPES = attrgetter("name"), attrgetter("shapes"), attrgetter("types")
CALL, OPERATOR, MEMORY = Arguments(CallArgs), Arguments(OperatorArgs), Arguments(MemoryArgs)

_HOST = 0
"""The device type of the CPU (`c10/core/DeviceType.h`)."""


def calls(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take calls into the runtime and the driver."""
    rows = output.fit(events, CALL)
    if rows is None:
        return
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
    ranges = set(filter(is_range, set(map(_NAME, events))))
    if ranges:
        user_annotations(output, [event for event in events if event.name in ranges])
        events = [event for event in events if event.name not in ranges]
    rows = output.fit(events, OPERATOR)
    if rows is None:
        return
    texts, records = output.texts, rows.records
    columns = {
        **rows.on_host(),
        "name": output.numbers(rows.names),
        "external_id": column([record.external_id for record in records]),
        "shapes": column(texts.numbers_of_json(map(_SHAPES, records)), "int32"),
        "types": column(texts.numbers_of_json(map(_TYPES, records)), "int32"),
        "stack": column(texts.numbers_of_stacks([record.stack for record in records]), "int32"),
        "flops": column([record.flops for record in records], "float64"),
    }
    output.add("operators", columns, ("external_id", "shapes", "types", "stack", "flops"))


def user_annotations(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take ranges of the host's threads."""
    _ranges(output, events, None)


def device_annotations(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take the ranges that programs marked, as the devices went through them."""
    _ranges(output, events, Range.DEVICE)


def python_functions(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take functions of the program."""
    _ranges(output, events, Range.PYTHON)


def overheads(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take the profiler's own times."""
    _ranges(output, events, Range.OVERHEAD)


def memory(output: Output, events: Sequence[AnyEvent]) -> None:
    """Take allocations and releases."""
    rows = output.fit(events, MEMORY)
    if rows is None:
        return
    records = rows.records
    devices = [UNKNOWN if record.device_type == _HOST else record.device for record in records]
    columns = {
        "time_ns": rows.begin,
        "device": column(devices, "int16"),
        "bytes": column([record.bytes for record in records]),
        "allocated_bytes": column([record.allocated_bytes for record in records]),
        "reserved_bytes": column([record.reserved_bytes for record in records]),
        "address": _addresses([record.address for record in records]),
    }
    output.add("memory", columns, ("allocated_bytes", "reserved_bytes", "address"))


def _ranges(output: Output, events: Sequence[AnyEvent], kind: Range | None) -> None:
    rows = output.fit(events)
    if rows is None:
        return
    kinds = [range_of(name) for name in rows.names] if kind is None else [kind] * len(rows)
    columns = {**rows.on_host(), "name": output.numbers(rows.names), "kind": column(kinds, "int8")}
    output.add("ranges", columns)


def _addresses(addresses: list[int]) -> Column:
    """Return addresses by their 64 bits, so that the highest of them become negative."""
    try:
        return column(addresses)
    except OverflowError:
        return column([(address + 2**63) % 2**64 - 2**63 for address in addresses])
