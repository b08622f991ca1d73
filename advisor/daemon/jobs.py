"""Jobs in the daemon: telemetry is made into uses as its minutes end, before raw rows go."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gpuadvisor.daemon.store import Writer
from gpuadvisor.domain.telemetry import Event, Frame
from gpuadvisor.errors import StoreError
from gpuadvisor.rules.job_use import WARM_UP_S, JobFold
from gpuadvisor.storage.sqlite_file import DamagedError
from gpuadvisor.storage.telemetry.files import set_aside
from gpuadvisor.storage.telemetry.frames import FrameReader
from gpuadvisor.storage.telemetry.jobs import FOLDED, JOBS, JobsFile
from gpuadvisor.storage.telemetry.processes import ProcessReader

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
        self._forgot_s = 0.0
        self._said = ""
        """What is wrong, as it was said last; empty where nothing is."""

    def tend(self, keep_s: float) -> None:
        """Add the minutes that have ended since, and remove uses that are older than `keep_s`.

        What goes wrong is said in the log, once for as long as it lasts, and tried again.
        """
        try:
            file = self._file or self._open()
            self._catch_up(file)
            if time.time() - self._forgot_s > FORGET_S:
                self._forgot_s = time.time()
                file.forget(min(self._forgot_s, file.moment(FOLDED) or 0.0) - keep_s)
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
        self._frames = FrameReader(self._folder, since_s, processes=ProcessReader(self._folder))
        self._fold = JobFold(folded_s or 0.0, self._frames.instances)
        return file

    def _catch_up(self, file: JobsFile) -> None:
        full = 0
        for frame in self._frames.read():
            for minute in self._fold.add(frame):
                file.add(minute.uses, minute.end_s)
            full += frame.full
            if full >= FRAMES_AT_ONCE:
                return


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
