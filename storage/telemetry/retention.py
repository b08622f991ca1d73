"""What becomes of old rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.failures import explained
from gpuadvisor.storage.telemetry import days
from gpuadvisor.storage.telemetry.index_file import IndexFile

KEPT_DAYS = 3
"""So many of the newest day files are kept whatever the clock says, which may be set wrong."""
CHUNK = 500
"""Rows removed at a time, once a minute: eight GPUs add eight. A clock that is wrong for an hour
costs little so."""
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
    for path in days.files(folder)[:-KEPT_DAYS]:
        if days.begin_of_file(path) + days.DAY_S + kept.raw_s < now_s:
            close(path)
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
