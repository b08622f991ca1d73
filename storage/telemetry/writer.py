"""Writing the telemetry store: raw rows, roll-ups, states, events, and what goes again."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from gpuadvisor.domain.telemetry import HOST, Event, Frame
from gpuadvisor.domain.timeline import HOUR_S, MINUTE_S
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.home import writable_folder
from gpuadvisor.storage.locks import Held, locked
from gpuadvisor.storage.sqlite_file import DamagedError, explained
from gpuadvisor.storage.telemetry import retention, rollups
from gpuadvisor.storage.telemetry.files import (
    DAY_S,
    PROCESSES,
    SAMPLES,
    begin_of_path,
    day_begin,
    day_path,
    day_paths,
    gpus_of_days,
    set_aside,
    times_of_days,
)
from gpuadvisor.storage.telemetry.lock import LOCK
from gpuadvisor.storage.telemetry.retention import DiskSpace, Retention, Today
from gpuadvisor.storage.telemetry.rollups import Minute, RolledRow, minute_of
from gpuadvisor.storage.telemetry.schema import (
    GPU_MINUTES,
    HOST_MINUTES,
    INDEX,
    fitted,
)
from gpuadvisor.storage.telemetry.written import FAST_KEPT_S, DayFile, IndexFile, ProcessFile

_File = TypeVar("_File", DayFile, ProcessFile)
LOCK_PATIENCE_S = 0.5
"""Seconds to wait for the lock, which a reader that asks who writes holds for microseconds."""
MOST_DAMAGED = 16
"""Files that are set aside in one call; days are kept for two, and a disk that spoils each new file
at once needs another cure."""
HELD_FRAMES = 300
"""Five minutes of full frames, about 60 kB each with 8 GPUs: 18 MB."""
CATCH_UP = 60
"""Minutes of an earlier writer that are rolled up in one call: 20 ms each with eight GPUs."""


class TelemetryWriter:
    """Writes frames and events; a context manager. One for each store, from one thread.

    What `append` has taken outlives this process, however it ends; a power cut may take the last
    seconds with it but leaves the files whole.
    """

    _index: IndexFile

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
        kept: Retention | None = None,
        spare_bytes: int | None = None,
    ) -> None:
        """Open the store, created if need be.

        UsageError if another process writes it, StoreError where it cannot be written.
        `spare_bytes` is left free on the disk (None: 256 MiB, or 5 % of a small disk).
        """
        self.folder = folder
        self._clock = clock
        self.kept = kept or Retention()
        """What is kept for how long, which may be changed at any time."""
        self._space = DiskSpace(folder, spare_bytes)
        self._held: deque[Frame] = deque(maxlen=HELD_FRAMES)
        """Newest full frames whose rows wait until the disk has room again."""
        self._days: dict[Path, DayFile | ProcessFile] = {}
        self._minute: Minute | None = None
        self._started_s = 0.0
        self._pending: list[RolledRow] = []
        self._distrusted = set[float]()
        """Minutes of which this process did not see all, but the raw rows are there."""
        self._damaged: dict[str, str] = {}
        self._is_open = False
        with ExitStack() as stack:
            _lock(stack, folder)
            self._surviving(self._begin)
            self._surviving(self._look_back)
            self._is_open = True
            stack.callback(lambda: self._index.close())
            self._stack = stack.pop_all()

    def _begin(self) -> None:
        """Open the index, and learn what earlier writers saw and have rolled up."""
        known = self._index.described if self._is_open else []
        index = IndexFile(self.folder / INDEX)
        try:
            days = gpus_of_days(self.folder)
            index.adopt([*known, *((row[0], None, *row[2:]) for row in days)])
            with explained(index.path):
                self._rolled_s = rollups.last_minute(index.connection)
                self._dirty_hours = rollups.hours_to_roll(index.connection)
        except BaseException:
            index.close()
            raise
        self._caught_up_s = self._rolled_s + MINUTE_S
        self._index = index

    def _look_back(self) -> None:
        """Learn from when to when there are raw rows."""
        self._today = Today(max(times_of_days(self.folder, "MAX"), default=None))
        self._trimmed_s = min(times_of_days(self.folder, "MIN"), default=math.inf)

    def __enter__(self) -> TelemetryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def paused(self) -> str | None:
        """Why raw rows are held back now, in one sentence; roll-ups, states and events go on."""
        return self._space.problem

    def append(self, frames: Sequence[Frame], events: Sequence[Event] = ()) -> None:
        """Store frames in order of their arrival, and events: all of it when this returns.

        An event that is stored already, by its identity, is replaced. StoreError where something
        could not be stored; the same call may then be made again. A damaged file is set aside.
        """
        fit = [fitted(frame) for frame in frames]
        self._surviving(lambda: self._append(fit, events))

    def take_damaged(self) -> dict[str, str]:
        """Return what was set aside since the last call: sentences by file names."""
        taken, self._damaged = self._damaged, {}
        return taken

    def _append(self, frames: Sequence[Frame], events: Sequence[Event]) -> None:
        self._replace_moved()
        self._space.check()
        if frames:
            self._index.note_gpus(frames)
        if not self._space.problem:
            rows = [*self._held, *frames]
            for path, part in groupby(rows, lambda f: day_path(self.folder, f.time_s)):
                self._write_day(path, list(part))
        if self._pending:
            self._catch_up()  # before, as the next writer goes on after the last that is written
        self._index.write(frames, events, self._pending)
        self._forget_pending()
        if self._space.problem:
            self._held.extend(frame for frame in frames if frame.full)
        else:
            self._held.clear()
        for frame in frames:
            self._today.see(frame.time_s)
            self._trimmed_s = min(self._trimmed_s, frame.time_s)
            self._roll(frame)

    def _write_day(self, path: Path, frames: Sequence[Frame]) -> None:
        if any(frame.processes for frame in frames):
            path_of_processes = day_path(self.folder, frames[0].time_s, PROCESSES)
            self._open(ProcessFile, path_of_processes).write(frames, self.kept.command_lines)
        self._open(DayFile, path).write(frames, self._index.described)

    def tend(self) -> None:
        """Do what is due about once a minute: roll-ups, retention, and the files' upkeep."""
        self._surviving(self._tend)

    def _tend(self) -> None:
        now_s = self._clock()
        self._catch_up()
        self._flush()
        current_s = self._minute.begin_s if self._minute else minute_of(now_s)
        self._roll_hours(current_s)
        self._today.see(now_s)
        self._remove_old(self._today.now_s())
        for path, day in list(self._days.items()):
            day.tend(now_s)
            if begin_of_path(path) != day_begin(now_s):
                self._close_day(path)
        self._index.empty_log()

    def close(self) -> None:
        """End writing. What was appended is stored; the minute under way is rolled up later."""
        try:
            if self._minute and self._space.problem:  # nothing else will know of it
                self._close_minute(self._minute)
                self._flush()
        finally:
            for path in list(self._days):
                self._close_day(path)
            self._stack.close()

    def _open(self, kind: type[_File], path: Path) -> _File:
        file = self._days.get(path)
        if not isinstance(file, kind):
            file = self._days[path] = kind(path)
        return file

    def _close_day(self, path: Path) -> None:
        if day := self._days.pop(path, None):
            day.close()

    def _remove_old(self, now_s: float) -> None:
        retention.apply(self._index, now_s - self.kept.minutes_s)
        if self._minute is None:
            return
        before_s = min(now_s - self.kept.raw_s, *self._dirty_hours, self._minute.begin_s)
        if self._caught_up_s < self._started_s:  # its raw rows are not rolled up yet
            before_s = min(before_s, self._caught_up_s)
        retention.remove_days(self.folder, before_s, self._close_day)
        if before_s - self._trimmed_s < self.kept.raw_s * retention.TRIMMED_SHARE:
            return
        for kind in (SAMPLES, PROCESSES):
            for path in day_paths(self.folder, self._trimmed_s, before_s, kind):
                is_day = kind == SAMPLES
                day = self._open(DayFile, path) if is_day else self._open(ProcessFile, path)
                done_s = max(self._trimmed_s, begin_of_path(path))
                while done_s < min(before_s, begin_of_path(path) + DAY_S):
                    done_s = min(before_s, done_s + retention.TRIMMED_AT_ONCE_S)
                    day.trim(done_s)
        self._trimmed_s = before_s

    # -- damage --------------------------------------------------------------------------------

    def _surviving(self, work: Callable[[], None]) -> None:
        """Do the work; each file that is found damaged is set aside, and it is done again."""
        for _ in range(MOST_DAMAGED):
            try:
                work()
            except DamagedError as error:
                self._set_aside(error)
            else:
                return
        work()

    def _set_aside(self, error: DamagedError) -> None:
        is_index = self._let_go(error.path)
        new = set_aside(error.path, self._clock())
        self._damaged[error.path.name] = (
            f"{error.path} is damaged and was set aside: a new one takes its place, and "
            f"`sqlite3 {new} .recover` shows what can be saved of it."
        )
        if is_index:
            self._renew_index()

    def _replace_moved(self) -> None:
        """Go on in new files where somebody has moved or removed those that are open."""
        for file in (self._index, *self._days.values()):
            if file.is_moved():
                is_index = self._let_go(file.path)
                self._damaged[file.path.name] = (
                    f"{file.path} was moved away or removed while it was written: a new one takes"
                    " its place."
                )
                if is_index:
                    self._renew_index()

    def _let_go(self, path: Path) -> bool:
        """Close a file as it is; return whether it is the index, which must be renewed."""
        if day := self._days.pop(path, None):
            day.connection.close()
        is_index = self._is_open and path == self._index.path
        if is_index:
            self._index.connection.close()
        return is_index

    def _renew_index(self) -> None:
        self._surviving(self._begin)
        if self._minute:  # what was rolled up before it is made anew of the raw rows
            self._started_s = self._minute.begin_s

    # -- roll-ups ------------------------------------------------------------------------------

    def _roll(self, frame: Frame) -> None:
        begin_s = minute_of(frame.time_s)
        if self._minute is None:
            self._started_s = begin_s
            if begin_s <= self._rolled_s:  # the clock was set back: that says nothing of before
                self._caught_up_s = begin_s - FAST_KEPT_S
            self._distrusted.add(begin_s)  # an earlier writer may have written in it
        elif self._minute.begin_s != begin_s:
            self._close_minute(self._minute)
            self._minute = None
        if self._minute is None:
            self._minute = Minute(begin_s)
        if self._space.problem:
            self._minute.is_raw_complete = False
        self._minute.add(frame)

    def _close_minute(self, minute: Minute) -> None:
        """Have the minute written; one that is rolled up already is made anew from its raw rows."""
        begin_s = minute.begin_s
        is_seen = begin_s not in self._distrusted and begin_s > self._rolled_s
        if not is_seen and minute.is_raw_complete:
            minute = rollups.stored_minute(self.folder, begin_s) or minute
        self._distrusted.discard(begin_s)
        self._write_later(minute)
        self._rolled_s = max(self._rolled_s, begin_s)

    def _write_later(self, minute: Minute) -> None:
        for device, (polls, rolled) in minute.rows().items():
            table = HOST_MINUTES if device == HOST else GPU_MINUTES
            self._pending.append((table, minute.begin_s, device, polls, rolled))

    def _flush(self) -> None:
        self._index.write((), (), self._pending)
        self._forget_pending()

    def _forget_pending(self) -> None:
        self._dirty_hours.update(row[1] // HOUR_S * HOUR_S for row in self._pending)
        self._pending.clear()

    def _catch_up(self) -> None:
        """Roll up what an earlier writer could not, some of it at a time."""
        if self._minute is None or self._caught_up_s >= self._started_s:
            return
        for _ in range(CATCH_UP):
            begin_s = rollups.next_minute(self.folder, self._caught_up_s, self._started_s)
            if begin_s is None:
                self._caught_up_s = self._started_s
                return
            if (minute := rollups.stored_minute(self.folder, begin_s)) is not None:
                self._write_later(minute)
            self._caught_up_s = begin_s + MINUTE_S

    def _roll_hours(self, current_s: float) -> None:
        ready = sorted(hour for hour in self._dirty_hours if hour + HOUR_S <= current_s)
        for begin_s in ready:
            with explained(self._index.path):
                rows = list(rollups.stored_hour(self._index.connection, self.folder, begin_s))
            self._index.write((), (), rows)
            self._dirty_hours.discard(begin_s)


def _lock(stack: ExitStack, folder: Path) -> None:
    writable_folder(folder)
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            stack.enter_context(locked(folder / LOCK))
            return
        except Held as other:
            if time.monotonic() > deadline:
                raise UsageError(
                    f"Telemetry in {folder} is being written by process {other.process or '?'}: "
                    "`gpuadvisor daemon stop` ends it, and GPUADVISOR_HOME names another store."
                ) from None
        time.sleep(LOCK_PATIENCE_S / 20)
