"""Trace files into the store: recognised, read once, kept once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from gpuadvisor.domain.profile import Columns, Sink
from gpuadvisor.domain.unprofiled import UnprofiledSteps, with_unprofiled_steps
from gpuadvisor.errors import AdvisorError, Interrupted, StoreError, UsageError
from gpuadvisor.profiling.reading import (
    TraceFile,
    known_reader,
    rank_in_name,
    readable,
    stem,
    trace_files,
)
from gpuadvisor.storage.profiles.library import Profiles, open_profiles
from gpuadvisor.storage.profiles.stored import StoredProfile
from gpuadvisor.storage.profiles.writer import Origin

BLOCK_BYTES = 1 << 20


class Progress:
    """What is told how far the reading of a file is; this one does not show it."""

    def hashed(self, path: Path, done_bytes: int, size_bytes: int) -> None:
        """Take how much of a file was looked at, to see whether it is stored."""

    def read(self, path: Path, rows: int) -> None:
        """Take how much of a file was read into rows."""


@dataclass(frozen=True)
class Imported:
    """A file that is in the store now."""

    profile: StoredProfile
    is_new: bool
    """False where it was stored before."""


def import_files(
    profiles: Profiles,
    named: Sequence[Path],
    name: str | None,
    progress: Callable[[], AbstractContextManager[Progress]],
    on_imported: Callable[[Imported], None],
    on_failure: Callable[[Path, Exception, str], None],
) -> None:
    """Store all traces that are named, the others too where one cannot be read.

    `named` are traces, or folders of traces, one for each rank of a run; `name` is that of the only
    profile, with several files what all names begin with. `on_imported` takes each as soon as it is
    stored; `on_failure` the path of one that cannot be, its error, and a sentence that says why.
    StoreError and Interrupted end it.
    """
    files = trace_files(named)
    if name is not None and len(files) > 1:
        files = [replace(file, stem=f"{name}-{stem(file.path)}") for file in files]
        name = None
    for file in files:
        try:
            with progress() as shown:
                imported = import_trace(profiles, file, name, shown)
            on_imported(imported)
        except (Interrupted, StoreError, BrokenPipeError):
            raise  # the store would fail for the other files as well
        except Exception as error:  # the others go on even where it is our fault
            on_failure(file.path, error, _sentence(file.path, error))


def import_recorded(
    trace: Path,
    stem: str,
    name: str | None,
    *,
    is_temporary: bool,
    unprofiled: UnprofiledSteps | None = None,
) -> Imported:
    """Store a trace that was recorded just now; without a name it is called `stem`.

    With `unprofiled` the profile tells what steps took without the profiler, unless the trace does.
    """
    file = TraceFile(trace.absolute(), stem, is_temporary=is_temporary)
    return import_trace(open_profiles(), file, name, unprofiled=unprofiled)


def check_name(name: str | None) -> None:
    """UsageError if no profile can get this name, which may be None, for the usual one; StoreError
    if none can be kept, before something runs for it.
    """
    profiles = open_profiles()
    if name is not None:
        profiles.check_free(name)


def import_trace(
    profiles: Profiles,
    file: TraceFile,
    name: str | None = None,
    progress: Progress | None = None,
    unprofiled: UnprofiledSteps | None = None,
) -> Imported:
    """Store one file, as one of the ranks of its folder where it has one, with what its steps took
    without the profiler, if that is known and the file does not tell it.

    A file that was stored alone joins them.
    """
    progress = progress or Progress()
    with readable(file.path):
        reader = known_reader(file.path)
        before = _state(file.path)
        digest = _digest(file.path, progress)
        if (known := profiles.with_digest(digest)) is not None:
            if file.ranks_of and not known.record.ranks_of:
                profiles.join(known.record.id, file.ranks_of, rank_in_name(file.path))
                known = profiles.get(known.record.id)
            return Imported(known, is_new=False)
        if name is not None:
            profiles.check_free(name)  # before minutes of reading
        path = "" if file.is_temporary else str(file.path)
        origin = Origin(path, before[0], digest, file.stem, name, file.ranks_of)
        with profiles.writer(origin) as writer:
            header = reader.read(file.path, _Watched(writer, file.path, progress))
            if _state(file.path) != before:
                raise UsageError(
                    f"{file.path} was changed while it was read: import it again when it is "
                    "complete."
                )
            if header.rank is None:
                header = replace(header, rank=rank_in_name(file.path))
            if unprofiled is not None:
                header = with_unprofiled_steps(header, unprofiled)
            kept = writer.finish(header)
    return Imported(profiles.get(kept.profile_id), kept.is_new)


def _sentence(path: Path, error: Exception) -> str:
    """Return why a file could not be stored."""
    if isinstance(error, AdvisorError):
        return str(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"{path}: this is a bug in gpuadvisor ({what}): import it again with --debug and report "
        "the output"
    )


@dataclass
class _Watched:
    """A sink that reports how many rows went through it."""

    sink: Sink
    path: Path
    progress: Progress
    rows: int = 0

    def add(self, table: str, columns: Columns) -> None:
        self.sink.add(table, columns)
        self.rows += len(next(iter(columns.values())))
        self.progress.read(self.path, self.rows)


def _state(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file does: size in bytes, time in nanoseconds, number."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _digest(path: Path, progress: Progress) -> str:
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
            progress.hashed(path, done, size)
    return found.hexdigest()
