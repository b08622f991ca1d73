"""A file's content in blocks, decompressed on the way, in memory that its size does not change."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard

from gpuadvisor.errors import UsageError

BLOCK_BYTES = 1 << 20
"""Size of a block of content. Events of larger blocks no longer fit into a core's cache: 8 MiB took
20 % longer than 1 MiB to decode and to turn into columns (216,092 events, 54 MB)."""
READ_BYTES = 1 << 18
"""Bytes of the compressed file that are read at once."""
WINDOW_BYTES = 1 << 27
"""What a zstd file may have us keep; `zstd --long` without a number needs as much."""
MAX_RATIO = 400
"""Content to compressed bytes. Traces reach 10 to 40; gzip can reach 1,032 and zstd far more."""
RATIO_COUNTS_FROM_BYTES = 1 << 28
"""Smaller contents may be as repetitive as they like."""

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class Content(Protocol):
    """Bytes that come one after the other."""

    damage: str
    """A sentence if they ended early, once they did."""

    def __iter__(self) -> Iterator[bytes]: ...


class Blocks:
    """The blocks of a file, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self.damage = ""
        """A sentence if decompression ended early; what came before it is as it was."""

    def __iter__(self) -> Iterator[bytes]:
        content = 0
        try:
            with self._path.open("rb") as file:
                for block in self._decompressed(file):
                    content += len(block)
                    if content > max(RATIO_COUNTS_FROM_BYTES, MAX_RATIO * self._read_bytes):
                        raise UsageError(
                            f"{self._path} unpacks to more than {MAX_RATIO} times its size, which "
                            "no trace does: it was not read."
                        )
                    yield block
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"{self._path} cannot be read: {why}.") from error

    def _decompressed(self, file: BinaryIO) -> Iterator[bytes]:
        head = file.read(4)
        file.seek(0)
        if head[:2] == _GZIP:
            return self._gzip(file)
        if head == _ZSTD:
            return self._zstd(file)
        return self._plain(file)

    def _plain(self, file: BinaryIO) -> Iterator[bytes]:
        while block := file.read(BLOCK_BYTES):
            self._read_bytes += len(block)
            yield block

    def _gzip(self, file: BinaryIO) -> Iterator[bytes]:
        unpacker = zlib.decompressobj(wbits=31)
        packed = b""
        while True:
            packed = packed or self._more(file)
            if not packed:
                if not unpacker.eof:
                    self.damage = "The gzip file ends early."
                return
            try:
                block = unpacker.decompress(packed, BLOCK_BYTES)
            except zlib.error:
                self.damage = "The gzip file is damaged."
                return
            packed = unpacker.unconsumed_tail
            if unpacker.eof:
                packed = unpacker.unused_data or self._more(file)
                if not packed.startswith(_GZIP[:1]):  # padding, as of tapes and `dd`
                    packed = b""
                else:
                    unpacker = zlib.decompressobj(wbits=31)
            if block:
                yield block
            if unpacker.eof:
                return

    def _zstd(self, file: BinaryIO) -> Iterator[bytes]:
        unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES)
        reader = unpacker.stream_reader(file, read_size=READ_BYTES, read_across_frames=True)
        while True:
            try:
                block = reader.read(BLOCK_BYTES)
            except zstandard.ZstdError:
                self.damage = "The zstd file is damaged, or needs a window of more than 128 MiB."
                return
            self._read_bytes = file.tell()
            if not block:
                return
            yield block

    def _more(self, file: BinaryIO) -> bytes:
        packed = file.read(READ_BYTES)
        self._read_bytes += len(packed)
        return packed
