"""Reading the telemetry store, while it is written or not."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from gpuadvisor.domain.metrics import BY_NAME, HOST_METRICS
from gpuadvisor.domain.moment import Moment
from gpuadvisor.domain.telemetry import HOST, Event, Frame, Gpu
from gpuadvisor.domain.timeline import HOUR_S, Timeline, TimelineRequest
from gpuadvisor.storage.telemetry.charts import timelines
from gpuadvisor.storage.telemetry.files import (
    day_paths,
    gpus_of_days,
    reading,
    rows,
    times,
    times_of_days,
)
from gpuadvisor.storage.telemetry.frames import FrameReader
from gpuadvisor.storage.telemetry.listed_processes import ProcessReader
from gpuadvisor.storage.telemetry.moments import moment
from gpuadvisor.storage.telemetry.schema import (
    ALL_GPUS,
    DAY_NAMES,
    EVENT_COLUMNS,
    GPU_TABLES,
    HOST_TABLES,
    INDEX,
    LISTED_GPUS,
    PROCESS_COLUMNS,
    PROGRAM_COLUMNS,
    event_of,
    gpu_of,
)
from gpuadvisor.storage.telemetry.tables import Rows, chunks_of, files_of, process_chunks

Resolution = Literal["raw", "minute", "hour", "auto"]
AUTO_RAW_S = 2 * HOUR_S
"""Longest table of raw rows by `auto`: two hours of eight GPUs are 58,000 of them."""
AUTO_MINUTES_S = 7 * 86400.0
"""Longest table of minutes by `auto`; longer ones are of hours."""
_PROCESS_COLUMNS = PROGRAM_COLUMNS | PROCESS_COLUMNS


class TelemetryReader:
    """Reads the store; any number may at once. A store that does not exist has nothing in it.

    Every method raises StoreError where a file fails, or was written by a newer gpuadvisor.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes = ProcessReader(folder)

    @property
    def withheld(self) -> str | None:
        """What this user was not given of the processes and why, in one sentence; None: nothing."""
        return self._processes.withheld

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the writer saw last, in the driver's order."""
        files = [self.folder / INDEX, *reversed(day_paths(self.folder))]
        for path in files:  # an index that was moved away leaves those of the newest day
            with reading(path) as connection:
                if rows(connection, f"{ALL_GPUS} LIMIT 1"):
                    return tuple(gpu_of(row) for row in rows(connection, LISTED_GPUS))
        return ()

    def all_gpus(self) -> tuple[Gpu, ...]:
        """Return every GPU of which there are rows, also those that were removed."""
        found: dict[str, Gpu] = {}
        for row in (*self._index(ALL_GPUS), *gpus_of_days(self.folder)):
            found.setdefault(row[0], gpu_of(row))
        return tuple(found.values())

    def newest_s(self) -> float | None:
        """Return the Unix time of the newest raw row; None where there is none."""
        for path in reversed(day_paths(self.folder)):
            with reading(path) as connection:
                if found := times(connection, "MAX", DAY_NAMES):
                    return max(found)
        return None

    def frames(self, since_s: float, until_s: float = math.inf) -> Iterator[Frame]:
        """Yield what was stored from `since_s` until before `until_s`, in order of time.

        The first frame has the GPUs. Frames between two full ones are kept for 15 minutes.
        """
        yield from FrameReader(self.folder, since_s, processes=self._processes).read(until_s)

    def follow(
        self,
        since_s: float,
        *,
        with_all_events: bool = False,
        with_processes: bool = True,
        events_since_s: float | None = None,
    ) -> FrameReader:
        """Return a reader of the frames from `since_s` on, and later of those that came since; the
        first has the events from `events_since_s` on, where that is given."""
        processes = self._processes if with_processes else None
        return FrameReader(
            self.folder,
            since_s,
            with_all_events=with_all_events,
            processes=processes,
            events_since_s=events_since_s,
        )

    def events(
        self, since_s: float, until_s: float | None = None, limit: int | None = None
    ) -> list[Event]:
        """Return the events of the span, the oldest first; at most the newest `limit`.

        They are those that began in it, or lasted into it.
        """
        found = self._index(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE began_s < ?"
            " AND (began_s >= ? OR ended_s >= ? OR ended_s IS NULL)"
            " ORDER BY began_s DESC, id DESC LIMIT ?",
            (math.inf if until_s is None else until_s, since_s, since_s, limit or -1),
        )
        return [event_of(row) for row in reversed(found)]

    def span(self) -> tuple[float, float] | None:
        """Return the Unix times of the oldest and the newest row, raw or not; None without any."""
        found = times_of_days(self.folder, "MIN") + times_of_days(self.folder, "MAX")
        with reading(self.folder / INDEX) as connection:
            for table in (*GPU_TABLES[1:], *HOST_TABLES[1:]):
                found += times(connection, "MIN", (table.name,))
                found += (at + table.period_s for at in times(connection, "MAX", (table.name,)))
        return (min(found), max(found)) if found else None

    def timelines(self, wanted: TimelineRequest) -> dict[str, Timeline]:
        """Return a metric by the GPU's UUID (HOST for the machine's)."""
        devices = wanted.devices
        if devices is None:
            is_host = BY_NAME[wanted.metric] in HOST_METRICS
            devices = [HOST] if is_host else [gpu.uuid for gpu in self.all_gpus()]
        now_s = time.time() if wanted.now_s is None else wanted.now_s
        return timelines(self.folder, wanted, devices, now_s)

    def moment(self, time_s: float) -> Moment:
        """Return what was known at a Unix time: the newest values, processes, and open events."""
        return moment(self, time_s)

    def table(
        self,
        since_s: float,
        until_s: float,
        resolution: Resolution = "auto",
        *,
        host: bool = False,
        gpus: Sequence[str] | None = None,
        metrics: Sequence[str] | None = None,
    ) -> Rows:
        """Return a table of the GPUs' metrics, or of the machine's."""
        if resolution == "auto":
            oldest_s = _oldest_s(self.folder, since_s, until_s)
            span_s = min(until_s, time.time()) - max(since_s, oldest_s)
            resolution = (
                "raw" if span_s <= AUTO_RAW_S else "minute" if span_s <= AUTO_MINUTES_S else "hour"
            )
        raw, minutes, hours = HOST_TABLES if host else GPU_TABLES
        chosen = {"raw": raw, "minute": minutes, "hour": hours}[resolution]
        wanted = [m for m in chosen.metrics if metrics is None or m.name in metrics]
        columns = [column for metric in wanted for column in chosen.columns_of(metric)]
        names = [column.name for column in columns]
        return Rows(
            resolution,
            ("time_s", "gpu", *names),
            ("REAL", "TEXT", *(column.type for column in columns)),
            chunks_of(self.folder, chosen, names, gpus, since_s, until_s),
        )

    def processes(self, since_s: float, until_s: float) -> Rows:
        """Return each process that was listed in the span, a row for each listing.

        StoreError, as the rows are read, where this user may not have them; see `withheld`.
        """
        types = [declared.partition(" ")[0] for declared in _PROCESS_COLUMNS.values()]
        return Rows(
            "raw",
            ("time_s", "gpu", *_PROCESS_COLUMNS),
            ("REAL", "TEXT", *types),
            process_chunks(self.folder, self._processes, since_s, until_s),
        )

    def _index(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with reading(self.folder / INDEX) as connection:
            return rows(connection, query, values)


def _oldest_s(folder: Path, since_s: float, until_s: float) -> float:
    """Return the time of the first row in the span, raw or not; `until_s` where there is none."""
    found = [until_s]
    for table in (*GPU_TABLES, *HOST_TABLES):
        for path in files_of(folder, table, since_s, until_s)[:1]:
            with reading(path) as connection:
                found += times(connection, "MIN", (table.name,), "WHERE ts >= ?", (since_s,))
    return min(found)
