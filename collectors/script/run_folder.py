"""The folder of one run; those that a killed gpuadvisor left behind are removed.

Whoever uses a folder holds a lock on it, which the system frees however its holder ends. A
process id in the name would not do: containers share a folder for temporary files, but not ids.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "gpuadvisor-run-"

YOUNG_S = 60.0
"""A folder of this age may have been made by a process that has yet to lock it."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """Make a folder that is gone afterwards."""
    _remove_leftovers()
    name = Path(tempfile.mkdtemp(prefix=PREFIX))
    with _open(name) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield name
        finally:  # while it is locked, or another that begins would remove it at the same time
            with contextlib.suppress(FileNotFoundError):  # who tidies up /tmp has no lock
                remove_folder(name)


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, also folders that nobody has a right to enter.

    Scripts make such folders, and so does the kernel where an overlay works.
    """
    with contextlib.suppress(OSError):
        path.chmod(0o700)
    for folder, names, _ in os.walk(path):
        for name in names:  # before the walk looks into them
            inner = Path(folder, name)
            if not inner.is_symlink():
                with contextlib.suppress(OSError):
                    inner.chmod(0o700)
    shutil.rmtree(path)


def _remove_leftovers() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, in use, or removed meanwhile
            if time.time() - path.stat().st_mtime > YOUNG_S:
                with _open(path) as folder:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_folder(path)


@contextmanager
def _open(path: Path) -> Iterator[int]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)
