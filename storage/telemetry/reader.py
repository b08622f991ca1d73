"""Reading the telemetry store, while it is written or not."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuadvisor.domain.telemetry import Event, Frame, Gpu
from gpuadvisor.storage.telemetry import charts
from gpuadvisor.storage.telemetry.charts import Point, Resolution, Rows
from gpuadvisor.storage.telemetry.files import day_paths, reading, rows
from gpuadvisor.storage.telemetry.frames import FrameReader
from gpuadvisor.storage.telemetry.schema import (
    DAY_TABLES,
    EVENT_COLUMNS,
    GPU_COLUMNS,
    INDEX,
    event_of,
    gpu_of,
)
from gpuadvisor.storage.telemetry.writer import LOCK


class TelemetryReader:
    """Reads the store; any number may at once. A store that does not exist has nothing in it.

    Every method raises StoreError where a file fails, or was written by a newer gpuadvisor.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the writer saw last, in the driver's order."""
        query = f"SELECT {GPU_COLUMNS} FROM gpus WHERE place IS NOT NULL ORDER BY place"
        return tuple(gpu_of(row) for row in self._index(query))

    def all_gpus(self) -> tuple[Gpu, ...]:
        """Return every GPU of which there are rows, also those that were removed."""
        return tuple(gpu_of(row) for row in self._index(f"SELECT {GPU_COLUMNS} FROM gpus"))

    def newest_s(self) -> float | None:
        """Return the Unix time of the newest raw row; None where there is none."""
        for path in reversed(day_paths(self.folder)):
            with reading(path) as connection:
                times = [
                    row[0]
                    for table in DAY_TABLES
                    for row in rows(connection, f"SELECT MAX(ts) FROM {table.name}")
                    if row[0] is not None
                ]
            if times:
                return float(max(times))
        return None

    def frames(self, since_s: float, until_s: float = float("inf")) -> Iterator[Frame]:
        """Yield what was stored from `since_s` until before `until_s`, in order of time.

        The first frame has the GPUs. Frames between two full ones are kept for 15 minutes.
        """
        yield from FrameReader(self.folder, since_s).read(until_s)

    def follow(self, since_s: float, *, with_all_events: bool = False) -> FrameReader:
        """Return a reader of the frames from `since_s` on, and later of those that came since."""
        return FrameReader(self.folder, since_s, with_all_events=with_all_events)

    def events(
        self, since_s: float, until_s: float | None = None, limit: int | None = None
    ) -> list[Event]:
        """Return the events of the span, the oldest first; at most the newest `limit`.

        They are those that began in it, or lasted into it.
        """
        rows = self._index(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE began_s < ?"
            " AND (began_s >= ? OR ended_s >= ? OR ended_s IS NULL)"
            " ORDER BY began_s DESC, id DESC LIMIT ?",
            (float("inf") if until_s is None else until_s, since_s, since_s, limit or -1),
        )
        return [event_of(row) for row in reversed(rows)]

    def chart(
        self,
        metric: str,
        gpus: Sequence[str] | None,
        since_s: float,
        until_s: float,
        points: int = 1440,
    ) -> Mapping[str, list[Point]]:
        """Return a metric over time by the GPU's UUID (HOST for the machine's metrics).

        It is read from the coarsest rows that still give about so many `points` each.
        """
        return charts.chart(self.folder, metric, gpus, since_s, until_s, points)

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
        return charts.table(self.folder, since_s, until_s, resolution, host, gpus, metrics)

    def processes(self, since_s: float, until_s: float) -> Rows:
        """Return each process that was listed in the span, a row for each listing."""
        return charts.processes(self.folder, since_s, until_s)

    def writer_process(self) -> int | None:
        """Return the process that writes the store now; None where none does."""
        try:
            with (self.folder / LOCK).open(encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
        except BlockingIOError:
            return self._holder()
        except OSError:  # no such file, or a file system that cannot lock: then none could write
            return None

    def _holder(self) -> int | None:
        try:
            return int((self.folder / LOCK).read_text("ascii"))
        except (OSError, ValueError):  # it has just ended, or just begun
            return None

    def _index(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with reading(self.folder / INDEX) as connection:
            return rows(connection, query, values)
