"""Which reader a file is for, told by its content; only a `.nsys-rep` has no mark to go by."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import BinaryIO, Protocol

from gpuadvisor.domain.profile import Header, Sink
from gpuadvisor.errors import UsageError

HEAD_BYTES = 4096
"""Of a file, decompressed, by which readers recognise it."""
GZIP, ZSTANDARD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
COMPRESSED_BYTES = 1 << 16
"""That are looked at for the head: Deflate shrinks nothing below a thousandth (RFC 1951)."""


class Reader(Protocol):
    """What such a module provides."""

    def read(self, path: Path, sink: Sink) -> Header:
        """Read a file into a sink; an AdvisorError says in a sentence why it cannot be used."""
        ...


def reader_of(path: Path) -> Reader | None:
    """Return the reader for this file, None if it is for none; OSError where it cannot be read.

    UsageError where only traces of the torch profiler may be compressed, and it is another one.
    """
    from gpuadvisor.collectors.kineto import reader as kineto
    from gpuadvisor.collectors.nsight import compute_csv, compute_report, rep, systems

    head, packed = head_of(path)
    if kineto.recognises(head):
        return kineto
    for reader in (systems, compute_csv, compute_report):
        if reader.recognises(head):
            if packed:
                raise UsageError(f"{path} is compressed: unpack it first, with `{packed}`.")
            return reader
    return rep if rep.recognises(path.name) else None


def known_reader(path: Path) -> Reader:
    """Return the reader for this file; UsageError where there is none."""
    if not path.is_file():
        raise UsageError(f"{path} is no file: name a trace, or a folder of traces.")
    reader = reader_of(path)
    if reader is None:
        raise UsageError(
            f"{path} is no profile that gpuadvisor knows: it reads traces of the torch profiler "
            "(.json, .gz, .zst), Nsight Systems (.sqlite, .nsys-rep) and Nsight Compute (.csv, "
            ".ncu-rep)."
        )
    return reader


def head_of(path: Path) -> tuple[bytes, str]:
    """Return the begin of a file, unpacked, and the program that unpacks it; OSError else."""
    with path.open("rb") as file:
        start = file.read(COMPRESSED_BYTES)
        if start.startswith(GZIP):
            return _inflated(start), "gunzip"
        if start.startswith(ZSTANDARD):
            file.seek(0)
            return _from_zstandard(file), "unzstd"
        return start[:HEAD_BYTES], ""


def _inflated(start: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(start, HEAD_BYTES)
    except zlib.error:
        return b""


def _from_zstandard(file: BinaryIO) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(file, closefd=False) as stream:
            return stream.read(HEAD_BYTES)
    except zstandard.ZstdError:
        return b""
