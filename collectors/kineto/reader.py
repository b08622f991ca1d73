"""Reads traces of the torch profiler: `.json`, gzip or zstd, however large, in bounded memory.

    header = read(Path("trace.json.gz"), sink)

Times count from the earliest row of the profile once the sink takes `header.first_ns` off them;
until then from the first event of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpuadvisor.collectors.kineto.batch import Output
from gpuadvisor.collectors.kineto.blocks import Blocks, Content
from gpuadvisor.collectors.kineto.categories import Tables
from gpuadvisor.collectors.kineto.document import ENOUGH_BYTES, ContentWindow, TraceDocument
from gpuadvisor.domain.profile import (
    CUT_OFF,
    GROUP_RANKS,
    MAX_WARNINGS,
    DeviceLimits,
    Header,
    Sink,
)
from gpuadvisor.errors import UsageError

_NO_DEVICE = "the trace has nothing of a GPU: only the CPU was recorded"
_DEVICE_TABLES = ("kernels", "copies", "calls", "collectives", "synchronizations", "links")
_ALWAYS = dict.fromkeys(
    ("metrics", "stalls"), "the torch profiler takes no metrics of Nsight Compute"
) | {"samples": "the torch profiler does not sample the CPU"}
_TABLES = {
    "synchronizations": "synchronisations are recorded only when asked for "
    "(`_ExperimentalConfig(enable_cuda_sync_events=True)`)",
    "calls": "the trace has no calls into CUDA",
    "links": "the trace does not say which operator launched what",
    "memory": "the trace was recorded without memory (`profile_memory=True`)",
    "operators": "the trace has no operators",
    "counters": "no counters of the GPU were sampled",
}
_COLUMNS = {
    "kernels.registers": "the profiler does not tell registers on this device",
    "kernels.shared_bytes": "the profiler does not tell shared memory on this device",
    "kernels.grid_x": "the trace does not tell the sizes of grids and blocks",
    "copies.bytes": "the trace does not tell the sizes of copies",
    "collectives.in_elements": "the trace does not tell the sizes of collectives",
    "collectives.type": "the trace does not tell the types of collectives",
    "operators.external_id": "the trace does not number its operators",
    "operators.shapes": "the trace was recorded without shapes (`record_shapes=True`)",
    "operators.types": "the trace was recorded without shapes (`record_shapes=True`)",
    "operators.stack": "the trace was recorded without stacks (`with_stack=True`)",
    "operators.flops": "the torch profiler writes no FLOP counts into traces",
    "memory.allocated_bytes": "this version of PyTorch did not write totals",
    "memory.reserved_bytes": "this version of PyTorch did not write totals",
    "memory.address": "this version of PyTorch did not write addresses",
}
ANYBODYS = ("counters",)
"""Tables whose events have no category of Kineto's."""
SINCE_1970_NS = 10**18
"""Older traces count from 1970, and later than 2001; newer ones from about the machine's start."""
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


def not_measured(output: Output, has_python: bool) -> Mapping[str, str]:
    """Return tables and columns that are empty, with the reason."""
    rows, reasons = output.rows, dict(_ALWAYS)
    if not any(rows[table] for table in _DEVICE_TABLES):
        reasons |= dict.fromkeys(_DEVICE_TABLES, _NO_DEVICE)
    for table, reason in _TABLES.items():
        if not rows[table]:
            reasons.setdefault(table, reason)
    for column, reason in _COLUMNS.items():
        if rows[column.partition(".")[0]] and column not in output.measured:
            reasons[column] = reason
    if has_python and "operators.stack" in reasons:
        reasons["operators.stack"] = "stacks are in `ranges`, as Python functions"
    return reasons


def recognises(head: bytes) -> bool:
    """Tell from the first (unpacked) bytes of a file whether it is JSON, as all traces are."""
    return head.removeprefix(_BOM).lstrip(_SPACE)[:1] in (b"{", b"[")


def read(path: Path, sink: Sink) -> Header:
    """Give a trace's events to the sink and return what is known of it as a whole.

    What cannot be used of it is left out, and said in the header's warnings. UsageError says why
    nothing could be used.
    """
    return read_blocks(Blocks(path), path, sink)


def read_blocks(
    blocks: Content, path: Path, sink: Sink, enough_bytes: int = ENOUGH_BYTES
) -> Header:
    """Do the same with content that comes in blocks of any size, looking at so much at once."""
    output, metadata = Output(sink), TraceMetadata()
    tables = Tables(output)
    document = TraceDocument(ContentWindow(blocks, str(path)), tables, metadata.take, enough_bytes)
    if not document.walk():
        raise UsageError(f"{path} is not JSON, as the torch profiler's traces are.")
    if not metadata.is_kineto:
        refuse_foreign(path, output, tables)
    return Header(
        source="kineto",
        tool="torch.profiler (Kineto)",
        begin_unix_ns=_begin_unix_ns(output, metadata),
        first_ns=output.clock.first_ns,
        duration_ns=output.clock.duration_ns,
        devices=metadata.devices,
        processes=tables.processes.names(),
        rank=metadata.numbers.get("rank"),
        world_size=metadata.numbers.get("world_size"),
        facts={**metadata.facts, **_cut_off(tables, blocks, document)},
        not_measured=not_measured(output, tables.has_python),
        warnings=_warnings(output, tables, metadata, blocks, document),
        texts=output.texts.all(),
    )


def _begin_unix_ns(output: Output, metadata: TraceMetadata) -> int | None:
    first, base = output.clock.first_absolute_ns, metadata.numbers.get("baseTimeNanoseconds")
    if first is None:
        return None
    if base is not None:
        return base + first
    return first if first > SINCE_1970_NS else None


def _cut_off(tables: Tables, blocks: Content, document: TraceDocument) -> dict[str, str]:
    """Return the fact that a part of the file is missing; none where it is whole."""
    said = []
    if blocks.damage:
        said.append(f"{blocks.damage} What came before that was read.")
    if document.broken_at is not None:
        said.append(
            f"The JSON ends early or breaks at byte {document.broken_at:,}: the "
            f"{tables.events:,} events before that were read."
        )
    if tables.unreadable:
        said.append(f"{_count(tables.unreadable, 'element')} of the trace could not be read.")
    return {CUT_OFF: " ".join(said)} if said else {}


def _warnings(
    output: Output,
    tables: Tables,
    metadata: TraceMetadata,
    blocks: Content,
    document: TraceDocument,
) -> tuple[str, ...]:
    found = list(_cut_off(tables, blocks, document).values())
    if not tables.events:
        found.append("The trace has no events.")
    if output.unfit:
        found.append(
            f"{_count(output.unfit, 'event')} with missing, negative or wrong values were left out."
        )
    if output.texts.left_out:
        found.append(f"{_count(output.texts.left_out, 'row')} lost a text: there are too many.")
    if metadata.unreadable:
        found.append(f"Not readable beside the events: {', '.join(metadata.unreadable[:5])}.")
    return tuple(found[:MAX_WARNINGS])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class _Foreign:
    what: str
    is_it: Callable[[Iterable[str], Iterable[str]], bool]
    """Tells from the names of the processes and the categories that are not Kineto's."""


_OTHERS = (
    _Foreign(
        "a timeline of TensorFlow",
        lambda processes, _: any(
            "/job:" in name or (name.startswith("/") and name.endswith((" Compute", " Tensors")))
            for name in processes
        ),
    ),
    _Foreign(
        "a trace of XLA's profiler (JAX or TensorFlow)",
        lambda processes, _: any(name.startswith(("/device:", "/host:")) for name in processes),
    ),
    _Foreign(
        "a profile of ONNX Runtime", lambda _, categories: {"Session", "Node"} <= {*categories}
    ),
    _Foreign(
        "a trace of Chrome",
        lambda processes, categories: (
            not {"Browser", "Renderer", "GPU Process"}.isdisjoint(processes)
            or any(name == "v8" or "devtools.timeline" in name for name in categories)
        ),
    ),
)


def refuse_foreign(path: Path, output: Output, tables: Tables) -> None:
    """Raise a UsageError that says what a trace without Kineto's metadata seems to be, unless its
    events prove that PyTorch wrote them.

    Every trace of Kineto names its own schema beside the events (`metadata.KNOWN`). Where only the
    bare events are left of it, those of a category that nobody else writes prove it. Counters do
    not: every Chrome trace may have them; nor do kernels beside ONNX Runtime's own events.
    """
    processes, categories = tables.processes.names().values(), tables.other_categories
    seems = next((each.what for each in _OTHERS if each.is_it(processes, categories)), None)
    shared = (*ANYBODYS, "kernels") if seems else ANYBODYS
    if any(rows for table, rows in output.rows.items() if table not in shared):
        return
    other = "a Chrome trace of another program, or of PyTorch's profiler before Kineto"
    what = f"{seems or other}, it seems, and"
    if not tables.has_phases:
        what = "JSON, but"
    raise UsageError(
        f"{path} is {what} not a trace of the torch profiler: it has neither the metadata nor"
        " the events that PyTorch writes; read are traces of torch.profiler, and reports of Nsight"
        " Systems and Nsight Compute."
    )


# -- what a trace says beside its events: devices, ranks, versions ---------------------------------

MAX_FACTS = 64
MAX_FACT = 200
"""Characters kept of a value."""
MAX_DEVICES = 1024
KNOWN = frozenset(
    ("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "traceName")
)
"""Keys of which every trace of Kineto has at least one."""

_INT64 = 2**63
_AMD_WARP = 64


class TraceMetadata:
    """Collects what a trace says of itself from the members of the trace's outermost object."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        """All that are a word or a number, as texts."""
        self.numbers: dict[str, int] = {}
        """Facts of the trace that are whole numbers."""
        self.devices: tuple[DeviceLimits, ...] = ()
        self.unreadable: list[str] = []
        """Keys of values that are not what they should be."""
        self.is_kineto = False

    def take(self, key: str, value: bytes) -> None:
        """Take a member; what is of no use is passed over."""
        self.is_kineto |= key in KNOWN
        if value[:1] in b"{[" and key not in ("deviceProperties", "distributedInfo"):
            return
        try:
            plain = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            if len(self.unreadable) < MAX_FACTS:
                self.unreadable.append(key[:MAX_FACT])
            return
        if key == "deviceProperties" and isinstance(plain, list):
            items = [item for item in plain[:MAX_DEVICES] if isinstance(item, dict)]
            # Some versions number none of them: CUDA lists devices in the order of their numbers.
            unnumbered = not any("id" in item for item in items)
            limits = (_device(item, place if unnumbered else None)
                      for place, item in enumerate(items))  # fmt: skip
            self.devices = tuple(device for device in limits if device is not None)
        elif key == "distributedInfo" and isinstance(plain, dict):
            for name, part in plain.items():
                self._take_plain(name if name in ("rank", "world_size") else f"{key}.{name}", part)
            self._take_groups(plain.get("pg_config"))
        else:
            self._take_plain(key, plain)

    def _take_plain(self, key: str, value: object) -> None:
        if not isinstance(value, (str, int, float, bool)) or len(self.facts) >= MAX_FACTS:
            return
        self.facts[key[:MAX_FACT]] = str(value)[:MAX_FACT]
        whole = _whole(value)
        if whole is not None:
            self.numbers[key] = whole

    def _take_groups(self, groups: object) -> None:
        """Take the ranks of each process group; none of so many that other facts had no room."""
        if not isinstance(groups, list) or 2 * len(groups) > MAX_FACTS:
            return
        for each in groups:
            if isinstance(each, dict) and isinstance(ranks := each.get("ranks"), list):
                name = f"{GROUP_RANKS}{each.get('pg_name', '')}"
                self._take_plain(name, ", ".join(map(str, ranks[:MAX_FACT])))


def _device(properties: Mapping[str, Any], place: int | None) -> DeviceLimits | None:
    index = _whole(properties.get("id", place))
    if index is None:
        return None

    def limit(*names: str) -> int | None:
        return next((whole for name in names if (whole := _whole(properties.get(name)))), None)

    major, minor = limit("computeMajor"), _whole(properties.get("computeMinor"))
    name = str(properties.get("name", ""))[:MAX_FACT]
    is_nvidia = limit("warpSize") != _AMD_WARP and "AMD" not in name
    return DeviceLimits(
        index=index,
        name=name,
        # AMD's are those of another architecture: 9.4 is MI300, and 9.0 would be an H100.
        compute_capability=(major, minor) if major and minor is not None and is_nvidia else None,
        sm_count=limit("numSms", "maxComputeUnits"),
        memory_bytes=limit("totalGlobalMem"),
        registers_per_multiprocessor=limit("regsPerMultiprocessor"),
        shared_bytes_per_multiprocessor=limit(
            "sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"
        ),
        shared_bytes_per_block=limit("sharedMemPerBlockOptin"),
        threads_per_multiprocessor=limit("maxThreadsPerMultiprocessor"),
    )


def _whole(value: object) -> int | None:
    """Return a number that fits into 64 bits, also where it is written as a text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _INT64 else None  # type: ignore[operator,return-value]
