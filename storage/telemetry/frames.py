"""Raw rows as the frames that they were."""

from __future__ import annotations

import math
import sqlite3
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuadvisor.domain.telemetry import (
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Number,
    Sample,
    State,
    Unavailable,
)
from gpuadvisor.storage.telemetry.files import (
    DAY_S,
    begin_of_path,
    day_paths,
    device_names,
    reading,
    times,
)
from gpuadvisor.storage.telemetry.listed_processes import ProcessReader
from gpuadvisor.storage.telemetry.schema import (
    DAY_NAMES,
    DAY_TABLES,
    EVENT_COLUMNS,
    GPU_FAST,
    INDEX,
    INSTANCES,
    LISTED_GPUS,
    event_of,
    gpu_of,
    process_of,
    raw_values,
)

CHUNK_S = 60.0
"""Time read at once: a reader that takes its time must not hold a transaction open."""


@dataclass
class _Poll:
    full: bool = False
    values: dict[str, dict[str, Number]] = field(default_factory=dict)
    """Values by the metric's name of each GPU, by its UUID, and of HOST."""
    processes: list[GpuProcess] | None = None
    """None where none were listed."""


class FrameReader:
    """Reads frames in order of time, each once; it can be asked again for those that came since."""

    def __init__(
        self,
        folder: Path,
        since_s: float,
        *,
        with_all_events: bool = False,
        processes: ProcessReader | None = None,
        events_since_s: float | None = None,
    ) -> None:
        """Frames have the events that a collector made, or with `with_all_events` those that the
        daemon made of them, too; and those processes that `processes` can have. The first one has
        the events from `events_since_s` (Unix time) on."""
        self.since_s = since_s
        """Unix time from which `read` goes on."""
        self.instances: dict[str, str] = {}
        """The UUID of the GPU of each MIG instance, by its own: of all that were read, as frames
        list the GPUs that were there last."""
        self._folder = folder
        self._processes = processes
        self._context = _Context(since_s, with_all_events, events_since_s)
        self._gpus: tuple[Gpu, ...] | None = None

    def read(self, until_s: float = math.inf) -> Iterator[Frame]:
        """Yield the frames until before `until_s`. The first has the GPUs, and each after a
        change."""
        listings = None if self._processes is None else _Listings(self._processes)
        for path in day_paths(self._folder, self.since_s, until_s):
            begin_s = max(self.since_s, begin_of_path(path))
            end_s = min(until_s, begin_of_path(path) + DAY_S)
            while (found := _next(path, begin_s, end_s)) is not None:
                gpus, polls, counts = self._chunk(path, found, min(found + CHUNK_S, end_s))
                if listings is not None:
                    listings.add(counts, polls, end_s)
                self._context.read(self._folder)  # after the rows: it has all of their states
                for time_s in sorted(polls):
                    self.since_s = math.nextafter(time_s, math.inf)
                    yield self._frame(time_s, polls[time_s], gpus)
                begin_s = self.since_s  # more may have come into this minute

    def _chunk(
        self, path: Path, begin_s: float, end_s: float
    ) -> tuple[tuple[Gpu, ...], dict[float, _Poll], dict[float, int]]:
        """Return the GPUs as the day's file lists them, the polls of the span by their time, and
        how many processes each of those listed that did."""
        polls: dict[float, _Poll] = {}
        span = (begin_s, end_s)
        with reading(path) as connection:
            if connection is None:
                return (), {}, {}
            connection.execute("BEGIN")  # else a frame that is written meanwhile is read in part
            names = device_names(connection)
            gpus = tuple(gpu_of(row) for row in connection.execute(LISTED_GPUS))
            self.instances |= dict(connection.execute(INSTANCES).fetchall())
            for table in DAY_TABLES:
                metrics, query = raw_values(connection, table)
                for time_s, gpu, *values in connection.execute(query, span):
                    poll = polls.setdefault(time_s, _Poll())
                    poll.full |= table is not GPU_FAST
                    pairs = zip(metrics, values, strict=True)
                    poll.values[names[gpu]] = {name: v for name, v in pairs if v is not None}
            listings = connection.execute("SELECT * FROM listings WHERE ts >= ? AND ts < ?", span)
            counts = dict(listings.fetchall())
        for time_s in counts:
            polls.setdefault(time_s, _Poll()).full = True
        return gpus, polls, counts

    def _frame(self, time_s: float, poll: _Poll, listed: tuple[Gpu, ...]) -> Frame:
        context = self._context
        if poll.full:
            context.advance(time_s)
        gpus = listed if listed != self._gpus else None
        self._gpus = listed
        unavailable = context.unavailable if poll.full else {}
        return Frame(
            time_s,
            {gpu: Sample(values, unavailable.get(gpu, {})) for gpu, values in poll.values.items()},
            full=poll.full,
            gpus=gpus,
            processes=None if poll.processes is None else tuple(poll.processes),
            events=context.take_events(time_s) if poll.full else (),
            problem=context.problem,
        )


def _next(path: Path, begin_s: float, end_s: float) -> float | None:
    """Return the time of the first row from `begin_s` on; None where none is before `end_s`."""
    with reading(path) as connection:
        if connection is None:
            return None
        connection.execute("BEGIN")  # else one table may have what another does not have yet
        tables = (*DAY_NAMES, "listings")
        span = "WHERE ts >= ? AND ts < ?"
        return min(times(connection, "MIN", tables, span, (begin_s, end_s)), default=None)


class _Listings:
    """Processes by the time at which they were listed, asked for in spans as long as an answer is.

    Made for one reading: where there is no answer, it is not asked for again.
    """

    def __init__(self, reader: ProcessReader) -> None:
        self._reader = reader
        self._found: dict[float, list[GpuProcess]] = {}
        self._until_s = -math.inf
        """Unix time before which all is in `_found` that had been listed when it was asked for."""
        self._is_refused = False

    def add(self, counts: Mapping[float, int], polls: Mapping[float, _Poll], end_s: float) -> None:
        """Add the processes to the polls that listed so many; where not all can be had, none is
        known. More of the time until `end_s` is asked for than these polls need."""
        wanted = [time_s for time_s, count in counts.items() if count]
        if wanted:
            self._found = {t: found for t, found in self._found.items() if t >= min(wanted)}
            self._ask(min(wanted), max(wanted), end_s)
            newest_s = max(self._found, default=-math.inf)
            if max(wanted) > newest_s:  # listed since
                self._until_s = min(time_s for time_s in wanted if time_s > newest_s)
                self._ask(self._until_s, max(wanted), end_s)
        for time_s, count in counts.items():
            processes = self._found.get(time_s, [])
            if len(processes) == count:
                polls[time_s].processes = processes

    def _ask(self, since_s: float, last_s: float, end_s: float) -> None:
        if last_s < self._until_s or self._is_refused:
            return
        for answer in self._reader.read(max(since_s, self._until_s), end_s):
            for time_s, program, *numbers in answer.rows:
                gpu, *words = answer.programs[program]
                found = process_of(gpu, (*words, *numbers))
                self._found.setdefault(time_s, []).append(found)
            self._is_refused = answer.problem is not None
            self._until_s = max(self._until_s, answer.until_s)
            if self._until_s > last_s:
                return


class _Context:
    """States, events and problems of index.db, as they were at the time of each frame."""

    def __init__(
        self, since_s: float, with_all_events: bool, events_since_s: float | None = None
    ) -> None:
        self.unavailable: dict[str, dict[str, Unavailable]] = {}
        self.problem: str | None = None
        self._since_s = since_s
        self._events_since_s = since_s if events_since_s is None else events_since_s
        self._with_all_events = with_all_events
        self._last_state = self._last_problem = self._last_change = 0
        self._states: deque[tuple[float, str, str, Unavailable | None]] = deque()
        self._problems: deque[tuple[float, str | None]] = deque()
        self._events: list[Event] = []
        self._lasting: set[tuple[str, str | None, str, float]] = set()
        """Identities of the events that were returned without an end."""

    def read(self, folder: Path) -> None:
        """Read what was written to index.db since the last call."""
        with reading(folder / INDEX) as index:
            if index is not None:
                self._read_states(index)
                self._read_events(index)

    def advance(self, time_s: float) -> None:
        """Apply the states and problems that changed until this time."""
        while self._states and self._states[0][0] <= time_s:
            _, device, metric, absence = self._states.popleft()
            changed = dict(self.unavailable.get(device, {}))  # frames have the one before
            changed.pop(metric, None)
            if absence:
                changed[metric] = absence
            self.unavailable[device] = changed
        while self._problems and self._problems[0][0] <= time_s:
            self.problem = self._problems.popleft()[1]

    def take_events(self, time_s: float) -> tuple[Event, ...]:
        """Return the events that began until this time and were not returned yet, and the ends of
        those that were: the clock may have been set back since they began."""
        taken: list[Event] = []
        later: list[Event] = []
        for event in self._events:
            is_told = event.began_s <= time_s or event.identity in self._lasting
            (taken if is_told else later).append(event)
        self._events = later
        self._lasting -= {event.identity for event in taken if event.ended_s is not None}
        self._lasting |= {event.identity for event in taken if event.ended_s is None}
        return tuple(taken)

    def _read_states(self, index: sqlite3.Connection) -> None:
        # At first the last ones before the time, then those that came since.
        old = "id IN (SELECT MAX(id) FROM states WHERE ts <= :since GROUP BY gpu, metric)"
        values = {"since": self._since_s, "last": self._last_state}
        found = index.execute(
            "SELECT id, ts, gpu, metric, state, since_s, reason FROM states WHERE id > :last"
            f" AND (ts > :since OR {old}) ORDER BY id",
            values,
        ).fetchall()
        names = device_names(index) if found else {}  # after the rows: it has all of their GPUs
        for row, time_s, gpu, metric, state, since_s, reason in found:
            absence = Unavailable(State(state), since_s, reason) if state != State.OK else None
            self._states.append((time_s, names[gpu], metric, absence))
            self._last_state = row
        for row, time_s, problem in index.execute(
            "SELECT id, ts, problem FROM problems WHERE id > ? ORDER BY id", (self._last_problem,)
        ):
            self._problems.append((time_s, problem))
            self._last_problem = row

    def _read_events(self, index: sqlite3.Connection) -> None:
        for change, *event in index.execute(
            f"SELECT changed, {EVENT_COLUMNS} FROM events WHERE changed > ? AND (collected OR ?)"
            " AND (began_s >= ? OR ended_s IS NULL) ORDER BY changed",
            (self._last_change, self._with_all_events, self._events_since_s),
        ):
            self._events.append(event_of(event))
            self._last_change = change
