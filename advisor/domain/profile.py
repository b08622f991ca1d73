"""A profile: what a GPU and its host did over some time, whoever recorded it.

Readers fill the tables below, batch by batch, and the store keeps them by column. A table is a
mapping of column names to one-dimensional numpy arrays of the same length (`Columns`); this module
knows their names and types only, and imports no numpy.

Times are whole nanoseconds since the profile's first event, so that they fit and subtract exactly.
Texts (names of kernels, shapes) are numbers in the profile's list of texts. `UNKNOWN` stands where
a row lacks what others have; what no row of a profile has is named in `Header.not_measured`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

Columns = Mapping[str, Any]
"""Column name to a one-dimensional numpy array; all of the same length."""

UNKNOWN = -1
"""The value of whole-number columns where it is not known; floating-point columns have NaN."""

NO_TEXT = 0
"""The number of the empty text, which every profile has first."""


class Direction(IntEnum):
    """The direction of a copy."""

    OTHER = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    HOST_TO_HOST = 4
    PEER_TO_PEER = 5
    MEMSET = 6
    """No copy: a range of memory filled with a value."""
    MIGRATION = 7
    """Pages of managed memory that moved by themselves."""


class Memory(IntEnum):
    """The kind of memory at an end of a copy."""

    NOT_KNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    ARRAY = 4
    MANAGED = 5


class CallKind(IntEnum):
    """The kinds of calls into CUDA, by what they do."""

    OTHER = 0
    LAUNCH = 1
    """Launch of a kernel."""
    COPY = 2
    MEMSET = 3
    SYNCHRONIZE = 4
    """The host waits for the device."""
    ALLOCATE = 5
    FREE = 6
    GRAPH_LAUNCH = 7
    EVENT = 8
    """Recording or asking an event, which does not wait."""


class Synchronization(IntEnum):
    """The kinds of synchronization, by what waits for what."""

    OTHER = 0
    EVENT = 1
    """The host for an event."""
    STREAM_WAIT = 2
    """A stream for an event: the host goes on."""
    STREAM = 3
    """The host for a stream."""
    CONTEXT = 4
    """The host for everything."""


class Range(IntEnum):
    """The kinds of ranges, by who marked them."""

    USER = 0
    """`record_function`, or an NVTX range, of the program."""
    STEP = 1
    """A step of the profiler's schedule (`ProfilerStep#N`)."""
    DEVICE = 2
    """A range of the program over the kernels that it launched (`gpu_user_annotation`)."""
    PYTHON = 3
    """A Python function."""
    LOADER = 4
    """Waiting for a batch of a DataLoader (`enumerate(DataLoader)#...__next__`)."""
    OVERHEAD = 5
    """Overhead of the profiler itself."""
    SYSTEM = 6
    """A call into the operating system's libraries, such as `poll`, which the profiler saw."""


_TIMED = {"begin_ns": "int64", "duration_ns": "int64"}
_ON_DEVICE = {**_TIMED, "device": "int16", "stream": "int64", "correlation": "int64"}
_ON_HOST = {**_TIMED, "process": "int64", "thread": "int64"}

TABLES: Mapping[str, Mapping[str, str]] = {
    "kernels": {
        **_ON_DEVICE,
        "name": "int32",  # text
        "grid_x": "int32", "grid_y": "int32", "grid_z": "int32",  # blocks
        "block_x": "int32", "block_y": "int32", "block_z": "int32",  # threads
        "registers": "int32",  # a thread
        "shared_bytes": "int32",  # a block, static and dynamic together
        "graph_node": "int64",  # of a CUDA graph; UNKNOWN where launched by itself
    },
    "copies": {
        **_ON_DEVICE,
        "direction": "int8",  # Direction
        "source": "int8",  # Memory
        "destination": "int8",  # Memory
        "bytes": "int64",
        "graph_node": "int64",
    },
    "calls": {  # into the CUDA runtime and driver
        **_ON_HOST,
        "correlation": "int64",
        "name": "int32",  # text, without a suffix of the version (`cudaLaunchKernel`)
        "kind": "int8",  # CallKind
    },
    "synchronizations": {
        **_TIMED,
        "device": "int16", "stream": "int64", "correlation": "int64",
        "kind": "int8",  # Synchronization
    },
    "operators": {  # of the framework, such as aten::mm
        **_ON_HOST,
        "name": "int32",  # text
        "external_id": "int64",  # also of the calls and kernels that it launched
        "shapes": "int32", "types": "int32",  # texts, as the profiler writes them
        "inputs": "int32",  # text: values of inputs that are no tensors, of attention alone
        "stack": "int32",  # text, a line a frame, innermost first
        "flops": "float64",  # as the profiler estimates them; NaN where it does not
        "sequence": "int64",  # of autograd: forward and backward operators of one node share it
        "forward_thread": "int64",  # PyTorch's own number of the forward pass's thread, in backward
    },
    "ranges": {
        **_ON_HOST,
        "name": "int32",  # text
        "kind": "int8",  # Range
    },
    "memory": {  # each allocation and release of the framework's allocator
        "time_ns": "int64",
        "device": "int16",  # UNKNOWN for the host
        "bytes": "int64",  # negative for a release
        "allocated_bytes": "int64", "reserved_bytes": "int64",  # in total, after it
        "address": "int64",
    },
    "collectives": {  # a row for each kernel of a communication library that says what it does
        "correlation": "int64",  # its kernel's
        "begin_ns": "int64",  # its kernel's, which tells it where correlations repeat
        "name": "int32",  # text: allreduce, ...
        "type": "int32",  # text: of an element
        "in_elements": "int64", "out_elements": "int64",
        "group": "int32",  # text: the process group's name
        "group_size": "int32",
        "sequence": "int64",
    },
    "links": {  # which operator launched what: rows only where the trace itself says so
        "external_id": "int64",
        "correlation": "int64",
    },
    "metrics": {  # of Nsight Compute, a row for each metric of each kernel
        "kernel": "int64",  # row of `kernels`
        "metric": "int32",  # text
        "value": "float64",  # in base units (bytes, seconds, hertz); percentages 0 to 100
        "unit": "int32",  # text, of the base unit
    },
    "stalls": {  # of Nsight Compute: at what instructions of kernels warps were sampled, and why
        "kernel": "int64",  # row of `kernels`
        "line": "int32",  # text: `file:line`; empty where the kernel has no lines
        "instruction": "int32",  # text, empty where there is a line
        "reason": "int32",  # text: why the warp issued nothing; `selected` where it did
        "samples": "int64",
    },
    "samples": {  # what threads of the CPU executed, asked at short intervals while they ran
        "time_ns": "int64",
        "process": "int64", "thread": "int64",
        "function": "int32",  # text: the innermost function; empty where it has no symbol
        "module": "int32",  # text: the library or program that it is in, without folders
    },
    "counters": {  # over time: GPU metrics of Nsight Systems, PM sampling of Kineto
        "time_ns": "int64",
        "device": "int16",
        "name": "int32",  # text
        "value": "float64",
    },
}  # fmt: skip
"""Tables, their columns and numpy types. Rows come in any order; readers need not sort."""
ON_DEVICE = ("kernels", "copies")
"""Tables of what ran on the devices, memsets among the copies."""
ON_HOST = ("calls", "operators", "synchronizations", "ranges")
"""Tables of what the host did, from when to when."""

TOLD_BY = {"stalls": "metrics", "samples": "metrics"}
"""Tables of which people need not hear that they are empty where another one is."""
GROUP_RANKS = "ranks of process group "
"""What the facts of a profile that tell the ranks of a process group begin with; its name
follows."""
CUT_OFF = "cut off"
"""Name of the fact that a part of the file is missing or cannot be read: which, in sentences."""
LOST = "lost while it was recorded"
"""Name of the fact that the recorder says that it lost events: what it says, in sentences."""
FAILED_CALLS = "calls that returned an error"
"""The fact of a profile that tells which calls into CUDA failed, as `failed_calls_told` writes it;
absent where nothing tells what calls returned."""
SYSTEM_CALLS = "calls into the operating system"
"""The fact of a profile that tells that such calls were recorded, if any were made."""
TIMES = ("begin_ns", "time_ns")
"""The columns that are points in time."""


@dataclass(frozen=True)
class DeviceLimits:
    """A GPU as the profile describes it; None where it does not say."""

    index: int
    name: str
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    """Theoretical bandwidth of the memory."""
    l2_bytes: int | None = None
    clock_hz: float | None = None
    """Highest clock of the SMs."""
    registers_per_multiprocessor: int | None = None
    shared_bytes_per_multiprocessor: int | None = None
    shared_bytes_per_block: int | None = None
    """Most shared memory of a block, with opt-in."""
    threads_per_multiprocessor: int | None = None
    uuid: str | None = None


@dataclass(frozen=True)
class Header:
    """Everything known of a profile as a whole; complete when all of it was read."""

    source: str
    """`kineto`, `nsys` or `ncu`."""
    tool: str = ""
    """The tool that wrote the file, with its version, as far as the file says."""
    begin_unix_ns: int | None = None
    """When the first event began, where the file knows the time of day."""
    first_ns: int = 0
    """The earliest time in the batches, where a reader learns it only at the end of the file: a
    sink takes it off every column of `TIMES`, so that a profile's times begin at 0."""
    duration_ns: int = 0
    """From the first event's begin to the last one's end."""
    devices: tuple[DeviceLimits, ...] = ()
    processes: Mapping[int, str] = field(default_factory=dict)
    """Names, by process number, where they are told."""
    rank: int | None = None
    world_size: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    """Further facts of the file, such as `cuda_driver_version`; keys as there."""
    not_measured: Mapping[str, str] = field(default_factory=dict)
    """Table, or `table.column`, to why it is empty: `the trace was recorded without shapes`."""
    warnings: tuple[str, ...] = ()
    """Sentences about what of the file could not be used; at most `MAX_WARNINGS`."""
    texts: Sequence[str] = ("",)


class FailedCalls(NamedTuple):
    """Calls of one name into CUDA that returned the same error."""

    name: str
    error: int
    """The number of a `cudaError_t` or `CUresult`."""
    times: int


def failed_calls_told(found: Iterable[FailedCalls]) -> str:
    """Return failed calls as `21 x cudaLaunchKernel: 222; 1 x cudaMalloc: 2`, or `none`."""
    return "; ".join(f"{each.times} x {each.name}: {each.error}" for each in found) or "none"


def failed_calls(facts: Mapping[str, str]) -> tuple[FailedCalls, ...] | None:
    """Return the calls that failed by a profile's facts; None where it is not known whether any
    did. What is not written as `failed_calls_told` does is left out."""
    told = facts.get(FAILED_CALLS)
    if told is None:
        return None
    found = (re.fullmatch(r"(\d+) x (\S+): (\d+)", each) for each in told.split("; "))
    return tuple(FailedCalls(each[2], int(each[3]), int(each[1])) for each in found if each)


MAX_WARNINGS = 20


class Sink(Protocol):
    """Takes what a reader reads."""

    def add(self, table: str, columns: Columns) -> None:
        """Take a batch of rows, with all columns of that table in their types."""
        ...


class Texts:
    """Numbers the texts of a profile, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": NO_TEXT}

    def number(self, text: str) -> int:
        """Return a text's number."""
        numbers = self._numbers
        return numbers.setdefault(text, len(numbers))

    def all(self) -> tuple[str, ...]:
        """Return the texts by number."""
        return tuple(self._numbers)


class Profile(Protocol):
    """A profile that was read or stored, to ask things of."""

    @property
    def header(self) -> Header: ...

    def rows(self, table: str) -> int:
        """Return how many rows a table has; 0 where it was not measured."""
        ...

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        """Return whole columns, all of them unless named; only what is asked for is loaded."""
        ...


class Recording(Profile, Protocol):
    """A profile as it was recorded, which can be read piece by piece: it may be larger than memory
    should be."""

    def batches(self, table: str, names: Iterable[str], kept: Any = None) -> Iterator[Columns]:
        """Yield these columns in pieces that are read one after the other and not kept.

        With `kept`, which says of each row of the table whether it is wanted, they have these rows
        only; pieces without any are not read.
        """
        ...
