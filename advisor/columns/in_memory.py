"""A profile in memory: for traces that are read, asked and forgotten, and for tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from gpuadvisor.columns.batches import Array, checked, empty, wanted
from gpuadvisor.domain.profile import TIMES, Columns, Header


class MemoryProfile:
    """A `Sink` while it is read and a `Profile` once it is finished.

    The arrays that it is given are kept, not copied: a reader must not write to them later.
    """

    def __init__(self) -> None:
        self._header: Header | None = None
        self._rows: dict[str, int] = defaultdict(int)
        self._parts: dict[tuple[str, str], list[Array]] = defaultdict(list)

    def add(self, table: str, columns: Columns) -> None:
        """Take a batch; ValueError if it lacks a column, or has another length or type."""
        arrays = checked(table, columns)
        for name, array in arrays.items():
            self._parts[table, name].append(array)
        self._rows[table] += len(next(iter(arrays.values())))

    def finish(self, header: Header) -> None:
        """Take what is known of the profile as a whole, and let its times begin at 0."""
        if header.first_ns:
            for (_, name), parts in self._parts.items():
                if name in TIMES:
                    parts[:] = [_read_only(part - header.first_ns) for part in parts]
        self._header = replace(header, first_ns=0)

    @property
    def header(self) -> Header:
        """What is known of the profile as a whole; RuntimeError before `finish`."""
        if self._header is None:
            raise RuntimeError("the profile is not finished: it has no header yet")
        return self._header

    def rows(self, table: str) -> int:
        """Return how many rows a table has; 0 where it was not measured."""
        wanted(table, ())
        return self._rows.get(table, 0)

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        """Return whole columns, all of them unless named; read-only, and the same each time."""
        return {name: self._column(table, name) for name in wanted(table, names)}

    def _column(self, table: str, name: str) -> Array:
        parts = self._parts.get((table, name))
        if not parts:
            return empty(table, name)
        if len(parts) > 1:
            parts[:] = [_read_only(np.concatenate(parts))]
        return parts[0]


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array
