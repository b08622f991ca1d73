"""A profile in memory whose columns are packed as in the store once there are many rows of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gpuadvisor.columns import Array, MemoryProfile, pieces, wanted
from gpuadvisor.domain.profile import TABLES, TIMES, Columns, Header
from gpuadvisor.storage.profiles.chunks import CHUNK_ROWS, decode, encode


@dataclass(frozen=True)
class _Chunk:
    dtype: str
    rows: int
    data: bytes


class PackedProfile(MemoryProfile):
    """A `MemoryProfile` that holds at most so many rows as they are, and more of them packed.

    For a trace that is read without storing it and that may be of any size: an event takes some 6
    bytes instead of some 70. Whole columns are unpacked when they are asked for, and stay so.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._chunks: dict[tuple[str, str], list[_Chunk]] = defaultdict(list)
        self._whole: dict[tuple[str, str], Array] = {}
        self._first_ns = 0

    def add(self, table: str, columns: Columns) -> None:
        """Take a batch; ValueError if it lacks a column, or has another length or type."""
        super().add(table, columns)
        if self._chunks:
            self._pack(table)
        elif sum(self._rows.values()) > self._most:
            for each in TABLES:
                self._pack(each)

    def finish(self, header: Header) -> None:
        """Take what is known of the profile as a whole, and let its times begin at 0."""
        if self._chunks:
            self._first_ns = header.first_ns
            for table in TABLES:
                self._pack(table, last=True)
        super().finish(header)

    def batches(
        self, table: str, names: Iterable[str], kept: Array | None = None
    ) -> Iterator[Columns]:
        """Yield columns in pieces, of those rows only that are kept where that is told."""
        if not self._chunks:
            yield from super().batches(table, names, kept)
            return
        asked = wanted(table, names)
        for rows in pieces(self.rows(table), kept):
            chosen = ... if kept is None else kept[rows]
            number = rows.start // CHUNK_ROWS
            read = {name: self._unpacked(name, self._chunks[table, name][number]) for name in asked}
            yield {name: column[chosen] for name, column in read.items()}

    def _column(self, table: str, name: str) -> Array:
        key = table, name
        if key not in self._chunks:
            return super()._column(table, name)
        if key not in self._whole:
            parts = [self._unpacked(name, chunk) for chunk in self._chunks[key]]
            self._whole[key] = np.concatenate(parts).astype(TABLES[table][name], copy=False)
            self._whole[key].flags.writeable = False
        return self._whole[key]

    def _pack(self, table: str, *, last: bool = False) -> None:
        """Pack the rows that wait, in whole chunks but for the last ones of all."""
        waiting = sum(map(len, self._parts.get((table, next(iter(TABLES[table]))), ())))
        if not waiting or (waiting < CHUNK_ROWS and not last):
            return
        end = waiting if last else waiting - waiting % CHUNK_ROWS
        for name in TABLES[table]:
            together = np.concatenate(self._parts.pop((table, name)))
            for rows in pieces(end):
                column = together[rows]
                self._chunks[table, name].append(
                    _Chunk(column.dtype.name, len(column), encode(column))
                )
            if end < waiting:
                # Copied, as the rest would keep all of it in memory.
                self._parts[table, name].append(together[end:].copy())

    def _unpacked(self, name: str, chunk: _Chunk) -> Array:
        values = decode(chunk.data, chunk.dtype, chunk.rows)
        if name in TIMES and self._first_ns:
            values -= self._first_ns  # known only once the file had been read
        return values
