"""The lock of the store's one writer, and who holds it: asked before all else, so little is loaded.

A watch that finds no daemon begins its own sampler, which takes most of its start.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

LOCK = "writer.lock"
"""Name of the file, in the store's folder."""


def writer_process(folder: Path) -> int | None:
    """Return the process that writes the store now; None where none does.

    Another user's says so itself: its lock is not for others.
    """
    try:
        with (folder / LOCK).open(encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
    except BlockingIOError:
        return _holder(folder)
    except PermissionError:
        from gpuadvisor.storage.telemetry.listed_processes import serving

        return serving(folder)
    except OSError:  # no such file, or a file system that cannot lock: then none could write
        return None


def _holder(folder: Path) -> int | None:
    try:
        return int((folder / LOCK).read_text("ascii"))
    except (OSError, ValueError):  # it has just ended, or just begun
        return None
