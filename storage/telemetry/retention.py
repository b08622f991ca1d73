"""What the store takes of the disk: old rows go, and a full disk is spared."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.sqlite_file import explained
from gpuadvisor.storage.telemetry.files import DAY_S, begin_of_path, damaged_days, day_paths
from gpuadvisor.storage.telemetry.written import IndexFile

KEPT_DAYS = 3
"""Number of the newest day files that stay whatever the clock says, which may be set wrong."""
CHUNK = 500
"""Rows removed at a time, once a minute: eight GPUs add eight. A clock that is wrong for an hour
costs little so."""
SPARE_BYTES = 256 << 20
"""Bytes left free for roll-ups, for events, and for what others on the machine need."""
SPARE_SHARE = 0.05
"""Share of a small disk, such as a container's, that is left free instead."""
RESUME_FACTOR = 1.5
"""Multiple of what is left free that must be free again before raw rows are stored again."""
SIDE_FILES = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True)
class Retention:
    """How long rows are kept; hours and events are kept for ever."""

    raw_s: float = 48 * 3600.0
    minutes_s: float = 90 * 86400.0


def apply(
    index: IndexFile, folder: Path, kept: Retention, now_s: float, close: Callable[[Path], None]
) -> None:
    """Remove what is old enough. `close` is called with a day's file before it goes."""
    for path in day_paths(folder)[:-KEPT_DAYS]:
        if begin_of_path(path) + DAY_S + kept.raw_s < now_s:
            close(path)
            _remove(path)
    for begin_s, path in damaged_days(folder):
        if begin_s + DAY_S + kept.raw_s < now_s:
            _remove(path)
    before_s = now_s - kept.minutes_s
    with explained(index.path):
        for query in _OLD:
            index.connection.execute(query, {"before": before_s, "chunk": CHUNK})


def _remove(path: Path) -> None:
    try:
        for suffix in SIDE_FILES:
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} is old and cannot be removed: {error.strerror}.") from error


_OLD = (
    *(
        f"DELETE FROM {table} WHERE (ts, gpu) IN"
        f" (SELECT ts, gpu FROM {table} WHERE ts < :before LIMIT :chunk)"
        for table in ("gpu_minutes", "host_minutes")
    ),
    # The last state of each metric holds until another comes, however long ago it was.
    "DELETE FROM states WHERE id IN (SELECT id FROM states AS old WHERE ts < :before AND EXISTS"
    " (SELECT 1 FROM states AS new WHERE new.gpu = old.gpu AND new.metric = old.metric"
    " AND new.id > old.id) LIMIT :chunk)",
)


class DiskSpace:
    """Watches how much room the disk of a folder has left."""

    def __init__(self, folder: Path, spare_bytes: int | None = None) -> None:
        self._folder = folder
        self._spare_bytes = spare_bytes
        self.problem: str | None = None
        """One sentence on why raw rows are not stored; None where there is room."""

    def check(self) -> None:
        """Ask the file system how much room is left (2 us)."""
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
