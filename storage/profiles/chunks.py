"""Parts of columns and lists of texts as blobs: small, exact, and known when damaged.

A blob is one Zstandard frame with a checksum. In a column's frame stand a coding, a width, two
numbers and the values, each less the smallest one, in as few bytes as the largest one needs; the
first bytes of all values come first, then all second ones, which are alike and so compress. Times
and correlations are coded by their differences. All is little-endian and modulo 2^64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from gpuadvisor.columns import PIECE_ROWS, Array

CHUNK_ROWS = PIECE_ROWS
"""Rows of a chunk, and of all chunks of a column but its last."""
CHUNK_TEXT_BYTES = 4 << 20
"""Bytes of the texts in one chunk, unless a single one is longer."""
MOST_TEXT_BYTES = 1 << 30
"""Most bytes that a chunk of texts may claim: SQLite's largest blob (sqlite.org/limits.html)."""
LEVEL = 1
"""Compression level of Zstandard.

With 3, encoding takes 22 to 42 % longer for 5 to 7 % less, and with 6 37 to 105 % for 8 to 12 %
less (three traces of 76 k to 216 k events, V100 and A100).
"""

PLAIN, DELTA, FLOATS = range(3)
HEAD = struct.Struct("<BBqq")
"""Head of a chunk: coding, bytes a value, smallest value or difference, first value."""
DELTA_GAIN = 8
"""Differences are coded where their mean size is that many times below the values' range."""

_LENGTH = np.dtype("<u4")
_Residuals = npt.NDArray[np.uint64]


def encode(column: Array) -> bytes:
    """Return a column's values, at least one, as a blob."""
    if column.dtype.kind == "f":
        bits = column.astype("<f8", copy=False).view(np.uint64)
        return _compressed(HEAD.pack(FLOATS, 8, 0, 0), _narrow(bits, 8))
    values = column.astype(np.int64, copy=False)
    lowest, highest = int(values.min()), int(values.max())
    plain = HEAD.pack(PLAIN, _width(highest - lowest), lowest, 0)
    if len(values) > 1 and highest > lowest:
        differences = np.diff(values)
        if np.abs(differences.astype(np.float64)).mean() * DELTA_GAIN < highest - lowest:
            return _delta(differences, int(values[0]))
    return _compressed(plain, _less(values, lowest, highest))


def decode(blob: bytes, dtype: str, rows: int) -> Array:
    """Return what `encode` was given; ValueError if it cannot have made this blob."""
    data = _decompressed(blob, HEAD.size + 8 * rows)
    if len(data) < HEAD.size:
        raise ValueError("a chunk is too short")
    coding, width, lowest, first = HEAD.unpack_from(data)
    count = rows - 1 if coding == DELTA else rows
    if len(data) != HEAD.size + width * count or width not in (0, 1, 2, 4, 8) or coding > FLOATS:
        raise ValueError("a chunk has another length than its rows")
    residuals = _widen(data, width, count)
    if coding == FLOATS:
        return residuals.view(np.float64).astype(dtype, copy=False)
    residuals += np.uint64(lowest % 2**64)
    if coding == PLAIN:
        return residuals.view(np.int64).astype(dtype, copy=False)
    values = np.empty(rows, np.uint64)
    values[0] = first % 2**64
    np.cumsum(residuals, out=values[1:])
    values[1:] += values[0]
    return values.view(np.int64).astype(dtype, copy=False)


def encode_texts(texts: Sequence[str]) -> bytes:
    """Return texts as a blob; lone surrogates, from names that are not UTF-8, stay as they are."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return _compressed(np.array([len(each) for each in encoded], _LENGTH).tobytes(), *encoded)


def decode_texts(blob: bytes, count: int) -> list[str]:
    """Return what `encode_texts` was given; ValueError if it cannot have made this blob."""
    data = _decompressed(blob, MOST_TEXT_BYTES)
    begin = count * _LENGTH.itemsize
    if len(data) < begin:
        raise ValueError("a chunk has fewer texts than its rows")
    ends = np.cumsum(np.frombuffer(data, _LENGTH, count), dtype=np.int64) + begin
    if count and int(ends[-1]) != len(data):
        raise ValueError("a chunk's texts have another length than it says")
    found = []
    for end in ends.tolist():
        found.append(data[begin:end].decode("utf-8", "surrogatepass"))
        begin = end
    return found


def text_chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split texts so that each chunk is short enough to be read for one of them."""
    begin = size = 0
    for place, text in enumerate(texts):
        if place > begin and (size > CHUNK_TEXT_BYTES or place - begin == CHUNK_ROWS):
            yield texts[begin:place]
            begin, size = place, 0
        size += len(text)
    if begin < len(texts):
        yield texts[begin:]


def _delta(differences: npt.NDArray[np.int64], first: int) -> bytes:
    lowest, highest = int(differences.min()), int(differences.max())
    head = HEAD.pack(DELTA, _width(highest - lowest), lowest, first)
    return _compressed(head, _less(differences, lowest, highest))


def _less(values: npt.NDArray[np.int64], lowest: int, highest: int) -> bytes:
    residuals = values.view(np.uint64) - np.uint64(lowest % 2**64)
    return _narrow(residuals, _width(highest - lowest))


def _width(largest: int) -> int:
    return next(width for width in (0, 1, 2, 4, 8) if largest < 1 << 8 * width)


def _narrow(residuals: _Residuals, width: int) -> bytes:
    """Return the values in `width` bytes each, the first bytes of all of them first."""
    if not width:
        return b""
    little = residuals.astype(f"<u{width}")
    return little.view(np.uint8).reshape(-1, width).T.tobytes()


def _widen(data: bytes, width: int, count: int) -> _Residuals:
    if not width:
        return np.zeros(count, np.uint64)
    planes = np.frombuffer(data, np.uint8, offset=HEAD.size).reshape(width, count)
    return np.ascontiguousarray(planes.T).view(f"<u{width}").reshape(count).astype(np.uint64)


def _compressed(*parts: Any) -> bytes:
    compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
    return compressor.compress(b"".join(parts))


def _decompressed(blob: bytes, most: int) -> bytes:
    try:
        size = zstandard.frame_content_size(blob)
        if not 0 <= size <= most:
            raise ValueError(f"a chunk claims to be {size} bytes long")
        return zstandard.ZstdDecompressor().decompress(blob)
    except zstandard.ZstdError as error:
        raise ValueError(f"a chunk cannot be decompressed ({error})") from error
