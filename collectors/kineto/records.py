"""An event of a trace, and what its `args` say, as far as it is used.

Names are those of Kineto (`libkineto/include/MetadataFieldCatalog.h`, `output_json.cpp`). Structs
that the garbage collector need not know take half the time to decode.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Raw

from gpuadvisor.domain.profile import UNKNOWN

Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int16: TypeAlias = Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)]
Triple: TypeAlias = tuple[Int32, Int32, Int32]

NOWHERE: Triple = (UNKNOWN, UNKNOWN, UNKNOWN)
NO_JSON = Raw(b"")
_NOTHING = Raw(b"{}")


class Event(msgspec.Struct, gc=False):
    """One event, times in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Int64 | str = UNKNOWN
    tid: Int64 | str = UNKNOWN
    ts: float = float("nan")
    dur: float = 0.0
    args: Raw = _NOTHING


class ExactEvent(msgspec.Struct, gc=False):
    """The same with all digits of its times, which may also be strings; three times slower."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Int64 | str = UNKNOWN
    tid: Int64 | str = UNKNOWN
    ts: Decimal = Decimal("nan")
    dur: Decimal = Decimal(0)
    args: Raw = _NOTHING


class _Linked(msgspec.Struct, gc=False):
    external_id: Int64 = msgspec.field(default=UNKNOWN, name="External id")
    old_external_id: Int64 = msgspec.field(default=UNKNOWN, name="external id")
    device: Int16 = UNKNOWN
    stream: Int64 = UNKNOWN
    correlation: Int64 = UNKNOWN
    graph_node: Int64 = msgspec.field(default=UNKNOWN, name="graph node id")


class Kernel(_Linked, gc=False):
    """Of a kernel; what a collective says is in the same place."""

    registers: Int32 = msgspec.field(default=UNKNOWN, name="registers per thread")
    shared_bytes: Int32 = msgspec.field(default=UNKNOWN, name="shared memory")
    grid: Triple = NOWHERE
    block: Triple = NOWHERE
    collective: str = msgspec.field(default="", name="Collective name")
    in_elements: Int64 = msgspec.field(default=UNKNOWN, name="In msg nelems")
    out_elements: Int64 = msgspec.field(default=UNKNOWN, name="Out msg nelems")
    group_size: Int32 = msgspec.field(default=UNKNOWN, name="Group size")
    type: str = msgspec.field(default="", name="dtype")
    group: str = msgspec.field(default="", name="Process Group Name")
    sequence: Int64 = msgspec.field(default=UNKNOWN, name="Seq")


class Copy(_Linked, gc=False):
    """Of a copy or a memset."""

    bytes: Int64 = UNKNOWN


class Call(msgspec.Struct, gc=False):
    """Of a call into the runtime or the driver."""

    correlation: Int64 = UNKNOWN


class Synchronization(msgspec.Struct, gc=False):
    """Of a `cuda_sync`."""

    kind: str = msgspec.field(default="", name="cuda_sync_kind")
    device: Int16 = UNKNOWN
    stream: Int64 = UNKNOWN
    correlation: Int64 = UNKNOWN


class Operator(msgspec.Struct, gc=False):
    """Of an operator of the framework."""

    external_id: Int64 = msgspec.field(default=UNKNOWN, name="External id")
    shapes: Raw = msgspec.field(default=NO_JSON, name="Input Dims")
    types: Raw = msgspec.field(default=NO_JSON, name="Input type")
    stack: str = msgspec.field(default="", name="Call stack")
    flops: float | None = None


class Memory(msgspec.Struct, gc=False):
    """Of an allocation or a release."""

    bytes: Int64 = msgspec.field(name="Bytes")
    device_type: Int64 = msgspec.field(default=UNKNOWN, name="Device Type")
    device: Int16 = msgspec.field(default=UNKNOWN, name="Device Id")
    address: int = msgspec.field(default=UNKNOWN, name="Addr")
    allocated_bytes: Int64 = msgspec.field(default=UNKNOWN, name="Total Allocated")
    reserved_bytes: Int64 = msgspec.field(default=UNKNOWN, name="Total Reserved")
