"""A profile on its way into the store: chunk by chunk, seen by nobody before it is whole.

Chunks are written in short transactions under a row that readers do not see, and not in a single
long one: importing 20 M events takes minutes, and a study beside it waits 30 s at most for the
write lock. The last transaction gives the profile its name and makes it visible.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from gpuadvisor.columns import Array, checked
from gpuadvisor.domain.profile import Columns, Header
from gpuadvisor.storage.models import ProfileChunkRow, ProfileDeviceRow, ProfileRow
from gpuadvisor.storage.names import new_profile_name
from gpuadvisor.storage.open_database import OpenDatabase
from gpuadvisor.storage.profiles.chunks import CHUNK_ROWS, encode, encode_texts, text_chunks

TRANSACTION_BYTES = 4 << 20
"""Bytes of chunks in one transaction, which then holds the write lock for some 10 ms."""
TEXTS = "texts"
"""The name of the table, and of its column, under which the profile's texts are stored."""
LARGEST = 2**63 - 1
"""Largest integer of SQLite."""


@dataclass(frozen=True)
class Origin:
    """The file that a profile comes from, and how it is to be called."""

    path: str
    """Absolute; empty where the file is not kept."""
    size_bytes: int
    digest: str
    """SHA-256 of the file, in hexadecimal."""
    stem: str
    """Name of the profile where the user chose none; a number is added where it is taken."""
    name: str | None = None
    """Name that the user chose; None where he chose none."""
    ranks_of: str = ""
    """Absolute path of the folder whose traces are the ranks of one run; empty for a lone one."""


@dataclass(frozen=True)
class Kept:
    """The profile in which an import ended."""

    profile_id: int
    is_new: bool
    """False where the same file was stored meanwhile, by another process."""


class ProfileWriter:
    """A `Sink`; what it holds at a time is a chunk of each table and one transaction."""

    def __init__(self, database: OpenDatabase, profile_id: int, origin: Origin) -> None:
        self._database = database
        self._id = profile_id
        self._origin = origin
        self._waiting: dict[str, list[dict[str, Array]]] = defaultdict(list)
        self._rows: dict[str, int] = defaultdict(int)
        self._numbers: dict[tuple[str, str], int] = defaultdict(int)
        self._encoded: list[dict[str, Any]] = []
        self._encoded_bytes = 0

    def add(self, table: str, columns: Columns) -> None:
        """Take a batch; ValueError if it lacks a column, or has another length or type."""
        batch = checked(table, columns)
        count = len(next(iter(batch.values())))
        if not count:
            return
        self._waiting[table].append(batch)
        before = self._rows[table] % CHUNK_ROWS
        self._rows[table] += count
        if before + count >= CHUNK_ROWS:
            self._encode(table, whole=False)

    def finish(self, header: Header) -> Kept:
        """Store the rest and make the profile visible, unless its file is stored by now."""
        for table in list(self._waiting):
            self._encode(table, whole=True)
        for texts in text_chunks(header.texts):
            self._take(TEXTS, TEXTS, "utf-8", len(texts), encode_texts(texts))
        self._flush()
        with self._database.writing() as session:
            same = select(ProfileRow.id).filter_by(digest=self._origin.digest)
            if (other := session.scalar(same)) is not None:
                return Kept(other, is_new=False)
            self._publish(session, header)
        return Kept(self._id, is_new=True)

    def _encode(self, table: str, *, whole: bool) -> None:
        """Encode the waiting rows in chunks; without `whole`, the last ones wait for more."""
        batches = self._waiting.pop(table)
        together = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
        count = len(next(iter(together.values())))
        end = count if whole else count - count % CHUNK_ROWS
        for begin in range(0, end, CHUNK_ROWS):
            for name, values in together.items():
                column = values[begin : min(begin + CHUNK_ROWS, end)]
                self._take(table, name, column.dtype.name, len(column), encode(column))
        if end < count:
            # Copied, as the rest would keep all of it in memory.
            self._waiting[table] = [{n: column[end:].copy() for n, column in together.items()}]

    def _take(self, table: str, column: str, dtype: str, rows: int, data: bytes) -> None:
        self._encoded.append(
            {
                "profile_id": self._id,
                "table_name": table,
                "column_name": column,
                "number": self._numbers[table, column],
                "dtype": dtype,
                "row_count": rows,
                "data": data,
            }
        )
        self._numbers[table, column] += 1
        self._encoded_bytes += len(data)
        if self._encoded_bytes >= TRANSACTION_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._encoded:
            return
        with self._database.writing() as session:
            session.execute(insert(ProfileChunkRow), self._encoded)
        self._encoded = []
        self._encoded_bytes = 0

    def _publish(self, session: Session, header: Header) -> None:
        for place, device in enumerate(header.devices):
            described = {"name": device.name, "uuid": device.uuid, "limits": device}
            session.add(ProfileDeviceRow(profile_id=self._id, position=place, **described))
        row = session.get_one(ProfileRow, self._id)
        row.name = new_profile_name(session, self._origin.name, self._origin.stem)
        row.digest = self._origin.digest
        row.source, row.tool = header.source, header.tool
        row.begin_unix_ns = _whole(header.begin_unix_ns)
        row.first_ns = _whole(header.first_ns) or 0
        row.duration_ns = min(max(header.duration_ns, 0), LARGEST)
        row.rank, row.world_size = _whole(header.rank), _whole(header.world_size)
        row.processes = {str(number): name for number, name in header.processes.items()}
        row.facts, row.not_measured = dict(header.facts), dict(header.not_measured)
        row.warnings = header.warnings
        row.table_rows = dict(self._rows)
        row.imported = datetime.now(UTC).isoformat(timespec="seconds")


def _whole(value: int | None) -> int | None:
    """Return a number that a file claims, None where no honest file has one as large."""
    return value if value is not None and abs(value) <= LARGEST else None
