"""Trace files into the store: recognised, read once, kept once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gpuadvisor.domain.profile import Columns, Header, Sink
from gpuadvisor.errors import AdvisorError, Interrupted, StoreError, UsageError
from gpuadvisor.profiling.reading import TraceFile, known_reader, rank_in_name, stem, trace_files
from gpuadvisor.storage.profiles.library import Profiles, open_profiles
from gpuadvisor.storage.profiles.stored import StoredProfile
from gpuadvisor.storage.profiles.writer import Origin

BLOCK_BYTES = 1 << 20


class Progress(Protocol):
    """Shows how far the reading of a file is."""

    def hashed(self, path: Path, done_bytes: int, size_bytes: int) -> None: ...

    def read(self, path: Path, rows: int) -> None: ...


class Silence:
    """Shows no progress."""

    def hashed(self, path: Path, done_bytes: int, size_bytes: int) -> None: ...

    def read(self, path: Path, rows: int) -> None: ...


@dataclass(frozen=True)
class Imported:
    """A file that is in the store now."""

    profile: StoredProfile
    is_new: bool
    """False where it was stored before."""


@dataclass(frozen=True)
class ImportOptions:
    """Which files to store, and how to call their profiles."""

    files: Sequence[Path]
    """Traces, or folders of traces, one for each rank of a run."""
    name: str | None = None
    """The name of the only profile; with several files what all names begin with."""


def import_files(
    profiles: Profiles,
    options: ImportOptions,
    progress: Callable[[], AbstractContextManager[Progress]],
    on_imported: Callable[[Imported], None],
    on_failure: Callable[[Path, Exception, str], None],
) -> None:
    """Store all files, the others too where one cannot be read.

    `on_imported` takes each as soon as it is stored; `on_failure` the path of one that cannot be,
    its error, and a sentence that says why. StoreError and Interrupted end it.
    """
    files = trace_files(options.files)
    for file in files:
        name, file = _with_name(file, options.name, alone=len(files) == 1)
        try:
            with progress() as shown:
                imported = import_trace(profiles, file, name, shown)
            on_imported(imported)
        except (Interrupted, StoreError, BrokenPipeError):
            raise  # the store would fail for the other files as well
        except Exception as error:  # the others go on even where it is our fault
            on_failure(file.path, error, _sentence(file.path, error))


def import_recorded(trace: Path, stem: str, name: str | None, *, is_temporary: bool) -> Imported:
    """Store a trace that was recorded just now; without a name it is called `stem`."""
    file = TraceFile(trace.absolute(), stem, is_temporary=is_temporary)
    return import_trace(open_profiles(), file, name)


def check_name(name: str) -> None:
    """UsageError if no profile can get this name."""
    open_profiles().check_free(name)


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


def _with_name(file: TraceFile, name: str | None, *, alone: bool) -> tuple[str | None, TraceFile]:
    """Return the profile's name, None where only its begin is given, which the file then has."""
    if name is None or alone:
        return name, file
    return None, replace(file, stem=f"{name}-{stem(file.path)}")


def _sentence(path: Path, error: Exception) -> str:
    """Return why a file could not be stored."""
    if isinstance(error, AdvisorError):
        return str(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"{path}: this is a bug in gpuadvisor ({what}): import it again with --debug and report "
        "the output"
    )


def _joined(profiles: Profiles, known: StoredProfile, file: TraceFile) -> StoredProfile:
    if not file.ranks_of or known.record.ranks_of:
        return known
    profiles.join(known.record.id, file.ranks_of, rank_in_name(file.path))
    return profiles.get(known.record.id)


class _Watched:
    """A sink that reports how many rows went through it."""

    def __init__(self, sink: Sink, path: Path, on_progress: Callable[[Path, int], None]) -> None:
        self._sink = sink
        self._path = path
        self._on_progress = on_progress
        self._rows = 0

    def add(self, table: str, columns: Columns) -> None:
        self._sink.add(table, columns)
        self._rows += len(next(iter(columns.values())))
        self._on_progress(self._path, self._rows)


def _with_rank(header: Header, path: Path) -> Header:
    return header if header.rank is not None else replace(header, rank=rank_in_name(path))


def _state(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file does: size in bytes, time in nanoseconds, number."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _digest(path: Path, on_progress: Callable[[Path, int, int], None]) -> str:
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
            on_progress(path, done, size)
    return found.hexdigest()
