"""The numpy columns of a profile, shared by the store and the facts; below both.

What a reader gives a sink is held to what it promised: all columns, their types, one length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpuadvisor.domain.profile import TABLES, TIMES, Columns, Header

Array: TypeAlias = npt.NDArray[Any]

PIECE_ROWS = 1 << 16
"""Rows of a piece of a column: 512 KiB of eight bytes each, which stays in a processor's cache."""


def checked(table: str, columns: Columns) -> dict[str, Array]:
    """Return the batch's arrays in the types of `TABLES`, read-only and in its order.

    Values are converted only where none of them changes. ValueError says what is wrong, which is
    a bug of the reader and not of the file that it reads.
    """
    types = _types(table)
    if missing := types.keys() - columns.keys():
        raise ValueError(f"a batch of {table} lacks {', '.join(sorted(missing))}")
    if strange := columns.keys() - types.keys():
        raise ValueError(f"a batch of {table} has columns unknown to it: {sorted(strange)}")
    arrays = {name: _converted(table, name, columns[name], types[name]) for name in types}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"a batch of {table} has columns of different lengths: {lengths}")
    return arrays


def wanted(table: str, names: Iterable[str] | None) -> list[str]:
    """Return the columns that are asked for, all of them where None; KeyError for unknown ones."""
    types = _types(table)
    if names is None:
        return list(types)
    asked = list(names)
    if unknown := [name for name in asked if name not in types]:
        raise KeyError(f"{table} has no column {unknown[0]}: it has {', '.join(types)}")
    return asked


def empty(table: str, name: str, rows: int = 0) -> Array:
    """Return a column without rows, or with so many that are still to be filled."""
    return np.empty(rows, TABLES[table][name])


def pieces(count: int, kept: Array | None = None) -> Iterator[slice]:
    """Yield the places of rows piece by piece, without pieces of which no row is kept."""
    for start in range(0, count, PIECE_ROWS):
        rows = slice(start, min(start + PIECE_ROWS, count))
        if kept is None or kept[rows].any():
            yield rows


def _types(table: str) -> Mapping[str, str]:
    if table not in TABLES:
        raise ValueError(f"profiles have no table {table}: they have {', '.join(TABLES)}")
    return TABLES[table]


def _converted(table: str, name: str, values: Any, wanted_type: str) -> Array:
    given = np.asarray(values)
    kind = np.dtype(wanted_type)
    if given.ndim != 1:
        raise ValueError(f"{table}.{name} has {given.ndim} dimensions, and one is needed")
    if given.dtype != kind:
        given = _without_change(f"{table}.{name}", given, kind)
    view = given.view()
    view.flags.writeable = False  # what is asked for twice is the same array
    return view


def _without_change(what: str, given: Array, kind: np.dtype[Any]) -> Array:
    if given.size and given.dtype.kind not in ("biuf" if kind.kind == "f" else "biu"):
        raise ValueError(f"{what} has values of type {given.dtype}, and {kind} is needed")
    if kind.kind == "i" and given.size:
        limits = np.iinfo(kind)
        lowest, highest = int(given.min()), int(given.max())
        if lowest < limits.min or highest > limits.max:
            raise ValueError(f"{what} has values from {lowest} to {highest}, beyond {kind}")
    return given.astype(kind)


class MemoryProfile:
    """A profile in memory: a `Sink` while it is read and a `Profile` once it is finished.

    It is for traces that are read, asked and forgotten, and for tests. The arrays that it is given
    are kept, not copied: a reader must not write to them later.
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

    def batches(
        self, table: str, names: Iterable[str], kept: Array | None = None
    ) -> Iterator[Columns]:
        """Yield columns in pieces, of those rows only that are kept where that is told."""
        columns = self.columns(table, names)
        for rows in pieces(self.rows(table), kept):
            chosen = ... if kept is None else kept[rows]
            yield {name: column[rows][chosen] for name, column in columns.items()}

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
