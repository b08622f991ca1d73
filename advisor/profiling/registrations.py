"""Which processes can be profiled on demand: a small file each, in a folder that is the user's own.

The command reads there what a process listens to, and signals no process that has no file, has
ended, or is another one with the same number: an unheard SIGUSR2 would end it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

VERSION = 1
"""Of what the command and the process say to each other."""
FOLDER_PREFIX = "gpuadvisor-profile-"
REQUEST, ANSWER, TRACE = "request.json", "answer.json", "trace.json"
"""Names in a process's own folder."""


@dataclass(frozen=True)
class Registration:
    """What a process tells of itself."""

    pid: int
    started: int
    """In ticks of the system's clock since its start (proc(5), field 22)."""
    signal: int
    folder: str
    """Where it looks for the request and writes the trace: private, of this process only."""
    program: str
    version: int = VERSION


def place() -> Path:
    """Return the folder of the registrations. Fixed, as the command's environment may be another
    than the script's."""
    return Path(f"/tmp/gpuadvisor-on-demand-{os.getuid()}")


def register(registration: Registration) -> Path:
    """Write a process's file and return its path; OSError where that is impossible."""
    folder = place()
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_private(folder):
        raise PermissionError(f"{folder} belongs to somebody else")
    for stale in _stale(folder):
        with contextlib.suppress(OSError):  # in use by a command, or removed meanwhile
            _remove(stale)
    path = folder / f"{registration.pid}.json"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(registration)), "utf-8")
    draft.replace(path)
    return path


def find(pid: int) -> Registration | None:
    """Return what the living process `pid` has registered; None if it has not."""
    folder = place()
    if not is_private(folder):
        return None
    registration = _read(folder / f"{pid}.json")
    alive = registration is not None and started(pid) == registration.started
    return registration if alive else None


def all_registered() -> list[Registration]:
    """Return the living processes that can be profiled on demand."""
    if not is_private(place()):
        return []
    pids = [int(path.stem) for path in sorted(place().glob("*.json")) if path.stem.isdigit()]
    return [found for pid in pids if (found := find(pid)) is not None]


def is_private(folder: Path) -> bool:
    """Say whether a folder is the user's own, and nobody else can write to it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    own = status.st_uid == os.getuid()
    return stat.S_ISDIR(status.st_mode) and own and not status.st_mode & 0o077


def started(pid: int) -> int | None:
    """Return when a process was started, in ticks; None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] == "Z" else int(fields[19])


def catches(pid: int, number: int) -> bool:
    """Say whether a process handles a signal now, so that it does not end it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    masks = [line.partition(":")[2].strip() for line in lines if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def _read(path: Path) -> Registration | None:
    try:
        return Registration(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _remove(path: Path) -> None:
    """Remove what a process left behind that was killed, or has left a trace to a command."""
    registration = _read(path)
    folder = Path(registration.folder) if registration is not None else None
    if folder is not None and folder.name.startswith(FOLDER_PREFIX) and is_private(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
    path.unlink()


def _stale(folder: Path) -> Iterator[Path]:
    for path in folder.glob("*.json"):
        registration = _read(path)
        if registration is None or started(registration.pid) != registration.started:
            yield path
