"""A trace file into the store: recognised, read once, kept once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gpuadvisor.domain.profile import Columns, Header, Sink
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.readers import known_reader
from gpuadvisor.profiling.trace_files import TraceFile, rank_in_name, stem
from gpuadvisor.storage.profiles.library import Profiles
from gpuadvisor.storage.profiles.records import Origin
from gpuadvisor.storage.profiles.stored import StoredProfile

BLOCK_BYTES = 1 << 20


class Progress(Protocol):
    """Is told how far the reading of a file is."""

    def hashed(self, path: Path, done_bytes: int, size_bytes: int) -> None: ...

    def read(self, path: Path, rows: int) -> None: ...


class Silence:
    """Says nothing."""

    def hashed(self, path: Path, done_bytes: int, size_bytes: int) -> None: ...

    def read(self, path: Path, rows: int) -> None: ...


@dataclass(frozen=True)
class Imported:
    """A file that is in the store now."""

    profile: StoredProfile
    is_new: bool
    """False where it was stored before."""


def import_file(
    profiles: Profiles,
    path: Path,
    name: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Store the profile in one file, unless the store has that file; an AdvisorError says why not.

    Without a name it is called as the file, with a number where that is taken.
    """
    absolute = path.absolute()
    return import_trace(profiles, TraceFile(absolute, stem(absolute)), name, progress)


def import_trace(
    profiles: Profiles,
    file: TraceFile,
    name: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Store one file, as one of the ranks of its folder where it has one.

    A file that was stored alone joins them.
    """
    progress = progress or Silence()
    try:
        reader = known_reader(file.path)
        before = _state(file.path)
        digest = _digest(file.path, progress.hashed)
        if (known := profiles.with_digest(digest)) is not None:
            return Imported(_joined(profiles, known, file), is_new=False)
        if name is not None:
            profiles.check_free(name)  # before minutes of reading
        path = "" if file.is_temporary else str(file.path)
        origin = Origin(path, before[0], digest, file.stem, name, file.ranks_of)
        with profiles.writer(origin) as writer:
            header = reader.read(file.path, _Watched(writer, file.path, progress.read))
            if _state(file.path) != before:
                raise UsageError(
                    f"{file.path} was changed while it was read: import it again when it is "
                    "complete."
                )
            kept = writer.finish(_with_rank(header, file.path))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"{file.path} cannot be read ({reason}): check its permissions."
        ) from error
    return Imported(profiles.get(kept.profile_id), kept.is_new)


def _joined(profiles: Profiles, known: StoredProfile, file: TraceFile) -> StoredProfile:
    if not file.ranks_of or known.record.ranks_of:
        return known
    profiles.join(known.record.id, file.ranks_of, rank_in_name(file.path))
    return profiles.get(known.record.id)


class _Watched:
    """A sink that tells of the rows that go through it."""

    def __init__(self, sink: Sink, path: Path, tell: Callable[[Path, int], None]) -> None:
        self._sink = sink
        self._path = path
        self._tell = tell
        self._rows = 0

    def add(self, table: str, columns: Columns) -> None:
        self._sink.add(table, columns)
        self._rows += len(next(iter(columns.values())))
        self._tell(self._path, self._rows)


def _with_rank(header: Header, path: Path) -> Header:
    return header if header.rank is not None else replace(header, rank=rank_in_name(path))


def _state(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file does: size in bytes, time in nanoseconds, number."""
    told = path.stat()
    return told.st_size, told.st_mtime_ns, told.st_ino


def _digest(path: Path, tell: Callable[[Path, int, int], None]) -> str:
    """Return the SHA-256 of a file.

    It is a pass of its own, at 0.4 to 2 GB/s: it tells that a file is stored already before
    minutes are spent on reading it.
    """
    found = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while block := file.read(BLOCK_BYTES):
            found.update(block)
            done += len(block)
            tell(path, done, size)
    return found.hexdigest()
