"""A stored profile, whose columns are read when they are asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate
from typing import overload

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gpuadvisor.columns import Array, empty, pieces, wanted
from gpuadvisor.domain.profile import TABLES, TIMES, UNKNOWN, Columns, DeviceLimits, Header
from gpuadvisor.errors import StoreError
from gpuadvisor.storage.models import (
    ProfileChunkRow,
    ProfileDeviceRow,
    ProfileRecord,
    ProfileRow,
    profile_record,
)
from gpuadvisor.storage.open_database import OpenDatabase
from gpuadvisor.storage.profiles.chunks import CHUNK_ROWS, decode, decode_texts
from gpuadvisor.storage.profiles.writer import TEXTS


class StoredProfile:
    """A `Profile` in the database. Columns and texts that were read stay in memory.

    It opens the file for each question and needs no closing. Every method raises StoreError
    where the file fails, is damaged, or the profile has been removed.
    """

    def __init__(self, database: OpenDatabase, profile_id: int, name: str) -> None:
        self._database = database
        self._id = profile_id
        self._name = name
        self._columns: dict[tuple[str, str], Array] = {}

    @cached_property
    def record(self) -> ProfileRecord:
        """The profile as a list shows it."""
        return self._described[0]

    @cached_property
    def header(self) -> Header:
        """What is known of the profile as a whole; its texts are read when they are asked for."""
        return self._described[1]

    @property
    def _first_ns(self) -> int:
        return self._described[2]

    def rows(self, table: str) -> int:
        """Return how many rows a table has; 0 where it was not measured."""
        wanted(table, ())
        return self.record.table_rows.get(table, 0)

    def columns(self, table: str, names: Iterable[str] | None = None) -> Columns:
        """Return whole columns, all of them unless named; read-only, and the same each time."""
        asked = wanted(table, names)
        count = self.rows(table)
        if missing := [name for name in asked if (table, name) not in self._columns]:
            with self._undamaged(), self._database.reading() as session:
                for name in missing:
                    array = self._read(session, table, name, count)
                    array.flags.writeable = False
                    self._columns[table, name] = array
        return {name: self._columns[table, name] for name in asked}

    def batches(
        self, table: str, names: Iterable[str], kept: Array | None = None
    ) -> Iterator[Columns]:
        """Yield columns chunk by chunk, of those rows only that are kept where that is told."""
        asked = wanted(table, names)
        with self._undamaged(), self._database.reading() as session:
            for rows in pieces(self.rows(table), kept):
                chosen = ... if kept is None else kept[rows]
                read = {name: self._piece(session, table, name, rows) for name in asked}
                yield {name: column[chosen] for name, column in read.items()}

    @cached_property
    def _described(self) -> tuple[ProfileRecord, Header, int]:
        with self._undamaged(), self._database.reading() as session:
            row = session.get(ProfileRow, self._id)
            if row is None or row.imported is None:
                raise self._gone()
            limits = select(ProfileDeviceRow.limits).filter_by(profile_id=self._id)
            devices = session.scalars(limits.order_by(ProfileDeviceRow.position)).all()
            return profile_record(row), self._header(row, tuple(devices)), row.first_ns

    def _header(self, row: ProfileRow, devices: tuple[DeviceLimits, ...]) -> Header:
        return Header(
            source=row.source,
            tool=row.tool,
            begin_unix_ns=row.begin_unix_ns,
            duration_ns=row.duration_ns,
            devices=devices,
            processes={int(number): name for number, name in row.processes.items()},
            rank=row.rank,
            world_size=row.world_size,
            facts=dict(row.facts),
            not_measured=dict(row.not_measured),
            warnings=row.warnings,
            texts=StoredTexts(self),
        )

    def _read(self, session: Session, table: str, name: str, count: int) -> Array:
        if not count:
            return empty(table, name)
        chunks = self._chunks(session, table, name)
        parts = [decode(data, dtype, rows) for dtype, rows, data in chunks]
        if not parts:
            return self._unknown(session, table, name, count)
        whole = self._typed(table, name, np.concatenate(parts))
        if len(whole) != count:
            raise ValueError(f"{table}.{name} has {len(whole)} rows of {count}")
        return whole

    def _piece(self, session: Session, table: str, name: str, rows: slice) -> Array:
        """Return the rows of one chunk."""
        number, count = rows.start // CHUNK_ROWS, rows.stop - rows.start
        chunk = ProfileChunkRow
        asked = select(chunk.dtype, chunk.row_count, chunk.data).filter_by(
            profile_id=self._id, table_name=table, column_name=name, number=number
        )
        found = session.execute(asked).one_or_none()
        if found is None:
            if next(self._chunks(session, table, name), None) is not None:
                raise ValueError(f"chunk {number} of {table}.{name} is missing")
            return self._unknown(session, table, name, self.rows(table))[rows]
        if found.row_count != count:
            raise ValueError(f"chunk {number} of {table}.{name} has {found.row_count} rows")
        return self._typed(table, name, decode(found.data, found.dtype, count))

    def _typed(self, table: str, name: str, values: Array) -> Array:
        whole = values.astype(TABLES[table][name], casting="safe", copy=False)
        if name in TIMES:
            whole -= self._first_ns  # known only once the file had been read
        return whole

    def _unknown(self, session: Session, table: str, name: str, count: int) -> Array:
        """Return a column that gpuadvisor did not have yet when this profile was stored."""
        if session.get(ProfileRow, self._id) is None:
            raise self._gone()
        of_others = select(func.sum(ProfileChunkRow.row_count)).filter_by(
            profile_id=self._id, table_name=table
        )
        others = session.scalars(of_others.group_by(ProfileChunkRow.column_name)).all()
        if set(others) != {count}:
            raise ValueError(f"the columns of {table} have {set(others)} rows, not {count}")
        kind = np.dtype(TABLES[table][name])
        return np.full(count, np.nan if kind.kind == "f" else UNKNOWN, kind)

    def _chunks(self, session: Session, table: str, name: str) -> Iterator[tuple[str, int, bytes]]:
        """Yield type, rows and blob of each chunk in order; ValueError if one is missing."""
        chunk = ProfileChunkRow
        asked = (
            select(chunk.number, chunk.dtype, chunk.row_count, chunk.data)
            .filter_by(profile_id=self._id, table_name=table, column_name=name)
            .order_by(chunk.number)
        )
        for place, (number, dtype, rows, data) in enumerate(session.execute(asked)):
            if number != place or not 0 < rows <= CHUNK_ROWS:
                raise ValueError(f"chunk {place} of {table}.{name} is missing or too long")
            yield dtype, rows, data

    def read_texts(self) -> list[list[str]]:
        """Return the profile's texts by chunk."""
        with self._undamaged(), self._database.reading() as session:
            chunks = self._chunks(session, TEXTS, TEXTS)
            return [decode_texts(data, count) for _, count, data in chunks]

    def _gone(self) -> StoreError:
        return StoreError(
            f"Profile {self._name} is not in {self._database.path} any more: it has been removed "
            "since it was opened."
        )

    @contextmanager
    def _undamaged(self) -> Iterator[None]:
        """Turn what damaged rows and blobs raise into a StoreError."""
        try:
            yield
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"Profile {self._name} in {self._database.path} is damaged ({error}): remove it "
                f"with `gpuadvisor import --remove {self._name}` and import its file again."
            ) from error


class StoredTexts(Sequence[str]):
    """The texts of a stored profile, read all together when the first one is asked for."""

    def __init__(self, profile: StoredProfile) -> None:
        self._profile = profile

    @cached_property
    def _chunks(self) -> list[list[str]]:
        return self._profile.read_texts()

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self._chunks)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError(place)
        chunk = bisect_right(self._ends, place)
        return self._chunks[chunk][place - (self._ends[chunk - 1] if chunk else 0)]
