"""The events of a trace and what their `args` say, as far as it is used, decoded from JSON.

Names are those of Kineto (`libkineto/include/MetadataFieldCatalog.h`, `output_json.cpp`). Structs
that the garbage collector need not know take half the time to decode. Batches are decoded whole,
and their events one by one where a batch has something unfit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw

from gpuadvisor.domain.profile import UNKNOWN

Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int16: TypeAlias = Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)]
Triple: TypeAlias = tuple[Int32, Int32, Int32]
Sizes: TypeAlias = Triple | str
"""A grid or a block: three numbers, or a text that has them, as some other writers of traces make
of it (`[128, 1, 1]`)."""

NOWHERE: Triple = (UNKNOWN, UNKNOWN, UNKNOWN)
NO_JSON = Raw(b"")
_NOTHING = Raw(b"{}")
Record = TypeVar("Record")
EXACT_UNTIL_US = 2.0**43
"""Below this time a float tells every nanosecond (its neighbours are less than 1 ns apart). Some
versions wrote the time since 1970 with three decimals, 1.7e15 us, where floats are 250 ns apart."""
_UNFIT = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, OverflowError)
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*+"|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
"""A string, or what C++ prints for a float that is no number."""
_raw = attrgetter("args")
_SAMPLES = 64
"""Events of a batch that tell whether times have decimals. One of four floats loses them all, so
that the text of a few events must tell as well, for batches of few."""
_DECIMALS = re.compile(rb'"ts"\s*:\s*\d+\.')
_HEAD_BYTES = 1 << 13


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Int64 | str = UNKNOWN
    tid: Int64 | str = UNKNOWN
    args: Raw = _NOTHING


class TraceEvent(_Event, gc=False):
    """One event, times in microseconds."""

    ts: float = float("nan")
    dur: float = 0.0


class ExactTraceEvent(_Event, gc=False):
    """One event with all digits of its times, which may also be strings; three times slower."""

    ts: Decimal = Decimal("nan")
    dur: Decimal = Decimal(0)


class _LinkedArgs(msgspec.Struct, gc=False):
    external_id: Int64 = msgspec.field(default=UNKNOWN, name="External id")
    old_external_id: Int64 = msgspec.field(default=UNKNOWN, name="external id")
    device: Int16 = UNKNOWN
    stream: Int64 = UNKNOWN
    correlation: Int64 = UNKNOWN
    graph_node: Int64 = msgspec.field(default=UNKNOWN, name="graph node id")


class KernelArgs(_LinkedArgs, gc=False):
    """The `args` of a kernel, with what a collective says."""

    registers: Int32 = msgspec.field(default=UNKNOWN, name="registers per thread")
    shared_bytes: Int32 = msgspec.field(default=UNKNOWN, name="shared memory")
    grid: Sizes = NOWHERE
    block: Sizes = NOWHERE
    collective: str = msgspec.field(default="", name="Collective name")
    in_elements: Int64 = msgspec.field(default=UNKNOWN, name="In msg nelems")
    out_elements: Int64 = msgspec.field(default=UNKNOWN, name="Out msg nelems")
    group_size: Int32 = msgspec.field(default=UNKNOWN, name="Group size")
    type: str = msgspec.field(default="", name="dtype")
    group: str = msgspec.field(default="", name="Process Group Name")
    sequence: Int64 = msgspec.field(default=UNKNOWN, name="Seq")


def triple(sizes: Sizes) -> Triple:
    """Return a grid or a block as three numbers; `NOWHERE` where a text has other than these."""
    if not isinstance(sizes, str):
        return sizes
    try:
        found: Triple = msgspec.json.decode(sizes, type=Triple)
    except msgspec.DecodeError:
        return NOWHERE
    return found


class CopyArgs(_LinkedArgs, gc=False):
    """The `args` of a copy or a memset."""

    bytes: Int64 = UNKNOWN


class CallArgs(msgspec.Struct, gc=False):
    """The `args` of a call into the runtime or the driver."""

    correlation: Int64 = UNKNOWN


class SynchronizationArgs(msgspec.Struct, gc=False):
    """The `args` of a `cuda_sync`."""

    kind: str = msgspec.field(default="", name="cuda_sync_kind")
    device: Int16 = UNKNOWN
    stream: Int64 = UNKNOWN
    correlation: Int64 = UNKNOWN


class OperatorArgs(msgspec.Struct, gc=False):
    """The `args` of an operator of the framework."""

    external_id: Int64 = msgspec.field(default=UNKNOWN, name="External id")
    shapes: Raw = msgspec.field(default=NO_JSON, name="Input Dims")
    types: Raw = msgspec.field(default=NO_JSON, name="Input type")
    stack: str = msgspec.field(default="", name="Call stack")
    flops: float | None = None
    sequence: int = msgspec.field(default=UNKNOWN, name="Sequence number")
    forward_thread: int = msgspec.field(default=UNKNOWN, name="Fwd thread id")


class InputArgs(msgspec.Struct, gc=False):
    """The part of an operator's `args` with the values of its inputs that are no tensors."""

    inputs: Raw = msgspec.field(default=NO_JSON, name="Concrete Inputs")


class MemoryArgs(msgspec.Struct, gc=False):
    """The `args` of an allocation or a release."""

    bytes: Int64 = msgspec.field(name="Bytes")
    device_type: Int64 = msgspec.field(default=UNKNOWN, name="Device Type")
    device: Int16 = msgspec.field(default=UNKNOWN, name="Device Id")
    address: int = msgspec.field(default=UNKNOWN, name="Addr")
    allocated_bytes: Int64 = msgspec.field(default=UNKNOWN, name="Total Allocated")
    reserved_bytes: Int64 = msgspec.field(default=UNKNOWN, name="Total Reserved")


AnyEvent: TypeAlias = TraceEvent | ExactTraceEvent


_fast = msgspec.json.Decoder(list[TraceEvent])
_exact = msgspec.json.Decoder(list[ExactTraceEvent])
_one = msgspec.json.Decoder(ExactTraceEvent)


def events_of(array: bytes) -> Sequence[AnyEvent] | None:
    """Return the events of a JSON array; None where any of them is unfit."""
    events = _decoded(_fast.decode, array)
    if events is not None and _is_exact(events, array):
        return events
    exact = _decoded(_exact.decode, array)
    return None if exact is None or any(map(_is_trap, exact)) else exact


def event_of(element: bytes) -> AnyEvent | None:
    """Return what can be made of one element; None where it is no event."""
    event = _mended(_one.decode, element)
    return None if event is None or _is_trap(event) else event


def normal_json(value: bytes) -> str:
    """Return a JSON value as a text, spaced as Kineto does; what is no JSON as it is."""
    if not value:
        return ""
    repaired = _repaired(value)
    return (value if repaired is None else repaired).decode("utf-8", "replace")


class Arguments(Generic[Record]):
    """Decodes the `args` of one kind of event."""

    def __init__(self, record: type[Record]) -> None:
        self._all = msgspec.json.Decoder(list[record])  # type: ignore[valid-type]
        self._one = msgspec.json.Decoder(record)

    def of(self, events: Sequence[AnyEvent]) -> tuple[Sequence[AnyEvent], Sequence[Record]]:
        """Return the events whose `args` are as they should be, and these."""
        joined = b"".join((b"[", b",".join(map(_raw, events)), b"]"))
        records = _decoded(self._all.decode, joined)
        if records is not None:
            return events, records
        pairs = [(event, _mended(self._one.decode, bytes(event.args))) for event in events]
        kept = [(event, record) for event, record in pairs if record is not None]
        return [event for event, _ in kept], [record for _, record in kept]


def _decoded(decode: Callable[[bytes], Record], data: bytes) -> Record | None:
    try:
        return decode(data)
    except _UNFIT:
        return None


def _mended(decode: Callable[[bytes], Record], data: bytes) -> Record | None:
    """Decode a value, repaired if it must be; None where it is none even so."""
    found = _decoded(decode, data)
    if found is None and (repaired := _repaired(data)) is not None:
        found = _decoded(decode, repaired)
    return found


def _is_exact(events: Sequence[TraceEvent], array: bytes) -> bool:
    """Tell whether floats hold all that the file says of times."""
    few = events[:: max(1, len(events) // _SAMPLES)]
    late = [event.ts for event in few if event.ts > EXACT_UNTIL_US]
    if not late:
        return True
    return all(time.is_integer() for time in late) and not _DECIMALS.search(array, 0, _HEAD_BYTES)


def _is_trap(event: ExactTraceEvent) -> bool:
    """Tell whether a time is a signalling NaN, with which nothing can be computed."""
    return event.ts.is_snan() or event.dur.is_snan()


def _repaired(value: bytes) -> bytes | None:
    """Return a value as valid JSON and UTF-8: null for NaN and infinity, `?` for what is no text.

    None where it is no JSON even so.
    """
    text = value.decode("utf-8", "replace")
    try:
        valid = _LITERAL.sub(lambda found: found[0] if found[0][0] == '"' else "null", text)
        plain = json.loads(valid, strict=False)
        return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")
    except _UNFIT:
        return None
