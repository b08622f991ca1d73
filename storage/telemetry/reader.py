"""Reading the telemetry store, while it is written or not."""

from __future__ import annotations

import fcntl
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpuadvisor.domain.metrics import BY_NAME, HOST_METRICS, Kind, Metric
from gpuadvisor.domain.telemetry import HOST, Event, Frame, Gpu, Number
from gpuadvisor.storage.telemetry.files import (
    day_paths,
    device_names,
    gpus_of_days,
    reading,
    rows,
    times,
)
from gpuadvisor.storage.telemetry.frames import FrameReader
from gpuadvisor.storage.telemetry.processes import ProcessReader, serving
from gpuadvisor.storage.telemetry.schema import (
    ALL_GPUS,
    DAY_NAMES,
    EVENT_COLUMNS,
    GPU_TABLES,
    HOST_TABLES,
    HOUR_S,
    INDEX,
    LISTED_GPUS,
    MINUTE_S,
    PROCESS_COLUMNS,
    PROGRAM_COLUMNS,
    Table,
    event_of,
    gpu_of,
    present,
)
from gpuadvisor.storage.telemetry.tables import Rows, chunks_of, files_of, process_chunks
from gpuadvisor.storage.telemetry.writer import LOCK

Resolution = Literal["raw", "minute", "hour", "auto"]
AUTO_RAW_S = 2 * HOUR_S
"""Longest table of raw rows by `auto`: two hours of eight GPUs are 58,000 of them."""
AUTO_MINUTES_S = 7 * 86400.0
"""Longest table of minutes by `auto`; longer ones are of hours."""
_PROCESS_COLUMNS = PROGRAM_COLUMNS | PROCESS_COLUMNS


class Point(NamedTuple):
    """A metric in a span of time."""

    time_s: float
    """When the span began, Unix time."""
    mean: float
    """Mean of a gauge; the last value of a counter."""
    min: Number
    """Least value of a gauge; the first value of a counter."""
    max: Number


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
        self, since_s: float, *, with_all_events: bool = False, with_processes: bool = True
    ) -> FrameReader:
        """Return a reader of the frames from `since_s` on, and later of those that came since."""
        processes = self._processes if with_processes else None
        return FrameReader(
            self.folder, since_s, with_all_events=with_all_events, processes=processes
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
        known = BY_NAME[metric]
        is_host = known in HOST_METRICS
        raw, minutes, hours = HOST_TABLES if is_host else GPU_TABLES
        step_s = (until_s - since_s) / points
        # What is not rolled up yet is finer.
        chains = [(raw,), (minutes, raw), (hours, minutes, raw)]
        if step_s >= MINUTE_S:
            chains = chains[1:] if step_s < HOUR_S else [chains[2], chains[1]]
        wanted = [g.uuid for g in self.all_gpus() if gpus is None or g.uuid in gpus]
        chosen = _Selection(known, [HOST] if is_host else wanted, step_s)
        for chain in chains:
            if spans := _along(self.folder, chain, chosen, since_s, until_s):
                break
        found: dict[str, list[Point]] = {device: [] for device in chosen.devices}
        for device, time_s, total, weight, low, high in spans:
            found[device].append(Point(time_s, total / weight, low, high))
        return found

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

    def writer_process(self) -> int | None:
        """Return the process that writes the store now; None where none does.

        Another user's says so itself: its lock is not for others.
        """
        try:
            with (self.folder / LOCK).open(encoding="ascii") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
        except BlockingIOError:
            return self._holder()
        except PermissionError:
            return serving(self.folder)
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


# -- charts ----------------------------------------------------------------------------------------


class _Selection(NamedTuple):
    metric: Metric
    devices: Sequence[str]
    step_s: float


_Span = tuple[str, float, float, float, Number, Number]
"""GPU's UUID or HOST, begin, the sum of weighted means, the weights, the least and the greatest."""


def _along(
    folder: Path, chain: Sequence[Table], chosen: _Selection, since_s: float, until_s: float
) -> list[_Span]:
    """Read the first table, and from where it ends the next one of the chain."""
    spans: list[_Span] = []
    for table in chain:
        end_s = until_s
        if table.period_s:  # first: of what is rolled up meanwhile, the next table has all
            span = "WHERE ts >= ? AND ts < ?"
            with reading(folder / INDEX) as connection:
                found_s = times(connection, "MAX", (table.name,), span, (since_s, until_s))
            if not found_s:
                return []
            end_s = min(found_s[0] + table.period_s, until_s)
        for path in files_of(folder, table, since_s, end_s):
            with reading(path) as connection:
                if connection and chosen.metric.name in present(connection, table):
                    found = _spans(connection, table, chosen, since_s, end_s)
                    spans = _together(spans, found) if spans else found
        since_s = end_s
    return spans


def _spans(
    connection: sqlite3.Connection, table: Table, chosen: _Selection, since_s: float, until_s: float
) -> list[_Span]:
    """Return a table's rows of one metric, in order of time and joined to steps."""
    mean, low, high = _expressions(table, chosen.metric)
    weight = "polls" if table.period_s else "1"
    step_s = max(chosen.step_s, table.period_s)
    at, total, grouping = "ts", f"{mean} * {weight}", "ORDER BY ts"
    if step_s > table.period_s:
        at = f"CAST(ts / {step_s!r} AS INTEGER) * {step_s!r}"
        total, weight, low, high = f"SUM({total})", f"SUM({weight})", f"MIN({low})", f"MAX({high})"
        grouping = "GROUP BY 1, 2 ORDER BY 2"
    names = device_names(connection)
    numbers = [number for number, device in names.items() if device in chosen.devices]
    marks = ", ".join("?" * len(numbers))
    query = (
        f"SELECT gpu, {at}, {total}, {weight}, {low}, {high} FROM {table.name} WHERE ts >= ?"
        f" AND ts < ? AND gpu IN ({marks}) AND {chosen.metric.name} IS NOT NULL {grouping}"
    )
    found = rows(connection, query, (since_s, until_s, *numbers))
    return [(names[number], *span) for number, *span in found]


def _together(earlier: list[_Span], later: list[_Span]) -> list[_Span]:
    """Return all spans, joining those that two tables, or two days, have parts of."""
    parts = {span[:2]: span for span in later}
    first_s = min((span[1] for span in later), default=0.0)
    for place, span in enumerate(earlier):
        if span[1] >= first_s and (other := parts.pop(span[:2], None)):
            low, high = min(span[4], other[4]), max(span[5], other[5])
            earlier[place] = (*span[:2], span[2] + other[2], span[3] + other[3], low, high)
    return earlier + list(parts.values())


def _expressions(table: Table, metric: Metric) -> tuple[str, str, str]:
    name = metric.name
    if table.period_s and metric.kind is Kind.GAUGE:
        return name, f"min_{name}", f"max_{name}"
    if table.period_s and metric.kind is Kind.COUNTER:
        return name, f"first_{name}", name
    return name, name, name


def _oldest_s(folder: Path, since_s: float, until_s: float) -> float:
    """Return the time of the first row in the span, raw or not; `until_s` where there is none."""
    found = [until_s]
    for table in (*GPU_TABLES, *HOST_TABLES):
        for path in files_of(folder, table, since_s, until_s)[:1]:
            with reading(path) as connection:
                found += times(connection, "MIN", (table.name,), "WHERE ts >= ?", (since_s,))
    return min(found)
