"""How much room the disk has left."""

from __future__ import annotations

import os
from pathlib import Path

SPARE_BYTES = 256 << 20
"""Left free for roll-ups, for events, and for what others on the machine need to go on."""
SPARE_SHARE = 0.05
"""Of a small disk, such as a container's, this much instead."""
RESUME_FACTOR = 1.5
"""So much must be free before raw rows are stored again: one that is nearly full stays paused."""


class Space:
    """Watches the disk of a folder."""

    def __init__(self, folder: Path, spare_bytes: int | None = None) -> None:
        self._folder = folder
        self._spare_bytes = spare_bytes
        self.problem: str | None = None
        """Why the disk is to be spared, in one sentence; None where there is room."""

    def look(self) -> None:
        """Ask the file system (2 us)."""
        try:
            disk = os.statvfs(self._folder)
        except OSError:  # whatever it is, writing will say it better
            return
        free = disk.f_bavail * disk.f_frsize
        small = int(disk.f_blocks * disk.f_frsize * SPARE_SHARE)
        spare = min(SPARE_BYTES, small) if self._spare_bytes is None else self._spare_bytes
        wanted = int(spare * RESUME_FACTOR)
        if free >= (wanted if self.problem else spare):
            self.problem = None
        elif self.problem is None:
            self.problem = (
                f"The disk of {self._folder} has only {free / 2**20:.0f} MiB left: single sweeps "
                f"are not stored until {wanted / 2**20:.0f} MiB are free; minutes and events are."
            )
