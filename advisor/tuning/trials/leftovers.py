"""Which files a study's runs leave behind: two looks at the folders of a script, before and after.

What others write there meanwhile cannot be told from what the runs do.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuadvisor.collectors.script.request import Command

MOST_FILES = 20_000
"""Most files that are looked at, those in the outer folders first. A source tree has fewer; a data
set that has more lies in folders of its own, which runs read."""
LONGEST_S = 2.0
"""Longest time that one look takes: 20,000 files of a local disk take 0.1 s, of a network's file
system up to a minute."""
NOT_LOOKED_INTO = frozenset(
    (
        *(".git", ".hg", ".svn", "__pycache__", "node_modules", ".ipynb_checkpoints"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache"),
    )
)
"""Folders of tools, where files come and go with every use."""
ENVIRONMENT_FILES = ("pyvenv.cfg", "conda-meta")
"""What only the folder of a Python environment holds (docs.python.org/3/library/venv.html)."""

OWN_OUTPUT = ("/proc/self/fd/1", "/proc/self/fd/2")
"""Where gpuadvisor's own output goes, which may be a file in the same folder."""


@dataclass
class Look:
    """The files of some folders at one time."""

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Path to size in bytes and time of the last change in ns."""
    folders: set[str] = field(default_factory=set)
    """Folders whose files are all known."""
    seen: set[str] = field(default_factory=set)
    """Folders that were there, looked into or not."""


def look(command: Command) -> Look:
    """Look at the working directory and the script's folder, as far as the limits allow."""
    return _look(_roots(command), None)


def left_since(before: Look, command: Command, own: Iterable[Path]) -> tuple[str, ...]:
    """Return the files that are new or changed since, sorted, without gpuadvisor's `own`.

    Names are relative to the working directory where they are in it.
    """
    after = _look(_roots(command), before)
    working = _roots(command)[0]
    ours = {os.path.realpath(path) for path in (*own, *map(Path, OWN_OUTPUT))}
    changed = (
        path
        for path, state in after.files.items()
        if before.files.get(path) != state and not _is_in(path, ours)
    )
    return tuple(sorted(_relative(path, working) for path in changed))


def written_since(began: float, command: Command, own: Iterable[Path]) -> tuple[str, ...]:
    """Return what `left_since` would have, had somebody looked at `began`, in seconds since the
    epoch: files whose last change is older were there."""
    now = look(command)
    older = {path: state for path, state in now.files.items() if state[1] < began * 1e9}
    return left_since(replace(now, files=older), command, own)


def _roots(command: Command) -> list[str]:
    """Return the working directory, and the script's folder where that is not in it."""
    working = os.path.realpath(command.folder or ".")
    if command.is_module:
        return [working]
    script = str(Path(working, command.script).resolve().parent)
    return [working] if _is_in(script, {working}) else [working, script]


def _look(roots: Iterable[str], before: Look | None) -> Look:
    """Look into folders, outer ones first; later only where it was looked before, or what is new.

    What a bounded look has not reached before would seem new else.
    """
    found, end_s = Look(), time.monotonic() + LONGEST_S
    waiting = deque(roots)
    while waiting and len(found.files) < MOST_FILES and time.monotonic() < end_s:
        folder = waiting.popleft()
        if before is not None and folder in before.seen and folder not in before.folders:
            continue
        files, inner = _content(folder)
        if files is None:
            continue
        found.files.update(files)
        found.folders.add(folder)
        found.seen.update((folder, *inner))
        waiting.extend(inner)
    return found


def _content(folder: str) -> tuple[dict[str, tuple[int, int]] | None, list[str]]:
    """Return a folder's files and those folders in it that are worth a look."""
    files: dict[str, tuple[int, int]] = {}
    inner: list[str] = []
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda each: each.name)
        if any(entry.name in ENVIRONMENT_FILES for entry in entries):
            return None, []
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                files[entry.path] = (status.st_size, status.st_mtime_ns)
            elif entry.name not in NOT_LOOKED_INTO:
                inner.append(entry.path)
    except OSError:  # not for us to read, or gone meanwhile
        return None, []
    return files, inner


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(
        path == each or path.startswith(f"{each.rstrip(os.sep)}{os.sep}") for each in folders
    )


def _relative(path: str, folder: str) -> str:
    return os.path.relpath(path, folder) if _is_in(path, {folder}) else path
