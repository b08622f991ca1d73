"""Recordings for `gpuadvisor gate check`: a file with a JSON object a line.

Not a database: it is made to be kept where the script's history is. Committed to the repository, a
recording is a line of a diff, and two branches merge by keeping the lines of both (`merge=union`);
in the cache of a CI job it is one small file, which can be read and mended without gpuadvisor. One
recording has 4 kB; hundreds are read in milliseconds.
"""

from __future__ import annotations

import fcntl
import math
import os
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.domain.baseline import Acceptance, Recording
from gpuadvisor.errors import StoreError
from gpuadvisor.storage import codec
from gpuadvisor.storage.home import home

FILE = "gate.jsonl"
VERSION = 1
"""Version of the lines."""
CONFLICTS = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")
"""What git leaves where it could not merge."""


@dataclass(frozen=True)
class Baselines:
    """What a file holds, in order of time."""

    recordings: tuple[Recording, ...] = ()
    acceptances: tuple[Acceptance, ...] = ()

    @property
    def names(self) -> list[str]:
        return sorted({each.name for each in self.recordings})

    def recordings_of(self, name: str) -> list[Recording]:
        return [each for each in self.recordings if each.name == name]

    def lacks(self, name: str, file: Path) -> str:
        """Return that `file`, where they stand, has no such baseline, as a clause."""
        names = ", ".join(self.names) or "none"
        return f"there is no recording of {name} in {file}, which has {names}"

    def accepted(self, name: str) -> Acceptance | None:
        """Return the newest acceptance of a baseline, None where there is none."""
        return next((each for each in reversed(self.acceptances) if each.name == name), None)


@dataclass(frozen=True)
class _Numbered:
    """What a line of any version has."""

    version: int


@dataclass(frozen=True)
class _Line(_Numbered):
    """A line of the file: one of the two."""

    recording: Recording | None = None
    acceptance: Acceptance | None = None


def baselines_file(chosen: Path | None) -> Path:
    """Return the file: what the user chose, or the one in gpuadvisor's folder."""
    return home() / FILE if chosen is None else chosen


def read_baselines(path: Path) -> Baselines:
    """Return what a file holds, nothing where there is none; StoreError where it is damaged."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return Baselines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise StoreError(f"{path} cannot be read ({why}): choose another with --store") from None
    first = {line: number for number, line in reversed([*enumerate(lines, 1)])}  # merges double
    found = [_read(path, number, line) for line, number in first.items() if line.strip()]
    return Baselines(
        tuple(sorted((e.recording for e in found if e.recording), key=lambda each: each.at)),
        tuple(sorted((e.acceptance for e in found if e.acceptance), key=lambda each: each.at)),
    )


def add_to_baselines(path: Path, entry: Recording | Acceptance) -> None:
    """Append an entry; StoreError where the file cannot be written."""
    is_recording = isinstance(entry, Recording)
    line = {"version": VERSION, "recording" if is_recording else "acceptance": entry}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Appended in one piece, and by one process at a time, also where jobs share the file.
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(_end_of_line(file.fileno()) + codec.dumps(line).encode() + b"\n")
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}): choose another file with --store"
        ) from error


def check_writable(path: Path) -> None:
    """Raise StoreError where a recording could not be kept, before anything is measured."""
    folder = next(each for each in path.absolute().parents if each.exists())
    writable = os.access(path if path.exists() else folder, os.W_OK)
    if path.is_dir() or not folder.is_dir() or not writable:
        raise StoreError(f"{path} cannot be written: choose another file with --store")


def _read(path: Path, number: int, line: str) -> _Line:
    if line.startswith(CONFLICTS):
        raise StoreError(
            f"{path}, line {number}: a merge was left half done: keep the lines of both sides "
            f"(`{path.name} merge=union` in .gitattributes does so by itself)"
        )
    try:
        if codec.loads(_Numbered, line).version > VERSION:  # whatever else it has
            raise StoreError(f"{path}, line {number} is of a newer gpuadvisor: update this one")
        found: _Line = codec.loads(_Line, line)
        entry = found.recording or found.acceptance
        if entry is None or entry.at.tzinfo is None or not _is_whole(found.recording):
            raise ValueError("it lacks its time or its figures")
    except (ValueError, ZeroDivisionError) as error:
        why = " ".join(str(error).split())
        raise StoreError(
            f"{path}, line {number} is no recording of a gate ({why}): remove the line, or choose "
            "another file with --store"
        ) from None
    return found


def _is_whole(recording: Recording | None) -> bool:
    """Say whether each run of a recording has figures that can be compared."""
    if recording is None:
        return True
    measured = [run.measurement for run in recording.runs]
    return bool(measured) and all(
        each.windows and 0 < each.mean_step_ms < math.inf and each.peak_memory_bytes >= 0
        for each in measured
    )


def _end_of_line(descriptor: int) -> bytes:
    """Return what ends a last line that has no end, as of a full disk or an editor."""
    size = os.fstat(descriptor).st_size
    return b"" if not size or os.pread(descriptor, 1, size - 1) == b"\n" else b"\n"
