"""Jobs in the daemon: telemetry is made into uses as its minutes end, before raw rows go."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gpuadvisor.daemon.store import Writer
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.domain.telemetry_window import SET_BACK_S
from gpuadvisor.errors import StoreError
from gpuadvisor.rules.jobs.use import WARM_UP_S, JobFold
from gpuadvisor.storage.sqlite_file import DamagedError
from gpuadvisor.storage.telemetry.files import set_aside
from gpuadvisor.storage.telemetry.frames import FrameReader
from gpuadvisor.storage.telemetry.jobs import FOLDED, JOBS, JobsFile
from gpuadvisor.storage.telemetry.listed_processes import ProcessReader
from gpuadvisor.storage.telemetry.retention import Today

if TYPE_CHECKING:
    from gpuadvisor.storage.telemetry.retention import Retention

LOG = logging.getLogger(__name__)
FRAMES_AT_ONCE = 3600
"""Full frames that are caught up on in one call: an hour, which takes a second with eight GPUs."""
FORGET_S = 3600.0
"""Seconds between two times at which old uses are removed."""


class JobKeeper:
    """Keeps `jobs.db` up to what is stored; from one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: JobsFile | None = None
        self._forgot_s = -math.inf
        """Monotonic time at which old uses were removed."""
        self._stored: deque[float] = deque(maxlen=FRAMES_AT_ONCE)
        """Times of the frames that were stored since they were last made into uses."""
        self._newest_s = math.inf
        """Unix time up to which frames are read: that of the one stored last."""
        self._before_s = self._back_s = -math.inf
        """Where the clock was set back: from when, and to when."""
        self._again: set[float] = set()
        """Times up to `_before_s` of the frames that were stored since; other rows with such times
        are of before, and were counted."""
        self._said = ""
        """What is wrong, as it was said last; empty where nothing is."""

    def note(self, frames: Iterable[Frame]) -> None:
        """Take note of frames that were stored, in their order: times may come by again."""
        self._stored.extend(frame.time_s for frame in frames)

    def tend(self, keep_s: float) -> None:
        """Add the minutes that have ended since, and remove uses that are older than `keep_s`.

        What goes wrong is said in the log, once for as long as it lasts, and tried again.
        """
        try:
            file = self._file or self._open()
            self._see_stored()
            self._catch_up(file)
            if time.monotonic() - self._forgot_s > FORGET_S:
                self._forgot_s = time.monotonic()
                file.forget(min(self._today.now_s(), file.moment(FOLDED) or 0.0) - keep_s)
            file.empty_log()
            self._said = ""
        except DamagedError as error:
            self.close()
            self._say(f"{error.path} is made anew of the days that are left: {error}")
            if error.path.name == JOBS:
                set_aside(error.path, time.time())
        except StoreError as error:
            self.close()
            self._say(f"jobs are not brought up to date: {error}")

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            LOG.error("%s", sentence)
        self._said = sentence

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> JobsFile:
        file = self._file = JobsFile(self._folder / JOBS)
        folded_s = file.moment(FOLDED)
        since_s = 0.0 if folded_s is None else folded_s - WARM_UP_S
        self._today = Today(folded_s)
        self._read_from(since_s, folded_s or 0.0)
        if self._stored and folded_s is not None:  # it may have been set back meanwhile
            self._newest_s = folded_s
        return file

    def _read_from(self, since_s: float, folded_s: float) -> None:
        self._frames = FrameReader(self._folder, since_s, processes=ProcessReader(self._folder))
        self._fold = JobFold(folded_s, self._frames.instances)

    def _see_stored(self) -> None:
        """Look whether the clock was set back between the frames that were stored."""
        while self._stored:
            time_s, newest_s = self._stored.popleft(), self._newest_s
            self._today.see(time_s)
            if time_s < newest_s - SET_BACK_S and newest_s < math.inf:
                self._back_s = time_s if newest_s >= self._before_s else min(self._back_s, time_s)
                self._before_s = max(self._before_s, newest_s)
            if time_s <= self._before_s:
                self._again.add(time_s)
            self._newest_s = time_s

    def _catch_up(self, file: JobsFile) -> None:
        if self._back_s > -math.inf:
            if not self._fold_until(self._before_s, file, is_before=True):
                return
            for minute in self._fold.finish():
                file.add(minute.uses, minute.end_s)
            self._read_from(self._back_s, -math.inf)
            self._back_s = -math.inf
        self._fold_until(self._newest_s, file, is_before=False)

    def _fold_until(self, last_s: float, file: JobsFile, *, is_before: bool) -> bool:
        """Make what is stored until a Unix time into uses, as much as is done in one call; return
        whether that is all. Of times that came by twice it is what was before, or what came then.
        """
        full = 0
        for frame in self._frames.read(math.nextafter(last_s, math.inf)):
            if (frame.time_s in self._again) == is_before and frame.time_s <= self._before_s:
                continue
            for minute in self._fold.add(frame):
                file.add(minute.uses, minute.end_s)
            full += frame.full
            if full >= FRAMES_AT_ONCE:
                return False
        if not is_before:
            self._again = {time_s for time_s in self._again if time_s > last_s}
        return True


class WithJobs:
    """A writer of telemetry that keeps jobs as well: before old rows go."""

    def __init__(self, writer: Writer, folder: Path) -> None:
        self._writer = writer
        self._jobs = JobKeeper(folder)

    @property
    def kept(self) -> Retention:
        """What is kept for how long."""
        return self._writer.kept

    @kept.setter
    def kept(self, chosen: Retention) -> None:
        self._writer.kept = chosen

    @property
    def paused(self) -> str | None:
        """Why raw rows are not stored now; None where they are."""
        return self._writer.paused

    def append(self, frames: Sequence[Frame], events: Sequence[Event] = ()) -> None:
        """Store all of it or, with a StoreError, nothing."""
        self._writer.append(frames, events)
        self._jobs.note(frames)

    def tend(self) -> None:
        """Do the upkeep that is due about once a minute."""
        self._jobs.tend(self.kept.minutes_s)
        self._writer.tend()

    def take_damaged(self) -> Mapping[str, str]:
        """Return what was set aside since the last call: a sentence for each, by file name."""
        return self._writer.take_damaged()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file of jobs; the writer is its owner's."""
        self._jobs.close()
