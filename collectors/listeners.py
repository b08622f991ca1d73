"""Which processes can be profiled while they run: those that called `profile_on_demand()`.

A small file for each lies in a folder that is the user's own. Whoever wants a profile reads there
what a process listens to, and signals no process that has no file, has ended, or is another one
with the same number: an unheard SIGUSR2 would end it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VERSION = 1
"""The version of what the command and the process say to each other."""
FOLDER_PREFIX = "gpuadvisor-profile-"
REQUEST, ANSWER, TRACE = "request.json", "answer.json", "trace.json"
"""Names in a process's own folder."""


@dataclass(frozen=True)
class Registration:
    """A process that can be profiled on demand, as its file describes it."""

    pid: int
    started: int
    """When the process began, in ticks of the system's clock (proc(5), field 22)."""
    signal: int
    folder: str
    """The private folder in which the process finds the request and writes the trace."""
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
    _sweep(folder)
    path = folder / f"{registration.pid}.json"
    publish(path, asdict(registration))
    return path


def publish(path: Path, document: Mapping[str, Any]) -> None:
    """Write JSON to a file of which nobody sees a half."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document), "utf-8")
    draft.replace(path)


def find(pid: int) -> Registration | None:
    """Return what the living process `pid` has registered; None if it has not."""
    folder = place()
    if not is_private(folder):
        return None
    registration = _read(folder / f"{pid}.json")
    alive = registration is not None and started(pid) == registration.started
    return registration if alive else None


def all_registered() -> list[Registration]:
    """Return the living processes that can be profiled on demand; what ended ones left behind is
    removed."""
    if not is_private(place()):
        return []
    _sweep(place())
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


def _sweep(folder: Path) -> None:
    """Remove what processes left behind that were killed, or have left a trace to a command."""
    for stale in folder.glob("*.json"):
        left = _read(stale)
        if left is None or started(left.pid) != left.started:
            with contextlib.suppress(OSError):  # in use by a command, or removed meanwhile
                _remove(stale, left)


def _remove(path: Path, registration: Registration | None) -> None:
    folder = Path(registration.folder) if registration is not None else None
    if folder is not None and folder.name.startswith(FOLDER_PREFIX) and is_private(folder):
        with alone(folder):
            shutil.rmtree(folder, ignore_errors=True)
    path.unlink()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other commands away from a process's folder; BlockingIOError where one is there."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
