"""Reads traces of the torch profiler: `.json`, gzip or zstd, however large, in bounded memory.

    header = read(Path("trace.json.gz"), sink)

Times count from the earliest row of the profile once the sink takes `header.first_ns` off them;
until then from the first event of the file.
"""

from __future__ import annotations

from pathlib import Path

from gpuadvisor.collectors.kineto.batch import Output
from gpuadvisor.collectors.kineto.blocks import Blocks, Content
from gpuadvisor.collectors.kineto.categories import Tables
from gpuadvisor.collectors.kineto.document import ENOUGH_BYTES, Document
from gpuadvisor.collectors.kineto.facts import Facts
from gpuadvisor.collectors.kineto.missing import not_measured
from gpuadvisor.collectors.kineto.window import Window
from gpuadvisor.domain.profile import MAX_WARNINGS, Header, Sink
from gpuadvisor.errors import UsageError

SINCE_1970_NS = 10**18
"""Older traces count from 1970, and later than 2001; newer ones from about the machine's start."""

_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


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
    output, facts = Output(sink), Facts()
    tables = Tables(output)
    document = Document(Window(blocks, str(path)), tables, facts.take, enough_bytes)
    if not document.walk():
        raise UsageError(f"{path} is not JSON, as the torch profiler's traces are.")
    if not (any(output.rows.values()) or facts.is_kineto):
        raise UsageError(
            f"{path} is not a trace of the torch profiler: it has no event of a category that "
            "PyTorch writes."
        )
    return _header(output, tables, facts, _warnings(output, tables, facts, blocks, document))


def _header(output: Output, tables: Tables, facts: Facts, warnings: tuple[str, ...]) -> Header:
    return Header(
        source="kineto",
        tool="torch.profiler (Kineto)",
        begin_unix_ns=_begin_unix_ns(output, facts),
        first_ns=output.clock.first_ns,
        duration_ns=output.clock.duration_ns,
        devices=facts.devices,
        processes=tables.processes.names(),
        rank=facts.number("rank"),
        world_size=facts.number("world_size"),
        facts=facts.all(),
        not_measured=not_measured(output, tables.has_python),
        warnings=warnings,
        texts=output.texts.all(),
    )


def _begin_unix_ns(output: Output, facts: Facts) -> int | None:
    first, base = output.clock.first_absolute_ns, facts.number("baseTimeNanoseconds")
    if first is None:
        return None
    if base is not None:
        return base + first
    return first if first > SINCE_1970_NS else None


def _warnings(
    output: Output, tables: Tables, facts: Facts, blocks: Content, document: Document
) -> tuple[str, ...]:
    found = []
    if blocks.damage:
        found.append(f"{blocks.damage} What came before that was read.")
    if document.broken_at is not None:
        found.append(
            f"The JSON ends early or breaks at byte {document.broken_at:,}: the "
            f"{tables.events:,} events before that were read."
        )
    if not tables.events:
        found.append("The trace has no events.")
    if tables.unreadable:
        found.append(f"{_count(tables.unreadable, 'element')} of the trace could not be read.")
    if output.unfit:
        found.append(
            f"{_count(output.unfit, 'event')} with missing, negative or wrong values were left out."
        )
    if output.texts.left_out:
        found.append(f"{_count(output.texts.left_out, 'row')} lost a text: there are too many.")
    if facts.unreadable:
        found.append(f"Not readable beside the events: {', '.join(facts.unreadable[:5])}.")
    return tuple(found[:MAX_WARNINGS])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
