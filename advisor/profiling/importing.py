"""Trace files into the store: recognised, read once, kept once, with the progress on a terminal."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from gpuadvisor.domain.profile import Columns, Header, Sink
from gpuadvisor.errors import Interrupted, UsageError
from gpuadvisor.profiling.reading import TraceFile, known_reader, rank_in_name, stem
from gpuadvisor.storage.profiles.library import Profiles
from gpuadvisor.storage.profiles.stored import StoredProfile
from gpuadvisor.storage.profiles.writer import Origin

if TYPE_CHECKING:
    from rich.console import Console

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


DESCRIPTORS = Path("/proc/self/fd")


class ProgressBar:
    """A bar a file with the bytes that its reader has taken; nothing on a pipe.

    What it is told of is where an import can end early: it raises Interrupted once `cancelled`.
    An exception at any other moment would be lost in SQLite's callbacks, or leave rows behind.
    """

    def __init__(self, console: Console, cancelled: Callable[[], bool] = lambda: False) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._cancelled = cancelled
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TextColumn("{task.fields[rows]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", rows="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def hashed(self, path: Path, done_bytes: int, size_bytes: int) -> None:
        """Show how much of a file was looked at, to see whether it is stored."""
        self._go_on()
        what = f"Looking at {path.name}"
        self._bar.update(
            self._task, description=what, completed=done_bytes, total=size_bytes, rows=""
        )

    def read(self, path: Path, rows: int) -> None:
        """Show how much of a file was read into rows."""
        self._go_on()
        if self._bar.disable:
            return
        done = _position(path)
        self._bar.update(
            self._task,
            description=f"Reading {path.name}",
            completed=done,  # stays where the reader does not read by position, as with SQLite
            rows=f"{rows:,} rows",
        )

    def _go_on(self) -> None:
        if self._cancelled():
            raise Interrupted("interrupted")


def _position(path: Path) -> int | None:
    """Return how far this process has read in a file; None where the system does not tell.

    Readers take a path and no stream, as SQLite does; the kernel knows how far they are.
    """
    try:
        target = str(path.resolve())
        for link in DESCRIPTORS.iterdir():
            if str(link.readlink()) == target:
                told = DESCRIPTORS.with_name("fdinfo") / link.name
                return int(told.read_text("ascii").split(None, 2)[1]) or None
    except (OSError, ValueError, IndexError):
        pass
    return None
