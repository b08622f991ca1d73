"""What the store takes of the disk: old rows go, and a full disk is spared."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.sqlite_file import explained
from gpuadvisor.storage.telemetry.files import (
    DAY_S,
    PROCESSES,
    begin_of_path,
    damaged_days,
    day_paths,
)
from gpuadvisor.storage.telemetry.schema import CommandLines
from gpuadvisor.storage.telemetry.written import IndexFile

LEAP_S = 2 * 86400.0
"""Seconds from one poll to the next after which the clock may have been set wrong. What the default
keeps is as long; a time zone taken for another is half a day at most."""
BELIEVED_AFTER_S = 3600.0
"""Seconds for which a clock that leapt is not believed; it is set right, by NTP, within minutes."""
TRIMMED_SHARE = 1 / 60
"""Share of the time for which raw rows are kept by which they may be older: each minute of an hour,
each 48 minutes of two days, as opening yesterday's file costs more than removing its rows."""
TRIMMED_AT_ONCE_S = 3600.0
"""Length of the rows that are removed in one transaction: an hour of eight GPUs takes 26 ms."""
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
    """What is kept for how long, in seconds; hours and events are kept for ever."""

    raw_s: float = 48 * 3600.0
    minutes_s: float = 90 * 86400.0
    command_lines: CommandLines = "full"
    """What is stored of a process's command line: all, its first word, or nothing."""


class Today:
    """The time as far as it may be trusted: to be wrong about it would empty the store."""

    def __init__(self, newest_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with the Unix time of the newest row; `clock` tells how long ago a leap was."""
        self._last_s = newest_s
        self._before_leap_s = math.inf
        self._leapt = -math.inf
        self._clock = clock

    def see(self, time_s: float) -> None:
        """Take note of a Unix time that was read from the machine's clock."""
        if self._last_s is not None and time_s - self._last_s > LEAP_S:
            self._before_leap_s = min(self._before_leap_s, self._last_s)
            self._leapt = self._clock()
        self._last_s = time_s

    def now_s(self) -> float:
        """Return the Unix time seen last, or for an hour after a leap the one before it."""
        if self._clock() - self._leapt > BELIEVED_AFTER_S:
            self._before_leap_s = math.inf
        return min(self._last_s or 0.0, self._before_leap_s)


def apply(index: IndexFile, before_s: float) -> None:
    """Remove some of the minutes and states from before this Unix time."""
    with explained(index.path):
        for query in _OLD:
            index.connection.execute(query, {"before": before_s, "chunk": CHUNK})


def remove_days(folder: Path, before_s: float, close: Callable[[Path], None]) -> None:
    """Remove the files of days that ended before; `close` is called with each before it goes."""
    paths = (*day_paths(folder), *day_paths(folder, kind=PROCESSES))
    days = [(begin_of_path(path), path) for path in paths]
    for begin_s, path in [*days, *damaged_days(folder)]:
        if begin_s + DAY_S <= before_s:
            close(path)
            _remove(path)


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
                f"are not stored until {wanted / 2**20:.0f} MiB are free, and then those of the"
                " last five minutes; minutes and events are."
            )
